"""The base of every section of an experiment file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, ValidationInfo

from murmura.errors import ConfigError, nearest


def _beside_the_file(value: str, info: ValidationInfo) -> str:
    base = (info.context or {}).get("base")
    if base is None or Path(value).is_absolute():
        return value
    beside = (Path(base) / value).resolve()
    return str(beside) if beside.exists() else value


def _model_beside_the_file(value: str, info: ValidationInfo) -> str:
    # Only a folder that holds a model: others, such as a run's, may share an alias's name.
    beside = _beside_the_file(value, info)
    return beside if (Path(beside) / "config.json").is_file() else value


Source = Annotated[str, AfterValidator(_beside_the_file)]
"""A path relative to the experiment file it is written in, or the name of something that is not on this disk."""
ModelSource = Annotated[str, AfterValidator(_model_beside_the_file)]
"""The folder of a model, relative to the experiment file it is written in; or another name that `models` resolves."""

Elsewhere = Callable[[], Mapping[str, str]]
"""Gives keys by how to write them; only asked where a key is unknown, since it may import every method's options."""


class Section(BaseModel):
    """A frozen set of options. Unknown keys are errors; the line under an option says what it means."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=())

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
            inner = _inner(field.annotation)
            found |= inner.keys(f"{prefix}{name}.") if inner else {}
        return found

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
                back = "" if default is None else f", or set it back to {default!r}"
                raise ValueError(f"'{option}' does nothing {reason}; remove it{back}")


# What is wanted, in the words of the file and not of Python.
_IN_TOML = dict.fromkeys(("tuple_type", "list_type"), 'Input should be a list: ["query", "value"]')


def _readable(section: type[Section], error: ValidationError, where: str, elsewhere: Elsewhere | None) -> ConfigError:
    errors = error.errors()
    # A misspelt key comes before the one that is missing because of it.
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    path = [str(part) for part in first["loc"]]
    name = ".".join(path)
    if first["type"] == "extra_forbidden":
        fix = nearest(path[-1], _valid_keys(section, path[:-1]), elsewhere() if elsewhere else None)
        return ConfigError(f"unknown key '{name}'", where=where, fix=fix)
    if first["type"] == "missing":
        return ConfigError(f"'{name}' is missing", where=where, fix="Add it.")
    message = _IN_TOML.get(first["type"], str(first["msg"]).removeprefix("Value error, "))
    if not path:
        return ConfigError(message, where=where)  # about several options, which it names
    value = first.get("input")
    shown = "" if isinstance(value, Mapping) else f" = {value!r}"  # a whole table would hide what the message says
    return ConfigError(f"'{name}'{shown}: {message}", where=where)


def _valid_keys(section: type[Section], path: list[str]) -> list[str]:
    """Keys of the (nested) section that ``path`` leads to."""
    for part in path:
        field = section.model_fields.get(part)
        inner = _inner(field.annotation) if field else None
        if inner is None:
            break
        section = inner
    return list(section.model_fields)


def _inner(annotation: Any) -> type[Section] | None:
    """The section that an option holds, if it holds one."""
    kinds = (annotation, *getattr(annotation, "__args__", ()))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Section)), None)
