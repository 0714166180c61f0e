"""Have a judge compare answers, and keep all that was said."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura import atomic
from murmura.errors import CheckpointError
from murmura.judge.prompts import Ratings, parse, prompt
from murmura.judge.verdicts import JudgedPair, counted
from murmura.progress import bar
from murmura.streams import Stream
from murmura.synthesis.generators import Generator, Request


@dataclass(frozen=True, slots=True)
class Compared:
    """A question and two answers to it."""

    question: str
    ours: str
    theirs: str

    @property
    def prompts(self) -> tuple[str, str]:
        """What the judge is asked: with our answer first, and with it second."""
        return prompt(self.question, self.ours, self.theirs), prompt(self.question, self.theirs, self.ours)


class Transcript:
    """Every verdict that was given, a line of JSON each, in a file that is only ever added to, and that nobody but its
    owner may read.

    A judgement that was stopped goes on from it: what was asked of the same judge in the same words is not asked again.

    Args:
        file: where it is kept.
        place: where the judge is that is asked now, such as a server's address.

    Raises:
        CheckpointError: the file is no such transcript.
    """

    def __init__(self, file: Path, place: str) -> None:
        self.file, self.place = file, place
        self._answers: dict[str, str] = {}
        self._places: dict[str, str] = {}
        for number, line in enumerate(_lines(file), 1):
            try:
                row = json.loads(line.decode("utf-8"))
                self._answers[row["key"]], self._places[row["key"]] = row["answer"], row["place"]
            except (ValueError, KeyError, TypeError, RecursionError):
                fix = "Move it away, and all is asked again."
                raise CheckpointError("this is not a verdict", where=f"{file}:{number}", fix=fix) from None

    def answer(self, judge: Generator, asked: str) -> str | None:
        """What the judge said to this; None where it was not asked yet."""
        return self._answers.get(_key(judge.described, asked))

    def places(self, judge: Generator, compared: Sequence[Compared]) -> list[str]:
        """Where the judge was when it said what it has said to these."""
        keys = (_key(judge.described, asked) for one in compared for asked in one.prompts)
        return list(dict.fromkeys(self._places[key] for key in keys if key in self._places))

    def add(self, judge: Generator, asked: str, answer: str) -> None:
        """Keep what it said."""
        key = _key(judge.described, asked)
        self._answers[key], self._places[key] = answer, self.place
        row = {"key": key, "judge": dict(judge.described), "place": self.place, "prompt": asked, "answer": answer}
        atomic.append(self.file, (json.dumps(row, ensure_ascii=False) + "\n").encode())


def _lines(file: Path) -> Iterator[bytes]:
    """Whole lines; the last one of a process that was killed may be torn, and what it was about is asked again."""
    if not file.exists():
        return
    held = file.read_bytes()
    whole = held[: held.rfind(b"\n") + 1]
    if len(whole) < len(held):
        os.truncate(file, len(whole))
    yield from whole.split(b"\n")[:-1]


def _key(described: Mapping[str, Any], asked: str) -> str:
    told = json.dumps([dict(sorted(described.items())), asked], ensure_ascii=False)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def open_prompts(judge: Generator, compared: Sequence[Compared], transcript: Transcript) -> list[str]:
    """What is still to be asked, each once."""
    every = dict.fromkeys(asked for one in compared for asked in one.prompts)
    return [asked for asked in every if transcript.answer(judge, asked) is None]


def judged(judge: Generator, compared: Sequence[Compared], transcript: Transcript) -> dict[str, Any]:
    """Ask what was not asked yet, in both orders, and count (``verdicts.counted``); ``refused`` are those verdicts that
    the judge would not give, or had no room for, and that are asked for again next time.

    Raises:
        RunError: the judge cannot be asked any more; what it said is kept.
    """
    waiting = open_prompts(judge, compared, transcript)
    requests = (Request(number, 0, asked, Stream(0) / "judge" / number) for number, asked in enumerate(waiting))
    with bar("verdicts", len(waiting)) as progress:
        for answers in judge.answers(requests):
            for one in answers:
                if one.text is not None:
                    transcript.add(judge, one.request.prompt, one.text)
                progress.advance()
    found = counted(JudgedPair(*(_ratings(judge, asked, transcript) for asked in one.prompts)) for one in compared)
    refused = sum(transcript.answer(judge, asked) is None for one in compared for asked in one.prompts)
    return found | {"unparsed": found["unparsed"] - refused, "refused": refused}


def _ratings(judge: Generator, asked: str, transcript: Transcript) -> Ratings | None:
    answer = transcript.answer(judge, asked)
    return None if answer is None else parse(answer)
