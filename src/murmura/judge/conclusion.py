"""A judgement from its judge to what it leaves in the run folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from murmura.errors import ConfigError
from murmura.judge.judges import LocalJudge
from murmura.judge.judging import Compared, Transcript, judged, open_prompts
from murmura.report.sections.judged import remarks, table
from murmura.runs.folder import RunFolder
from murmura.runs.judgement import BEFORE, HERE, Judgement, Posted
from murmura.runs.record import read
from murmura.synthesis.endpoint import Endpoint
from murmura.synthesis.generators import Generator
from murmura.units import count

_BYTES = 4  # of a token, about, in many scripts
_AT_ONCE = 16  # requests to an endpoint


def begin(
    by: str | None, url: str | None, model: str | None, key: str | None, at_once: int | None, tokens: int
) -> Generator:
    """The judge that options name. One behind an endpoint is asked as a conversation at temperature 0, if it takes one.

    Args:
        at_once: requests to an endpoint that are on their way at the same time; None: a few.
        tokens: most of a verdict.

    Raises:
        ConfigError: they name none, or two.
        ModelError: it cannot be loaded.
    """
    if (by is None) == (url is None):
        what = "no judge is named" if by is None else "--by and --endpoint exclude each other"
        raise ConfigError(what, where="judge", fix="Give --by MODEL, or --endpoint URL with --model NAME.")
    if by is not None:
        if (model, key, at_once) != (None, None, None):
            raise ConfigError("--model, --key and --at-once are for --endpoint", where="--by", fix="Leave them out.")
        return LocalJudge(by, tokens)
    if model is None or url is None:
        raise ConfigError("the server has to be told which model", where="--endpoint", fix="Give --model NAME.")
    return Endpoint(
        url,
        model,
        chat=True,
        temperature=0.0,
        max_tokens=tokens,
        can_lack=("temperature", "top_p"),
        concurrency=at_once or _AT_ONCE,
        most_refused=None,  # what was refused is asked again, and then there may be nothing else to ask
        key_variable=key,
        again="give the same command again",
    )


def conclude(
    run: Path,
    other: Path | None,
    judge: Generator,
    url: str | None,
    compared: Sequence[Compared],
    source: str,
    confirmed: Callable[[str], bool] | None,
    site: str | None = None,
    private: bool = False,
) -> None:
    """Ask what was not asked yet, keep it, and print what it comes to.

    Args:
        url: of the judge's server; None where it is here.
        source: of the questions, in words.
        confirmed: is told what it will cost, and says whether to go on; None to go on.
        site: whose adapter has answered, where sites keep their own.
        private: whether the questions come out of the sites' records.

    Raises:
        ConfigError: it is not to go on.
        CheckpointError: the folder of a run whose answers are sent cannot be written; nothing was asked.
        RunError: the judge cannot be asked any more.
    """
    from rich.console import Console

    from murmura.report.terminal import draw

    name = str(judge.described["model"])
    slug = _slug(other, judge, url is None, site)
    transcript = Transcript(RunFolder(run).verdicts(slug), url or HERE)
    waiting = open_prompts(judge, compared, transcript)
    if waiting and confirmed is not None and not confirmed(costs(waiting, url, int(judge.described["max_tokens"]))):
        raise ConfigError("nothing was asked", where=str(url))
    if waiting and url is not None:
        for answering in filter(None, (run, other)):  # the answers of both are sent
            own = site if RunFolder(answering).sites_with_adapters else None
            RunFolder(answering).note_posted(Posted(url, private, own))
    counts = judged(judge, compared, transcript)
    found = Judgement(
        against=(BEFORE if other is None else other.name) + (f", at site {site}" if site else ""),
        judge=name,
        where=", ".join(transcript.places(judge, compared)) or transcript.place,
        questions=len(compared),
        source=source,
        private=private,
        site=site,
        **counts,
    )
    if found.refused == found.asked and isinstance(judge, Endpoint) and judge.refusal is not None:
        raise judge.refusal
    RunFolder(run).write_judgement(f"{slug}-{_digest(compared)}", found)
    console = Console(highlight=False, markup=False, emoji=False)
    told = table(found)
    console.print(f"{told.title}:")
    console.print(draw(told))
    for sentence in remarks(found, promised=bool(read(run).last.privacy)):
        console.print(sentence)
    console.print(f"Transcript: {transcript.file}")


def costs(prompts: Sequence[str], url: str | None, tokens: int) -> str:
    """What is about to be asked: calls, and about how many tokens go and come at most.

    Args:
        tokens: most of a verdict.
    """
    there = sum(len(one.encode()) for one in prompts) // _BYTES
    return (
        f"{count(len(prompts))} calls of {url}, about {count(there)} tokens to it and at most "
        f"{count(tokens * len(prompts))} back; it sees the questions and both answers"
    )


def _slug(other: Path | None, judge: Generator, here: bool, site: str | None) -> str:
    """A name for files. The digest tells runs apart whose folders have the same name, and judges that are named alike.

    Args:
        here: the judge is a model of this process.
    """
    name = judge.described["model"]
    text = f"{'before' if other is None else other.name}-by-{name}{f'-at-{site}' if site else ''}"
    known = json.dumps([None if other is None else str(other.resolve()), dict(judge.described), here, site])
    kept = "".join(one if one.isalnum() or one in "-._" else "-" for one in text)
    return f"{kept}-{hashlib.sha256(known.encode()).hexdigest()[:8]}"


def _digest(compared: Sequence[Compared]) -> str:
    """Of the questions and both answers to each: what is judged besides does not take the place of this."""
    known = json.dumps([[one.question, one.ours, one.theirs] for one in compared])
    return hashlib.sha256(known.encode()).hexdigest()[:8]
