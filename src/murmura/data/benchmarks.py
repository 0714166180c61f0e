"""Questions of benchmarks, from files and from the hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura.data.layout import Layout
from murmura.data.loading import Loaded, require_usable, scan_columns
from murmura.data.records import R

Check = Callable[[R, Mapping[str, str]], R]


def load_questions(
    source: str | Path,
    kind: type[R],
    check: Check[R],
    *,
    renaming: str,
    fields: Mapping[str, str] | None = None,
    split: str = "train",
    skip_bad: bool = False,
) -> Loaded[R]:
    """Read questions.

    Args:
        source: As ``load_records``.
        kind: What a question is.
        check: Given a question and the columns of its fields, gives it as it is asked, or raises a ``BadValueError``.
        renaming: As ``scan``.
        fields: Field to column, where they differ.
        split: The split of a hub data set.
        skip_bad: As ``load_records``.

    Raises:
        DataError: As ``load_records``.
    """
    plain = Layout.of(kind, fields, None, renaming)
    loaded = scan_columns(source, _Checking(kind, plain.columns, plain.named, None, renaming, check=check), split)
    require_usable([loaded], skip_bad=skip_bad, what="question")
    return loaded


@dataclass(frozen=True, slots=True)
class _Checking(Layout[R]):
    """Columns of a question that must make sense, too."""

    check: Any = None

    def read(self, values: Mapping[str, Any]) -> tuple[R, str | None]:
        record, site = Layout.read(self, values)
        return self.check(record, self.columns), site
