from typing import get_args

from murmura.drafting.rejections import REASONS, Rejection, counted


def test_every_fate_has_words():
    assert REASONS.keys() == set(get_args(Rejection))
    assert all(" " in reason for reason in REASONS.values())
    assert counted("empty") == "drafts.empty"
