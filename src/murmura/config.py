"""The base of every section of an experiment file."""

from __future__ import annotations

import codecs
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import tomli_w
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from murmura.errors import ConfigError, nearest
from murmura.units import bytes_of


def _beside_the_file(value: str, info: ValidationInfo) -> str:
    base = (info.context or {}).get("base")
    if base is None or Path(value).is_absolute():
        return value
    beside = os.path.realpath(Path(base) / value)  # unlike Path.resolve also of a link that leads to itself
    return beside if os.path.exists(beside) else value  # which is False for what can be no path, too


def _source(value: str, info: ValidationInfo) -> str:
    found, base = _beside_the_file(value, info), (info.context or {}).get("base")
    if base is None or found != value or os.path.exists(value):
        return found
    missing = os.path.realpath(Path(base) / value)  # where it was looked for first, and is there on resuming
    return missing if os.path.isdir(os.path.dirname(missing)) else value  # else the id of a data set


def _model_beside_the_file(value: str, info: ValidationInfo) -> str:
    # Only a folder that holds a model: others, such as a run's, may share an alias's name.
    beside = _beside_the_file(value, info)
    return beside if (Path(beside) / "config.json").is_file() else value


def _in_full(value: str, info: ValidationInfo) -> str:
    found = _beside_the_file(value, info)
    return value if (info.context or {}).get("base") is None else str(Path(found).absolute())


def names_user(address: str) -> bool:
    """Whether an address holds a name or a password, as in https://NAME:PASSWORD@HOST."""
    return re.match(r"[a-z+.-]+://[^/?#]*@", address, re.IGNORECASE) is not None


def address(instead: str) -> AfterValidator:
    """For the address of a server, which is written down where others may read it.

    Args:
        instead: where a name and a password are given.
    """

    def checked(value: str) -> str:
        if names_user(value):
            raise ValueError(f"a name or a password in it would be written into the run's folder; use {instead}")
        return value

    return AfterValidator(checked)


_SOURCE, _NAMED = AfterValidator(_source), AfterValidator(_beside_the_file)
Source = Annotated[str, _SOURCE]
"""A path relative to the experiment file it is written in, else to the current folder; or the id of a data set."""
NamedSource = Annotated[str, _NAMED]
"""The same, or a name that is no path, as a task has one."""
ModelSource = Annotated[str, AfterValidator(_model_beside_the_file)]
"""The folder of a model, relative to the experiment file it is written in; or another name that `models` resolves."""
RunPlace = Annotated[str, AfterValidator(_in_full)]
"""The folder of another run, relative to the experiment file it is written in, else to the current folder; whoever goes
on with the run may do so in another one."""
WITH_UNIT = BeforeValidator(bytes_of, json_schema_input_type=Annotated[int, Field(ge=0)] | str)
"""For a number of bytes, which may come with its unit: "50MB"."""

