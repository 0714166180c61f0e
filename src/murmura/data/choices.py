"""Questions with options, one of them right, from files and from the hub."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura.data.layout import BadValueError, ColumnLayout, is_blank, text, word
from murmura.data.loading import LoadedRecords, require_usable, scan_columns
from murmura.data.records import Choice
from murmura.errors import DataError

_RENAMING = "evaluation.choices.fields = {{{field} = '{column}'}}"
_COMMON = "If all records have the same options: evaluation.choices.options = ['one', 'other']"
_LIST = (
    'Write a JSON list, such as ["yes", "no"], or name a column for each option in evaluation.choices.option_columns'
)
_TRUTH = {"false": 0, "true": 1}
_DIGITS = 10  # of no place; Python refuses to read thousands


@dataclass(frozen=True, slots=True)
class Common:
    """What all records of a file share and need not hold themselves.

    Attributes:
        instruction: What is asked in each.
        options: Of each.
        option_columns: Where each option has a column of its own; those at the end may be blank.
    """

    instruction: str | None = None
    options: Sequence[str] | None = None
    option_columns: Sequence[str] | None = None


def load_choices(
    source: str | Path,
    *,
    fields: Mapping[str, str] | None = None,
    common: Common | None = None,
    split: str = "train",
    skip_bad: bool = False,
) -> LoadedRecords[Choice]:
    """Read questions with options.

    A record has ``instruction``, ``input`` (may be missing), ``options`` (a list of at least two texts; in CSV a JSON
    list) and ``answer``, the right one: a number or a text of digits is its place, counted from 0; another text is the
    option itself. Of two options ``false`` and ``true`` mean those called so, in whatever capitals; where neither is,
    the first and the second. A text that is an option is never read as a place. An option that is text stays as it is
    written; in an answer 2.0 is 2 where no option is just that.

    Args:
        source: As ``load_records``.
        fields: Field to column, where they differ: ``{"answer": "label"}``.
        common: What the records share.
        split: The split of a hub data set.
        skip_bad: As ``load_records``.

    Raises:
        DataError: As ``load_records``; a record without options, with one alone, with two alike, or whose answer is
            none of them, is a bad one.
    """
    common = common or Common()
    plain = ColumnLayout.of(Choice, fields, None, _RENAMING)
    given = {"instruction": common.instruction, "options": common.options or common.option_columns}
    for name, value in given.items():
        if value and name in (fields or {}):
            fix = f"Leave one of the two out: fields.{name}, or what all records share."
            what = f"'{name}' is both in a column and given for all records"
            raise DataError(what, where="evaluation.choices", fix=fix)
    columns = {name: column for name, column in plain.columns.items() if not given.get(name)}
    named = plain.named | frozenset(common.option_columns or ())
    layout = _ChoiceLayout(Choice, columns, named, None, _RENAMING, common=common)
    loaded = scan_columns(source, layout, split)
    require_usable([loaded], skip_bad=skip_bad, what="question")
    return loaded


@dataclass(frozen=True, slots=True)
class _ChoiceLayout(ColumnLayout[Choice]):
    """Columns of a question; those of what all records share are not among them."""

    common: Common = Common()

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name in Choice.required if name in self.columns)

    def read(self, values: Mapping[str, Any]) -> tuple[Choice, None]:
        instruction = self.common.instruction or self._text("instruction", values)
        asked = self.optional("input", values) if "input" in self.columns else ""
        options = _checked(self._options(values))
        return Choice(instruction, asked, options, _place(values, self.columns["answer"], options)), None

    def _text(self, field: str, values: Mapping[str, Any]) -> str:
        return text(values.get(self.columns[field]), self.columns[field], values)

    def _options(self, values: Mapping[str, Any]) -> list[str]:
        if self.common.options is not None:
            return list(self.common.options)
        if self.common.option_columns is not None:
            cells = [values.get(column) for column in self.common.option_columns]
            while cells and is_blank(cells[-1]):
                cells.pop()
            return [_option(cell) for cell in cells]
        column = self.columns["options"]
        found = values.get(column)
        if is_blank(found):
            raise BadValueError("record without options", f"{self.expected}. {_COMMON}")
        if isinstance(found, str):
            try:
                found = json.loads(found)
            except (ValueError, RecursionError):
                found = None
        if not isinstance(found, list):
            raise BadValueError(f"'{column}' is not a list", _LIST)
        return [_option(one) for one in found]


def _option(value: Any) -> str:
    if is_blank(value):
        return ""
    return text(value, "options", {}).strip() if isinstance(value, str) else word(value, "options", {})


def _checked(options: Sequence[str]) -> tuple[str, ...]:
    if not options:
        raise BadValueError("record without options", _COMMON)
    if len(options) == 1:
        raise BadValueError("only one option, so there is nothing to choose", "Give at least two")
    if not all(options):
        raise BadValueError("an option is empty", "Leave it out, and count the answer's place without it")
    if len(set(options)) < len(options):
        raise BadValueError("two options are alike", "Keep each once")
    return tuple(options)


def _place(values: Mapping[str, Any], column: str, options: Sequence[str]) -> int:
    """The place of the right option."""
    answer, place = values.get(column), None
    if is_blank(answer):
        raise BadValueError(f"record without '{column}'", "Give the right option, or its place counted from 0")
    if isinstance(answer, str) and answer.strip() in options:
        return list(options).index(answer.strip())
    said = str(answer).strip().casefold() if isinstance(answer, bool | str) else ""
    if said in _TRUTH and len(options) == 2:
        place = _of_truth(said, options)
    elif isinstance(answer, str):
        told, plain = word(answer, column, values), [word(one, column, values) for one in options]
        if told in plain:  # 2 of the options 1.0 and 2.0, or the other way round
            place = plain.index(told) if plain.count(told) == 1 else None
        elif told.isascii() and told.isdigit() and len(told) < _DIGITS:
            place = int(told)
    elif not said and isinstance(answer, int | float) and math.isfinite(answer) and answer == int(answer):
        place = int(answer)
    if place is None or not 0 <= place < len(options):
        raise BadValueError(
            f"'{column}' is none of the {len(options)} options",
            f"Write the right option exactly as it is given, or its place, 0 to {len(options) - 1}",
        )
    return place


def _of_truth(said: str, options: Sequence[str]) -> int | None:
    """The place of the one of two options that true or false means; None where it is neither of them for sure."""
    called = [option.strip().casefold() for option in options]
    if any(one in _TRUTH for one in called):
        return called.index(said) if called.count(said) == 1 else None
    return _TRUTH[said]
