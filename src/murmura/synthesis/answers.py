"""What a generator has answered, in a file that is only ever added to: whatever is killed, no answer is lost."""

from __future__ import annotations

import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from murmura import atomic
from murmura.errors import CheckpointError, explaining

Line = dict[str, Any]
_DONE = 255  # of a sample that there is; of any other, how many attempts at it have been answered


class Answers:
    """The answers about samples 0 to ``samples`` − 1, in the order in which they came.

    The first line says what was asked for, and every other one is an answer: the ``sample`` and the ``attempt`` at it,
    from 0, with its ``text`` and whether that is ``finished``, or with the ``fault`` for which it is not used. A line
    that was begun when the process was killed is cut off. In memory there is a byte for each sample.

    Args:
        path: of the file, which is made if need be; nobody but its owner may read it.
        asked: what the samples are made from. A file that was begun for something else is refused.
        samples: how many there are to be, perhaps more than last time.

    Attributes:
        texts: how many samples there are.
        faults: how many answers were not used, by why.

    Raises:
        CheckpointError: it cannot be read or written, is damaged, or was begun for something else.
    """

    def __init__(self, path: Path, asked: Mapping[str, Any], samples: int) -> None:
        self.path, self.texts, self.faults = path, 0, Counter[str]()
        self._state = np.zeros(samples, np.uint8)
        with self._kept():
            if path.exists() and (size := self._recall(json.loads(json.dumps(asked)))):
                os.truncate(path, size)
            else:
                atomic.write(path, _written([asked]), private=True)

    def _recall(self, asked: Line) -> int:
        """Count what the file holds; how many bytes that is."""
        size = 0
        for end, line in _lines(self.path):
            if size:
                self._count(line)
            elif others := sorted(key for key in line.keys() | asked.keys() if line.get(key) != asked.get(key)):
                what = f"the file holds texts that were written with another {' and another '.join(others)}"
                fix = "Move it away to have new texts written, or go back to what these were begun with."
                raise CheckpointError(what, where=str(self.path), fix=fix)
            size = end
        return size

    def attempts(self, sample: int) -> int:
        """How many attempts at a sample, of which there is no text, have been answered."""
        return int(self._state[sample])

    def missing(self, attempts: int) -> np.ndarray:
        """Samples without a text at which fewer attempts than these were answered, int64 [n]."""
        return np.flatnonzero(self._state < attempts)

    def add(self, lines: Sequence[Line]) -> None:
        """Add answers; they are on the disk when this returns.

        Raises:
            CheckpointError: they could not be written, and none was added.
        """
        with self._kept():
            atomic.append(self.path, _written(lines))
        for line in lines:
            self._count(line)

    def _count(self, line: Line) -> None:
        sample = line["sample"]
        if sample >= len(self._state):
            return
        if "text" in line:
            self.texts += 1
            self._state[sample] = _DONE
        else:
            self.faults[line["fault"]] += 1
            self._state[sample] = line["attempt"] + 1

    def _kept(self) -> AbstractContextManager[None]:
        return explaining("the texts cannot be kept", self.path, "then start again with --resume")


def _written(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)


class Texts(Sequence[str]):
    """The texts of a file of answers in the order of their samples, each read from the disk when it is asked for.

    Args:
        path: of the file; what is added to it later is not seen.
        samples: of which there are to be texts: 0 to this − 1. An earlier run may have asked for more.

    Attributes:
        finished: of each text whether it came to its end, bool [n]; False where it was cut off, or may have been.

    Raises:
        CheckpointError: it cannot be read or is damaged.
    """

    def __init__(self, path: Path, samples: int) -> None:
        self.path = path
        numbers, starts, ends, start = array("q"), array("q"), array("b"), 0
        try:
            for end, line in _lines(path):
                if "text" in line and line["sample"] < samples:
                    numbers.append(line["sample"])
                    starts.append(start)
                    ends.append(line["finished"])
                start = end
        except OSError as error:
            raise CheckpointError(f"the texts cannot be read ({error.strerror or error})", where=str(path)) from error
        order = np.argsort(np.array(numbers, np.int64))
        self._starts, self.finished = np.array(starts, np.int64)[order], np.array(ends, bool)[order]

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: Any) -> Any:
        """The text of an index, or a list of those of a slice."""
        return self._at(self._starts[index]) if isinstance(index, slice) else self._at([self._starts[index]])[0]

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), 1024):
            yield from self[first : first + 1024]

    def _at(self, starts: Sequence[int] | np.ndarray) -> list[str]:
        with self.path.open("rb") as stream:
            return [_text_at(stream, int(start)) for start in starts]


def _text_at(stream: BinaryIO, start: int) -> str:
    stream.seek(start)
    return str(json.loads(stream.readline())["text"])


def _lines(path: Path) -> Iterator[tuple[int, Line]]:
    """The lines of a file of answers, without one that was never finished, and how many bytes there are up to each
    one's end."""
    end = 0
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            if not raw.endswith(b"\n"):
                return
            end += len(raw)
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                line = None
            if not (_is_answer(line) if number > 1 else isinstance(line, dict)):
                fix = "Take it out, so that its text is written again." if number > 1 else "Move the file away."
                raise CheckpointError("the line is damaged", where=f"{path}:{number}", fix=fix)
            yield end, line


def _is_answer(line: Any) -> bool:
    if not isinstance(line, dict) or not {"sample", "attempt"} <= line.keys():
        return False
    written = isinstance(line.get("text"), str)
    return written != isinstance(line.get("fault"), str) and written == isinstance(line.get("finished"), bool)
