from __future__ import annotations

from typing import get_args

from murmura.drafting.fates import REASONS, Fate, counted


def test_every_fate_has_words():
    assert REASONS.keys() == set(get_args(Fate))
    assert all(" " in reason for reason in REASONS.values())
    assert counted("empty") == "drafts.empty"
