"""What the texts that a run has made give away, and how diverse they are: how close each comes to a private record in
its wording, and distinct-n.

A text on the same subject has words in common with a record that nobody copied. So it is compared with records that no
site had, too, as many of both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from murmura.data.records import Instruction
from murmura.errors import CheckpointError, MurmuraError
from murmura.federation.site.site import WRITTEN
from murmura.federation.site.store import SiteStore
from murmura.measure.text import References, distinct
from murmura.methods.fewfedpit.synthetic import KEPT
from murmura.progress import bar
from murmura.runs import names
from murmura.runs.audit import QUANTILES, Synthetic

if TYPE_CHECKING:
    from murmura.audit.subject import Subject
    from murmura.runs.folder import RunFolder
    from murmura.streams import Stream

_LATEST = 10**9  # a round that no run comes to
_NOT_KEPT = (
    "The synthetic records that sites were trained on were not compared with theirs: sites keep them only with "
    "`accumulate = true`."
)


def compared(
    what: Subject, folder: RunFolder, most: int, missing: list[str]
) -> tuple[list[Synthetic], list[dict[str, Any]]]:
    """All lots of texts that the run has left, and each text's nearness as a line for the run's owner.

    Args:
        what: the run.
        folder: of the run.
        most: texts of each lot; of more, so many are drawn at random.
        missing: what cannot be done is added here, in a sentence.
    """
    found: list[Synthetic] = []
    lines: list[dict[str, Any]] = []
    lots = list(_lots(what, folder, missing))
    if not lots:  # as of preferences, which no method writes texts after
        return found, lines
    own = [record_text(record) for records in what.members.values() for record in records]
    others = [record_text(record) for record in what.others]
    for kind, texts in lots:
        stream = what.stream / "audit" / "synthetic" / kind
        chosen = texts if len(texts) <= most else stream.python().sample(texts, most)
        one, near = synthetic(kind, chosen, own, others, stream)
        found.append(one)
        scored = zip(chosen, near, strict=True)
        lines += [{"target": f"texts, {kind}", "text": text, "rouge": score} for text, score in scored]
    return found, lines


def record_text(record: Any) -> str:
    """All the wording of a record."""
    return f"{record.question}\n{record.output}" if isinstance(record, Instruction) else str(record.text)


def synthetic(
    kind: str, texts: Sequence[str], own: Sequence[str], others: Sequence[str], stream: Stream
) -> tuple[Synthetic, list[float]]:
    """How close texts come to private ones, and how diverse they are.

    Args:
        kind: a key of ``runs.audit.SYNTHETIC``.
        texts: synthetic ones, at least one.
        own: the sites' own, at least one.
        others: that no site had, at least one.
        stream: decides which of the larger lot are left out where as many of both are compared.

    Returns:
        Figures, and of each text the largest ROUGE-L with any of the sites' own.
    """
    same, rng = min(len(own), len(others)), stream.python()
    lots = [References(own), *(References(rng.sample(list(lot), same)) for lot in (own, others))]
    near = np.empty((len(texts), len(lots)))
    with bar("comparing texts", len(texts)) as progress:
        for place, text in enumerate(texts):
            near[place] = [lot.best(text) for lot in lots]
            progress.advance()
    fewer = min(len(texts), len(own))
    diverse = [tuple(distinct(rng.sample(list(lot), fewer), n) for n in (1, 2)) for lot in (texts, own)]
    return Synthetic(
        kind,
        len(texts),
        len(own),
        tuple(float(value) for value in np.quantile(near[:, 0], QUANTILES)),
        same,
        float(near[:, 1].mean()),
        float(near[:, 2].mean()),
        fewer,
        diverse[0],
        diverse[1],
    ), [float(value) for value in near[:, 0]]


def _lots(what: Subject, folder: RunFolder, missing: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Texts of each kind that there are, each different one once."""
    written: list[str] = []
    trained: list[str] = []
    for site in what.records:
        try:
            store = SiteStore(folder.private_of(site), site).rewind(_LATEST)
        except MurmuraError as error:
            missing.append(f"What was written at site {site} was not compared with records: {error}")
            continue
        written += [record_text(Instruction(*fields)) for fields in store.get(WRITTEN, [])]
        trained += [record_text(Instruction(*fields)) for fields in store.get(KEPT, [])]
    method = what.experiment.method
    if getattr(method, "substitute", None) is not None:
        trained = []  # public records in place of synthetic ones
    elif getattr(method, "accumulate", None) is False:
        missing.append(_NOT_KEPT)
    dataset = folder.path / names.OUTCOMES / names.DATASET
    lots = {"written": written, "drafts": trained}
    lots |= {name: _left(dataset / f"{file}.jsonl") for name, file in (("texts", "train"), ("seeds", "seeds"))}
    yield from ((kind, list(dict.fromkeys(texts))) for kind, texts in lots.items() if texts)


def _left(path: Path) -> list[str]:
    """The texts of a file of the data set that a run has left; none where there is none."""
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
        texts = [str(json.loads(line)["text"]) for line in lines if line.strip()]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        fix = "Restore it, or take the folder of the data set away."
        raise CheckpointError(f"this holds no texts of the run ({error})", where=str(path), fix=fix) from None
    return [text for text in texts if text.strip()]
