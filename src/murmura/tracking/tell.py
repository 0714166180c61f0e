"""Telling trackers what a run publishes, whatever becomes of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from murmura import atomic
from murmura.config import leaves
from murmura.errors import ConfigError
from murmura.tracking import TRACKERS
from murmura.tracking.config import TrackingConfig
from murmura.tracking.sink import Sink, Tracked

_TABLES = ("seconds", "counts")  # of a row, with figures of their own
_SECRET = re.compile(r"(^|[._])(key|token|secret|password)$")
_USER = re.compile(r"(?<=://)[^/?#\s]*@")  # to the last @, as a password may have one
_PLACES = ("run.folder", "run.chosen_by")  # on this machine, and nobody else's business


def require(config: TrackingConfig) -> None:
    """Find out before a run whether its trackers are installed.

    Raises:
        ConfigError: one is not, or is no tracker.
    """
    for name in config.to:
        sink: type[Sink] = TRACKERS.load(name, Sink)
        if sink.needs and not _is_there(sink.needs):
            fix = f"pip install 'murmura[{sink.extra}]'." if sink.extra else f"Install {sink.needs}."
            raise ConfigError(f"'{name}' needs the library {sink.needs}", where="tracking.to", fix=fix)


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of a module in a package, which is not there either
        return False


class Tracking:
    """All trackers of a run. What one fails with is told once, and it is told no more.

    Args:
        config: which there are.
        run: id of the run.
        name: what its owner calls it.
        place: the folder of what trackers keep, unless ``config`` names one.
        told: the file that says of which rounds each has been told.
        options: the tables of the experiment.
        tell: what to do with a sentence about a tracker that failed.
    """

    def __init__(
        self,
        config: TrackingConfig,
        run: str,
        name: str,
        place: Path,
        told: Path,
        options: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self._file, self._tell = told, tell
        self._sinks: dict[str, Sink] = {}
        self._failed: list[str] = []
        self._told = self._known()
        folder, known = Path(config.folder) if config.folder else place, parameters(options)
        for one in config.to:
            about = Tracked(run, name, config.project, folder, config.mlflow_uri, known, self._told.get(one, -1))
            self._try(one, partial(self._open, one, about))

    def rounds(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Tell of the last round, which may have been done again, and of all others that a tracker does not know of.

        Args:
            rows: of all rounds so far, as they are published.
        """
        last = rows[-1]["round"] if rows else -1
        self._told = {name: min(known, last - 1) for name, known in self._told.items()}
        self.catch_up(rows)

    def catch_up(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Tell of all rounds that a tracker does not know of, as where it failed in an earlier part of the run."""
        last = rows[-1]["round"] if rows else -1
        for name, sink in list(self._sinks.items()):
            missed = [row for row in rows if row["round"] > self._told.get(name, -1)]
            if self._try(name, partial(_log, sink, missed)):
                self._told[name] = last
        try:
            atomic.make_private(self._file.parent)
            atomic.write(self._file, json.dumps(self._told).encode(), private=True)
        except OSError as error:
            self._failed.append(f"what trackers were told cannot be noted ({error.strerror})")
        self._say()

    def close(self, report: Path | None) -> None:
        """Let go of all of them; ``report`` is that of a run that has finished."""
        for name, sink in list(self._sinks.items()):
            self._try(name, partial(sink.close, report))
        self._sinks.clear()
        self._say()

    def _known(self) -> dict[str, int]:
        """The last round that each has been told of; without a file that says so they are told of all rounds again."""
        try:
            told = json.loads(self._file.read_text(encoding="utf-8"))
            return {str(name): int(round) for name, round in told.items()}
        except FileNotFoundError:
            return {}
        except Exception as error:  # whatever is there instead
            self._failed.append(f"trackers are told of all rounds again: what they know of cannot be read ({error})")
            return {}

    def _say(self) -> None:
        for sentence in self._failed:
            self._tell(sentence)
        self._failed.clear()

    def _open(self, name: str, run: Tracked) -> None:
        self._sinks[name] = TRACKERS.load(name)(run)

    def _try(self, name: str, act: Callable[[], None]) -> bool:
        try:
            act()
            return True
        except Exception as error:  # whatever a library does, or a network
            if (failed := self._sinks.pop(name, None)) is not None:
                with suppress(Exception):  # else what this process tracks next may go to the same place
                    failed.close(None)
            said = _USER.sub("", next(iter(str(error).splitlines()), ""))
            self._failed.append(f"the run is not tracked by {name} any more ({type(error).__name__}: {said})")
            return False


def _log(sink: Sink, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows:
        sink.log(row["round"], figures(row))


def figures(row: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a published row, those of its tables as ``table/name``. An ε that was promised and is
    refused is infinite: trackers would keep what they were told before."""
    found = {key: value for key, value in row.items() if key != "round"}
    found |= {f"{table}/{key}": value for table in _TABLES for key, value in (row.get(table) or {}).items()}
    told = {key: float(value) for key, value in found.items() if _is_finite(value)}
    return told | ({"epsilon": math.inf} if (row.get("privacy") or {}).get("refused") else {})


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def parameters(options: Mapping[str, Any]) -> dict[str, str]:
    """An experiment's options by their full names. Left out are those of tracking, where runs are kept, and what is
    called a key, token, secret or password; of an address, the user."""
    known = dict(leaves({name: table for name, table in options.items() if name != "tracking"}))
    told = [key for key in known if key not in _PLACES and not _SECRET.search(key)]
    return {key: _USER.sub("", str(known[key])) for key in told}
