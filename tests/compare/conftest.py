"""Runs of comparisons without processes of their own."""

import time

import pytest

from murmura.compare import jobs
from murmura.errors import MurmuraError
from murmura.experiment.run import run


@pytest.fixture
def begun(monkeypatch, no_page):
    """The runs that were begun, which are made in this process, since it takes long to start another, and have no
    pages of their own."""
    begun = []

    def in_process(job, at_once, under_way):
        begun.append(job.folder.name)
        began = time.monotonic()
        try:
            run(job.experiment, resume=False)
        except MurmuraError as error:
            return time.monotonic() - began, str(error)
        return time.monotonic() - began, ""

    monkeypatch.setattr(jobs, "_run", in_process)
    return begun
