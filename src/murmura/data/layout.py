"""Which column of a file holds which field of a record, and what a usable value is."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Generic, Literal

from murmura.data import chats
from murmura.data.records import KINDS, R
from murmura.data.texts import folded
from murmura.errors import DataError, nearest

RECODE = (
    "If the whole file is in a Windows or Latin-1 encoding: iconv -f cp1252 -t utf-8 OLD > NEW, or save it in Excel as "
    "'CSV UTF-8'"
)
RENAMING = "fields = {{{field} = '{column}'}}"
_CLOSE = 0.8  # likeness, of 1: Label and labels are close to label, table is not
_WHOLE = re.compile(r"-?[0-9]{1,15}\.0+")  # a whole number that a tool wrote as a float


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record is: the line of a file on which it begins; in Parquet and on the hub, its row from 1; in
    a workbook, its row as Excel numbers it."""

    file: str
    number: int
    unit: Literal["line", "row"] = "line"

    def __str__(self) -> str:
        return f"{self.file}:{self.number}" if self.unit == "line" else f"{self.file}: row {self.number}"


@dataclass(frozen=True, slots=True)
class FileRow:
    """One record as it is in a file: where, and its columns, not yet checked."""

    where: Place
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that could not be used. ``why`` quotes no text of the record, so it may be shown and stored; ``fix`` is
    what mends it, where that is more than to hold what is expected."""

    where: Place
    why: str
    fix: str = ""


Rows = Generator[FileRow | BadRecord, None, None]


class BadValueError(ValueError):
    """A column of one record does not hold what the record needs; the message is why, ``fix`` as for ``BadRecord``."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


