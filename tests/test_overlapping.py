"""Blocks that change something of the whole process, and overlap."""

import pytest

from murmura.overlapping import Overlapping


def test_of_blocks_that_overlap_the_first_changes_and_the_last_puts_back():
    told = []
    changed = Overlapping(lambda: told.append("changed") or (lambda: told.append("put back")))
    first, second = changed.block(), changed.block()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert told == ["changed"]
    second.__exit__(None, None, None)
    assert told == ["changed", "put back"]
    with pytest.raises(ValueError, match="within"), changed.block():
        raise ValueError("within")
    assert told == ["changed", "put back"] * 2
