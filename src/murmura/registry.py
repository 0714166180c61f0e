"""What can be named in an experiment file: built in, or brought by another package as an entry point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from murmura.errors import ConfigError


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

    def load(self, name: str) -> Any:
        """Import what a name stands for.

        Raises:
            ConfigError: the package that brings it cannot be imported.
        """
        source = self[name]
        try:
            return imported(source.path)
        except Exception as error:  # whatever another package does when it is imported
            if not source.package:
                raise
            what = f"'{name}' cannot be loaded from {source.path} ({type(error).__name__}: {error})"
            raise ConfigError(what, where=f"package {source.package}", fix="Mend or uninstall the package.") from error

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


def imported(path: str) -> Any:
    """What an import path ``package.module:Name`` leads to."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.module
