import pytest

from tests.experiment.small import measured_by_default


@pytest.fixture
def make(make):
    """What is foretold of a run has what is measured in it."""
    return measured_by_default(make)