@dataclass(frozen=True, slots=True)
class ColumnLayout(Generic[R]):
    """The columns that make a record of ``kind``, and those that name its site and the person it is about.

    Attributes:
        columns: Field to column, for every field of the kind that has one.
        renaming: How the user says that a ``{field}`` is in a ``{column}``; empty where names of columns are given.
        named: Columns that the user chose by name. They must occur, even for a field that may be empty: otherwise a
            misspelt name would silently give records without input.
        check: Given a record and ``columns``, gives it as it is used, or raises a ``BadValueError``.
        unread: Is given the names of a table's columns that nothing reads.
    """

    kind: type[R]
    columns: Mapping[str, str]
    named: frozenset[str]
    site_column: str | None = None
    renaming: str = RENAMING
    user_column: str | None = None
    check: Callable[[R, Mapping[str, str]], R] | None = None
    unread: Callable[[list[str]], None] | None = None

    @classmethod
    def of(
        cls,
        kind: type[R],
        renamed: Mapping[str, str] | None,
        site_column: str | None,
        renaming: str = RENAMING,
        user_column: str | None = None,
    ) -> ColumnLayout[R]:
        """Columns are called like the fields unless ``renamed`` (field to column) says otherwise. A column that another
        field was given is not read for one that records may do without: ``{"instruction": "input"}`` leaves no input;
        nor is any column for a field that is given none: ``{"input": ""}``.

        Raises:
            DataError: ``renamed`` has a key that is not a field of ``kind``, or no column for one that records need, or
                the same for two.
        """
        names = [field.name for field in fields(kind)]
        given: dict[str, str] = dict(renamed or {})
        for name in given:
            if name not in names:
                having = [f"'{one}'" for one, other in KINDS.items() if name in {field.name for field in fields(other)}]
                fix = nearest(name, names) + (f" The kind {' or '.join(having)} has it." if having else "")
                raise DataError(f"'{name}' is not a field of {kind.__name__} records", where="fields", fix=fix)
            if not given[name] and name in kind.required:
                fix = f"Name the column that holds it: {renaming.format(field=name, column='COLUMN')}."
                raise DataError(f"'{name}' is given no column, and every record needs it", where="fields", fix=fix)
        unread = {name for name, column in given.items() if not column}
        named = frozenset(column for column in (*given.values(), site_column, user_column) if column)
        taken = unread | set(given.values()) - set(kind.required)
        columns = {name: given.get(name) or name for name in names if given.get(name) or name not in taken}
        for name, column in given.items():
            if column and (other := next((one for one in columns if one != name and columns[one] == column), None)):
                what = f"'{name}' and '{other}' would both be read from column '{column}'"
                raise DataError(what, where="fields", fix="Give each a column of its own.")
        return cls(kind, columns, named, site_column, renaming, user_column)

    @property
    def required(self) -> tuple[str, ...]:
        """Fields that every record must have."""
        return self.kind.required

    @property
    def expected(self) -> str:
        """What a record must hold, as a sentence for the user, without its full stop."""
        must = [f"'{self.columns[name]}'" for name in self.required]
        must += [f"'{column}'" for column in (self.site_column, self.user_column) if column]
        may = [f"'{column}'" for name, column in self.columns.items() if name not in self.required]
        return f"Expected {' and '.join(must)}" + (f", and where needed {' and '.join(may)}" if may else "")

    def _renaming(self, field: str, column: str) -> str:
        return self.renaming.format(field=field, column=column)

    def _another(self, column: str, held: Collection[str]) -> str:
        """How to say that what is looked for in a column is in another, and what to do with chats, as a sentence or
        two without the last full stop.

        Args:
            held: the columns that are there.
        """
        return ". ".join(filter(None, [self._elsewhere(column), chats.advice(self.kind, self.columns, held)]))

    def _elsewhere(self, column: str) -> str:
        field = next((field for field, wanted in self.columns.items() if wanted == column), None)
        if field is None:
            whose = "users" if column == self.user_column else "sites, or of the labels that they are drawn by"
            return f"It was named as the column of the {whose}, which must be called so in every file"
        if not self.renaming:
            return f"Call the column that holds it '{column}'"
        return f"If another column holds it: {self._renaming(field, 'COLUMN')}"

    def _other_kind(self, columns: Iterable[str]) -> str:
        """A blank and a sentence on the kind of record whose fields these columns are called like, if there is one."""
        shares: dict[str, tuple[int, float]] = {}
        for name, kind in KINDS.items() if self.kind in KINDS.values() else ():
            held = {field.name for field in fields(kind)} & set(columns)
            if kind is not self.kind and held.issuperset(kind.required):
                shares[name] = len(held), len(held) / len(fields(kind))
        return f" The columns are those of the kind '{max(shares, key=lambda name: shares[name])}'." if shares else ""

    def wanted(self, header: Iterable[str]) -> list[str]:
        """Those columns of a table that are to be read."""
        ours = {*self.columns.values(), *self.named}
        return [name for name in header if name in ours]

    def check_header(self, header: Iterable[str], where: str) -> None:
        """Refuse a table that lacks a column.

        Raises:
            DataError: Columns that every record needs, or that the user named, are not in the header, all of them
                together; or one that a record may do without is not, but one of almost its name, which would silently
                go unread.
        """
        found = list(header)
        needed: list[str] = [self.columns[name] for name in self.required]
        missing = [column for column in dict.fromkeys([*needed, *sorted(self.named)]) if column not in found]
        if missing:
            fix = f"{nearest(missing[0], found)}{self._other_kind(found)} {self._another(missing[0], found)}."
            if any("\udc80" <= letter <= "\udcff" for name in found for letter in name):  # a byte that is not UTF-8
                fix = f"The names of its columns are not valid UTF-8. {RECODE}."
            others = "".join(f", and no '{column}'" for column in missing[1:])
            raise DataError(f"no column '{missing[0]}'{others}", where=where, fix=fix)
        ours = self.wanted(found)
        unread = {name.strip().casefold(): name for name in found if name not in ours}
        for field, column in self.columns.items():
            close = get_close_matches(column.casefold(), unread, n=1, cutoff=_CLOSE) if column not in found else []
            if close:
                name = unread[close[0]]
                use = f"Use {self._renaming(field, name)}" if self.renaming else f"Call it '{column}'"
                fix = f"{use}, or rename the column if it holds something else."
                raise DataError(f"no column '{column}', but one called '{name}'", where=where, fix=fix)
        if self.unread is not None:
            self.unread([name for name in found if name not in ours])

    def read(self, values: Mapping[str, Any]) -> tuple[R, str | None]:
        """The record that the columns hold, and the name of its site where there is a site column.

        Raises:
            BadValueError: A needed value is missing, empty, not text, or not encodable; one that may be missing is
                there with its name in other capitals; or ``check`` refuses it all.
        """
        record: dict[str, Any] = {}
        for field, column in self.columns.items():
            value = values.get(column)
            if field in self.required:
                if column not in values:
                    fix = f"{self.expected}.{self._other_kind(values)} {self._another(column, values.keys())}"
                    raise BadValueError(_missing(column, values), fix)
                if fix := chats.advice_on(value, self.kind, self.columns, field):
                    raise BadValueError(f"'{column}' is of type list, not text", fix)
                record[field] = text(value, column, values)
            else:
                record[field] = self.optional(field, values)
        site = word(values.get(self.site_column), self.site_column, values) if self.site_column else None
        if record.get("chosen", "") == record.get("rejected", "x"):
            what = f"'{self.columns['chosen']}' and '{self.columns['rejected']}' are the same, so neither is preferred"
            raise BadValueError(what, "Take the record out, or correct it.")
        made = self.kind(**record)
        return (self.check(made, self.columns) if self.check else made), site

    def optional(self, field: str, values: Mapping[str, Any]) -> str:
        """What a field holds that records may do without: nothing where its column is blank or not there.

        Raises:
            BadValueError: It is not text, or not encodable; or a row of a file without a header writes its name
                otherwise than the rest, so that it would silently go unread.
        """
        column = self.columns[field]
        value = values.get(column)
        if not is_blank(value):
            return word(value, column, values) if field == "label" else _string(value, column)
        ours = self.wanted(values)
        unread = [name for name in values if name not in ours and not is_blank(values[name])]
        twins = [name for name in unread if name.strip().casefold() == column.casefold()]
        if twins and column not in values:
            fix = f"Call it '{column}', or rename it if it holds something else"
            raise BadValueError(f"record without '{column}', but with '{twins[0]}'", fix)
        return ""

    def user(self, values: Mapping[str, Any]) -> str | None:
        """The person that the record is about, where a column names one.

        Raises:
            BadValueError: As ``read``.
        """
        return word(values.get(self.user_column), self.user_column, values) if self.user_column else None


