"""What a person is told about records or questions that cannot be used: all at once, the first ten by file and line."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.data.layout import BadRecord
from murmura.errors import DataError

_LISTED = 10
SKIP = "To leave them out and count them: --skip-bad."
REMOVE = "Take them out of the file."


def indented(lines: Sequence[str]) -> str:
    """A list, one entry a line: the first ten, and how many more there are."""
    more = len(lines) - _LISTED
    shown = [*lines[:_LISTED], f"... and {more} more"] if more > 0 else lines
    return "".join(f"\n  {line}" for line in shown)


def refusal(bad: Sequence[BadRecord], of: int, expected: str, what: str = "record", remedy: str = SKIP) -> DataError:
    """The error for records that cannot be used, at least one.

    Args:
        of: How many there are, the bad ones included.
        expected: What a record must hold.
        what: What they are called.
        remedy: What else can be done, where others can be used.
    """
    known = dict.fromkeys((record.fix or expected).rstrip(". ") for record in bad)
    fixes = [f"{fix}." for fix in known if not any(fix != other and other.startswith(fix) for other in known)]
    fix = " ".join(fixes + [remedy] * (len(bad) < of))
    if len(bad) == 1:
        return DataError(bad[0].why, where=str(bad[0].where), fix=fix)
    share = f"{len(bad)} of {of}" if len(bad) < of else f"none of the {of}"
    lines = [f"{record.where}: {record.why}" for record in bad]
    return DataError(f"{share} {what}s can{'' if len(bad) == of else 'not'} be used:{indented(lines)}", fix=fix)