Elsewhere = Callable[[], Mapping[str, str]]
"""Gives keys by how to write them; only asked where a key is unknown, since it may import every method's options."""


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Options of nested tables, each by its full name in dots."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file, in UTF-8 or, as Windows' shells write, in UTF-16.

    Raises:
        ConfigError: it is no TOML, with the line; or it is not UTF-8.
        OSError: it cannot be read.
    """
    raw = path.read_bytes()
    encoding = "utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        return tomllib.loads(raw.decode(encoding))
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        fix = "Save it as UTF-8, for example: iconv -f windows-1252 -t utf-8 OLD > NEW"
        raise ConfigError(f"is not UTF-8 (byte 0x{raw[error.start]:02x})", where=f"{path}:{line}", fix=fix) from None
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits, thousands of nested brackets
        raise ConfigError(f"is not TOML ({error})", where=str(path)) from None


_BARE = re.compile("[A-Za-z0-9_-]+")  # a key that needs no quotes


def toml(value: Any) -> str:
    """A value in one line, as an experiment file has it."""
    if isinstance(value, Mapping):
        named = {key if _BARE.fullmatch(key) else toml(key): item for key, item in value.items()}
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in named.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return tomli_w.dumps({"x": value}).removeprefix("x = ").strip()


def shown(value: Any) -> str:
    """A value in a message: as in a file, but a text in single quotes, and ``not set`` for None, which a file leaves
    out."""
    if value is None:
        return "not set"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(shown, value))}]"
    try:
        return repr(value) if isinstance(value, str) else toml(value)
    except TypeError:  # from a program: no file could have said it
        return repr(value)


def by_kind(default: str | None = None) -> BeforeValidator:
    """For an option that is one of several tables, told apart by ``kind``: a name alone stands for its table with
    defaults, ``rule = "ffa"`` for ``rule = {kind = "ffa"}``.

    Args:
        default: the kind of a table that does not say its own.
    """

    def table(value: Any) -> Any:
        if isinstance(value, str):
            return {"kind": value}
        return {"kind": default, **value} if default is not None and isinstance(value, Mapping) else value

    return BeforeValidator(table, json_schema_input_type=dict[str, Any] | str)


def _table_of_switch(value: Any) -> Any:
    return {True: {}, False: None}[value] if isinstance(value, bool) else value


SWITCH = BeforeValidator(_table_of_switch, json_schema_input_type=dict[str, Any] | bool)
"""For a table that may be left out: ``true`` stands for it with defaults, ``false`` for none."""


class Section(BaseModel):
    """A frozen set of options. Unknown keys are errors; the line under an option says what it means."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=(), allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _means_what_it_says(cls, data: Any) -> Any:
        # pydantic would take true for 1, and the system ends a path at a NUL.
        for name, field in cls.model_fields.items() if isinstance(data, Mapping) else ():
            value = data.get(name)
            parts = value if isinstance(value, list) else [value]
            if any(isinstance(one, str) and "\0" in one for one in parts):
                raise _at(name, value, "a NUL character cannot stand here")
            kinds = list(_kinds(field.annotation))
            if any(isinstance(one, bool) for one in parts) and bool not in kinds and (int in kinds or float in kinds):
                raise _at(name, value, "must be a number, not true or false")
        return data

    @classmethod
    def parse(
        cls, data: Mapping[str, Any], where: str, base: Path | None = None, elsewhere: Elsewhere | None = None
    ) -> Self:
        """Validate a table of an experiment file that lies in folder ``base``.

        Args:
            elsewhere: gives keys of other tables, for a key that is in the wrong one.

        Raises:
            ConfigError: naming the key, what was wrong, and for an unknown key the nearest valid one.
        """
        try:
            return cls.model_validate(data, context={"base": base})
        except ValidationError as error:
            raise _readable(cls, error, where, elsewhere) from None

    @classmethod
    def keys(cls, prefix: str = "") -> dict[str, str]:
        """Every key of the section and of those inside it, by its full name in dots."""
        found = {f"{prefix}{name}": name for name in cls.model_fields}
        for name, field in cls.model_fields.items():
            for inner in sections_in(field.annotation):
                found |= inner.keys(f"{prefix}{name}.")
        return found

    def sources(self, prefix: str = "") -> Iterator[tuple[str, str]]:
        """What options name that is on this disk or may be, but for models, each by the option's full name in dots."""
        for name, field in type(self).model_fields.items():
            value, kinds = getattr(self, name), [*_kinds(field.annotation), *field.metadata]
            for part in value if isinstance(value, list | tuple) else [value]:
                if isinstance(part, Section):
                    yield from part.sources(f"{prefix}{name}.")
                elif isinstance(part, str) and (_SOURCE in kinds or _NAMED in kinds):
                    yield f"{prefix}{name}", part

    def refuse_idle(self, options: Iterable[str], reason: str) -> None:
        """Object to options that were changed although nothing reads them; for the validators of a section.

        An option at its default does no harm: a run folder's config.toml has all of them written out, and must load
        again.

        Args:
            options: names of options that do nothing here.
            reason: why, as it ends "'OPTION' does nothing ...".

        Raises:
            ValueError: the first of them that is not at its default.
        """
        for option in options:
            default = type(self).model_fields[option].get_default(call_default_factory=True)
            if getattr(self, option) != default:
                back = "" if default is None else f", or set it back to {shown(default)}"
                raise ValueError(f"'{option}' does nothing {reason}; remove it{back}")


