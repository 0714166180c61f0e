"""Expansion: many new texts after a few seeds (Hou et al. 2024, PrE-Text)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from murmura.errors import RunError
from murmura.progress import bar, phase
from murmura.streams import Stream
from murmura.synthesis.answers import Answers, Line, Texts
from murmura.synthesis.generators import Answer, Generator, Request
from murmura.synthesis.prompts import FAULTS, SHOWN, read_sample, six_samples

_ENOUGH_IN_VAIN = 256  # answers without one that can be used, after which no other will be either


@dataclass(frozen=True)
class Expansion:
    """What has been written.

    Args:
        texts: in the order of their samples, on disk.
        faults: answers that were not used, by why.
        given_up: samples of which there is no text, after all attempts.
    """

    texts: Texts
    faults: Counter[str]
    given_up: int


def expand(
    seeds: Sequence[str],
    samples: int,
    path: Path,
    generator: Generator,
    stream: Stream,
    *,
    whole: bool = False,
    attempts: int = 3,
) -> Expansion:
    """Have ``samples`` texts written, each after three different seeds at random.

    A sample depends on its number alone: ``stream / number / attempt`` says which seeds are shown, and what is drawn.
    An answer that cannot be used is asked for again with other seeds. All answers are kept in a file before more is
    asked for, so that an expansion that was stopped, however that was, goes on where it was: nothing that was answered
    is asked again, and the texts are the same in the end.

    Args:
        seeds: to be shown; one that is there twice is shown twice as often.
        path: of the file of answers, which is made, or continued; its folder exists.
        whole: of an answer that was cut off, only the whole sentences are kept; without one it is not used.
        attempts: at a sample, before it is given up; at most 254.

    Raises:
        RunError: there are no seeds, no answer can be used, or the generator cannot go on.
        CheckpointError: the file cannot be used; see ``Answers``.
    """
    if not seeds:
        raise RunError("there are no seeds, so no text can be written after any", where="expansion")
    with phase("generate"):
        kept = Answers(path, _asked(seeds, generator.described, stream, whole), samples)
        with bar("expand", samples, done=samples - len(kept.missing(attempts))) as progress:
            while len(kept.missing(attempts)):
                for answers in generator.answers(_requests(kept, seeds, stream, attempts)):
                    lines = [_line(answer, whole) for answer in answers]
                    kept.add(lines)
                    progress.advance(sum("text" in line or line["attempt"] + 1 == attempts for line in lines))
                    _require_some(kept)
        _require_some(kept, over=True)
    return Expansion(Texts(path, samples), kept.faults, samples - kept.texts)


def _asked(seeds: Sequence[str], generator: Mapping[str, Any], stream: Stream, whole: bool) -> dict[str, Any]:
    """All that decides which texts are written."""
    digest = hashlib.sha256()
    for part in (six_samples([""] * SHOWN), *seeds):
        data = part.encode(errors="replace")
        digest.update(len(data).to_bytes(8, "big") + data)
    return {
        "set of seeds": digest.hexdigest(),
        "generator": dict(generator),
        "stream": [stream.seed, *stream.path],
        "rule for texts that are cut off": "whole sentences" if whole else "kept",
    }


def _requests(kept: Answers, seeds: Sequence[str], stream: Stream, attempts: int) -> Iterator[Request]:
    """One for each sample that is missing."""
    different = len(set(seeds))
    for sample in map(int, kept.missing(attempts)):
        attempt = kept.attempts(sample)
        own = stream / sample / attempt
        yield Request(sample, attempt, prompt_of(seeds, different, own / "seeds"), own / "tokens")


def prompt_of(seeds: Sequence[str], different: int, stream: Stream) -> str:
    """A prompt that shows three different seeds at random, or all where there are fewer.

    Args:
        different: how many of the seeds are.
    """
    draw, shown = stream.python(), dict[str, None]()
    while len(shown) < min(SHOWN, different):  # who sees a text twice writes it a third time
        shown[draw.choice(seeds)] = None
    return six_samples(list(shown))


def _line(answer: Answer, whole: bool) -> Line:
    line = {"sample": answer.request.sample, "attempt": answer.request.attempt}
    if answer.text is None:
        return line | {"fault": "refused"}
    found = read_sample(answer.text, answer.finished, whole=whole)
    return line | ({"fault": found.fault} if found.fault else {"text": found.text, "finished": found.finished})


def _require_some(kept: Answers, *, over: bool = False) -> None:
    answered = kept.faults.total()
    if (over or answered >= _ENOUGH_IN_VAIN) and answered and not kept.texts:
        why = ", ".join(f"{count}: {FAULTS[fault]}" for fault, count in kept.faults.most_common())  # type: ignore[index]
        fix = f"Use another generator, or let it write more tokens; then move {kept.path} away."
        raise RunError(f"none of {answered} texts can be used ({why})", where="expansion", fix=fix)