def refuse_twins(header: Sequence[str], where: str) -> None:
    """Refuse a table with two columns of one name.

    Raises:
        DataError: There are such.
    """
    twins = sorted({name for name in header if header.count(name) > 1})
    if twins:
        raise DataError(f"two columns are called '{twins[0]}'", where=where, fix="Rename one of them.")


def is_blank(value: Any) -> bool:
    """Whether a cell has nothing in it, in whatever way its file says so."""
    return (
        value is None
        or (isinstance(value, float) and math.isnan(value))
        or (isinstance(value, str) and not value.strip())
    )


def text(value: Any, column: str, values: Mapping[str, Any]) -> str:
    """Text that has something in it."""
    if value is None:
        raise BadValueError(_missing(column, values))
    if not _string(value, column).strip():
        raise BadValueError(f"'{column}' is empty")
    return value


def word(value: Any, column: str, values: Mapping[str, Any]) -> str:
    """A label, or the name of a site or a person: text or a number, kept as text in its folded form, so that one person
    is not two by how a name is encoded. Whole floats lose their point, as text too, since a column of integers in which
    one value is missing comes out of many tools as floats."""
    if isinstance(value, bool):  # which tools write as true, True, TRUE or 1: the resulting name could not be predicted
        raise BadValueError(f"'{column}' is of type bool, not text or a number", 'Write it as text, such as "yes"')
    if isinstance(value, float) and math.isnan(value):
        value = None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, (int, float)):
        return str(value)
    name = folded(text(value, column, values))
    return str(int(name.partition(".")[0])) if _WHOLE.fullmatch(name) else name


def _string(value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise BadValueError(f"'{column}' is of type {type(value).__name__}, not text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        # A byte that is not UTF-8 (kept by the CSV reader as a surrogate from U+DC80 on) or half an escape pair in
        # JSON; no tokenizer takes either.
        is_byte = "\udc80" <= value[error.start] <= "\udcff"
        raise BadValueError(f"'{column}' is not valid UTF-8", RECODE if is_byte else "") from None
    return value


def _missing(column: str, values: Mapping[str, Any]) -> str:
    others = ", ".join(repr(name) for name, value in values.items() if value is not None and name != column)
    return f"record without '{column}'" + (f" (it has {others})" if others else "")