# What is wanted, in the words of the file and not of Python, by pydantic's names for what is wrong.
_IN_TOML = {
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list in brackets"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a table"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "finite_number": "must be a finite number",
    "string_type": "must be a text in quotes",
    "string_too_short": "must not be empty",
}
_AT = "at_option"
_PLAIN = re.compile(r"int|float|str|bool|(list|literal)\[.*\]")


def _at(name: str, value: Any, what: str) -> PydanticCustomError:
    """What a section has against one of its options, for its validators that see them all."""
    return PydanticCustomError(_AT, "{what}", {"name": name, "value": value, "what": what})


def _kinds(annotation: Any) -> Iterator[Any]:
    """A type and those inside it."""
    yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def _readable(section: type[Section], error: ValidationError, where: str, elsewhere: Elsewhere | None) -> ConfigError:
    errors = error.errors()
    # A misspelt key comes before the one that is missing because of it.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    loc, value, told = [str(part) for part in first["loc"]], first.get("input"), first.get("ctx", {})
    if first["type"] == _AT:
        loc, value = [*loc, told["name"]], told["value"]
    path, sections = _walk(section, loc)
    name = ".".join(path)
    if first["type"] == "extra_forbidden":
        here, *others = sections
        there = {f"'{key}' of kind = {_kind(other)}": key for other in others for key in other.model_fields}
        beyond = {full: key for full, key in (elsewhere() if elsewhere else {}).items() if full != f"'{name}'"}
        fix = nearest(path[-1], here.model_fields, {**beyond, **there})
        return ConfigError(f"unknown key '{name}'", where=where, fix=fix)
    if first["type"] in ("missing", "union_tag_not_found"):
        missing = name if first["type"] == "missing" else f"{name}.kind"
        return ConfigError(f"'{missing}' is missing", where=where, fix="Add it.")
    if first["type"] == "union_tag_invalid":
        kinds = [kind for one in sections for kind in get_args(one.model_fields["kind"].annotation)]
        tag = told["tag"]
        return ConfigError(f"'{name}' = '{tag}': there is no such kind", where=where, fix=nearest(tag, kinds))
    message = _IN_TOML.get(
        first["type"], str(first["msg"]).removeprefix("Value error, ").replace("Input should", "must")
    )
    if first["type"] == "too_short":
        message = "must not be empty" if told["min_length"] == 1 else f"must have at least {told['min_length']} entries"
    elif first["type"] == "too_long":
        message = f"must have at most {told['max_length']} entries"
    if not path:
        return ConfigError(message, where=where)  # about several options, which it names
    # A whole table would hide what the message says.
    given = "" if isinstance(value, Mapping) else f" = {shown(value)}"
    return ConfigError(f"'{name}'{given}: {message}", where=where)


def _walk(section: type[Section], loc: list[str]) -> tuple[list[str], list[type[Section]]]:
    """The dotted path to an option, without the kinds that pydantic puts between; and the section that it is in, before
    the others that could stand there."""
    path, sections = list[str](), [section]
    while loc:
        name, *loc = loc
        path.append(name)
        field = sections[0].model_fields.get(name)
        if field is None or not (found := sections_in(field.annotation)):
            break
        if len(found) > 1 and loc:
            kind, *loc = loc
            found.sort(key=lambda one: kind not in get_args(one.model_fields["kind"].annotation))
        if loc or len(found) > 1:
            sections = found
    # Of several plain types pydantic names the one that it has tried.
    return [part for part in (*path, *loc) if not _PLAIN.fullmatch(part)], sections


def _kind(section: type[Section]) -> str:
    return " or ".join(repr(kind) for kind in get_args(section.model_fields["kind"].annotation))


def sections_in(annotation: Any) -> list[type[Section]]:
    """The sections that an option may hold: one, several that differ by ``kind``, or none."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [annotation]
    return [found for part in get_args(annotation) for found in sections_in(part)]
