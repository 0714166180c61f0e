"""What a tracker of experiments is to a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Tracked:
    """The run as a tracker sees it.

    Args:
        run: its id, the same when it is resumed.
        name: what its owner calls it.
        project: what it is a part of.
        folder: for what the tracker keeps on this disk.
        uri: of MLflow's store, if one is named.
        parameters: its options, dotted key to value.
        after: the last round that this tracker was told of; -1 for none.
    """

    run: str
    name: str
    project: str
    folder: Path
    uri: str | None
    parameters: Mapping[str, str]
    after: int = -1


class Sink(ABC):
    """One tracker. It may raise anything: the run goes on without it.

    Attributes:
        needs: the module of the library that it stands on; empty for none.
        extra: of Murmura, that brings this library; empty where another package brings it.
    """

    needs: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, run: Tracked) -> None:
        """Begin a tracked run, or go on with the one of the same id."""

    @abstractmethod
    def log(self, round: int, figures: Mapping[str, float]) -> None:
        """Tell of a round, counted from 0 before training."""

    @abstractmethod
    def close(self, report: Path | None) -> None:
        """Let go; ``report`` is that of a run that has finished, None where it was stopped."""
