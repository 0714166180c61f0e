"""What makes accounting in tests cheaper."""

import pytest

from murmura.privacy import accounting


@pytest.fixture
def coarse_grid(monkeypatch):
    """Privacy loss distributions ten times as coarse: mixtures of Gaussians take a minute otherwise. They are rounded
    up all the same, by some 1e-4 of ε."""
    monkeypatch.setattr(accounting, "_GRID", 1e-3)
    _forget()
    yield
    _forget()


def _forget():
    accounting._epsilon.cache_clear()
    accounting._tightest.cache_clear()
