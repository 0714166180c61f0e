"""Without Flower, or with another version of it, one is told what to install."""

from importlib.metadata import PackageNotFoundError

import pytest

from murmura.errors import RunError
from murmura.federation.engines import flower


def test_what_is_installed_is_known():
    flower.require()


@pytest.mark.parametrize("found", [None, "1.28.0", "1.42.0"])
def test_what_is_not_is_told(monkeypatch, found):
    def version(name):
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(flower, "version", version)
    with pytest.raises(RunError) as error:
        flower.require()
    assert "murmura[flower]" in error.value.fix
