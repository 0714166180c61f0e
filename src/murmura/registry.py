"""What can be named in an experiment file: built in, or brought by another package as an entry point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from murmura.errors import ConfigError, MurmuraError


@dataclass(frozen=True)
class Origin:
    """Where something comes from.

    Args:
        path: to import, ``package.module:Name``.
        package: the distribution with its version; empty for what is built in.
    """

    path: str
    package: str = ""


class Registry(Mapping[str, Origin]):
    """Names and where they come from. Other packages are asked only for names that are not built in.

    Args:
        group: of entry points, such as ``murmura.methods``.
        builtin: import paths by name.
    """

    def __init__(self, group: str, builtin: Mapping[str, str]) -> None:
        self.group, self.builtin = group, {name: Origin(path) for name, path in builtin.items()}

    def __getitem__(self, name: str) -> Origin:
        return self.builtin[name] if name in self.builtin else self._brought()[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from self._brought()

    def __len__(self) -> int:
        return len(self.builtin) + len(self._brought())

    def load(self, name: str, base: type | None = None) -> Any:
        """Import what a name stands for.

        Args:
            base: of which it must be a subclass; None: it may be anything.

        Raises:
            ConfigError: the package that brings it cannot be imported, or brings something else.
        """
        path = self[name].path
        with self.guarded(name, f"cannot be loaded from {path}"):
            return imported(path, base)

    @contextmanager
    def guarded(self, name: str, what: str) -> Iterator[None]:
        """Where the block runs what another package brings, and that fails, say so with the package. Errors that are
        for people already stay as they are, and so do those of what is built in.

        Args:
            name: of what it brings.
            what: it fails at, in words that follow the name.
        """
        try:
            yield
        except MurmuraError:
            raise
        except Exception as error:  # whatever another package does
            source = self.get(name)
            if source is None or not source.package:
                raise
            told = f"'{name}' {what} ({type(error).__name__}: {error})"
            raise ConfigError(told, where=f"package {source.package}", fix="Mend or uninstall the package.") from error

    def _brought(self) -> dict[str, Origin]:
        """What other packages bring, by name."""
        found: dict[str, Origin] = {}
        for point in entry_points(group=self.group):
            source = Origin(point.value, _package(point))
            other = self.builtin.get(point.name) or found.get(point.name)
            if other and other != source:
                what = f"'{point.name}' is brought by {source.package} and by {other.package or 'Murmura itself'}"
                raise ConfigError(what, where=self.group, fix="Uninstall one of them.")
            found[point.name] = source
        return dict(sorted(found.items()))


def imported(path: str, base: type | None = None) -> Any:
    """What an import path ``package.module:Name`` leads to.

    Raises:
        TypeError: it is no subclass of ``base``.
    """
    module, _, name = path.partition(":")
    found = getattr(import_module(module), name)
    if base is not None and not (isinstance(found, type) and issubclass(found, base)):
        raise TypeError(f"it is no subclass of {base.__module__}.{base.__name__}")
    return found


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module
