"""Utility on public held-out records: response loss, and ROUGE-L of greedy answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmura.data.records import Instruction
from murmura.generation.prefix import common_prefix
from murmura.generation.scoring import TokenScores
from murmura.measure import guessing
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.statistics import Estimate
from murmura.measure.text import rouge_l, token_f1
from murmura.model_runtime import ModelRuntime
from murmura.progress import phase
from murmura.training.adapter import State


@dataclass(frozen=True)
class Continuation:
    """How an adapter continues one prompt, up to the length of its reference.

    Args:
        rouge: ROUGE-L F1 against the reference.
        exact: whether word for word.
        prefix: how many of the reference's first tokens are matched before the first difference.
        f1: F1 of words (``text.token_f1``).
    """

    rouge: float
    exact: bool
    prefix: int
    f1: float


def continuations(
    runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Sequence[Instruction]], description: str
) -> list[dict[str, float]]:
    """Of each adapter what ``continued`` gives, on average over its records, and how many these are (``records``)."""
    return [_means(own) for own in continued(runtime, adapters, records, description)]


def continued(
    runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Sequence[Instruction]], description: str
) -> list[list[Continuation]]:
    """For each adapter: prompt it with its records as in training and compare what it writes with their outputs.

    Greedy, up to the reference's own number of tokens (Carlini et al. 2023, Nasr et al. 2023). Records that do not fit
    are left out.
    """
    pairs = [(k, record) for k, shard in enumerate(records) for record in shard]
    found = runtime.reading.tokenise([record for _, record in pairs])
    flat = [pair for pair, item in zip(pairs, found, strict=True) if item is not None]
    items = [item for item in found if item is not None]
    references = [item.ids[item.start : -1] for item in items]
    written = runtime.write(
        [adapters[k] for k, _ in flat],
        [item.ids[: item.start] for item in items],
        [len(reference) for reference in references],
        description=description,
    )
    rows: list[list[Continuation]] = [[] for _ in records]
    for (k, record), reference, text in zip(flat, references, written, strict=True):
        same = common_prefix(text.ids, reference)
        scores = rouge_l(text.text, record.output), token_f1(text.text, record.output)
        rows[k].append(Continuation(scores[0], same == len(reference), same, scores[1]))
    return rows


def _means(rows: Sequence[Continuation]) -> dict[str, float]:
    count = max(len(rows), 1)
    return {
        "rouge": sum(one.rouge for one in rows) / count,
        "exact": sum(one.exact for one in rows) / count,
        "prefix": sum(one.prefix for one in rows) / count,
        "records": len(rows),
    }


def _over_texts(key: str, found: Estimate) -> dict[str, float]:
    """A mean over texts, with how many they are and its 95 % interval; alone where it has none."""
    if found.low is None or found.high is None:
        return {key: found.mean}
    return {key: found.mean, f"{key}_n": found.n, f"{key}_low": found.low, f"{key}_high": found.high}


def _guessed(runtime: ModelRuntime, public: EvaluationSet) -> dict[str, float]:
    """What the loss comes to where whole answers are given their shares among the held-out ones, if these repeat."""
    items = [item for item in runtime.reading.tokenise(public.heldout) if item is not None]
    answers = [tuple(item.ids[item.start :]) for item in items]
    known = guessing.loss(answers, [len(answer) for answer in answers])
    return {} if known is None else {"heldout_loss_guess": known}


def losses(runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State]) -> list[float]:
    """Mean token NLL of each adapter in nats, over all held-out records."""
    return [float(scores.nll.astype(np.float64).mean()) for scores in tokens(runtime, public, adapters)]


def tokens(runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State]) -> list[TokenScores]:
    """How each adapter finds the tokens of all held-out records, one after the other."""
    found = public.reader.read(runtime, adapters, [public.heldout] * len(adapters))
    return [
        TokenScores(np.concatenate([one.nll for one in own]), np.concatenate([one.first for one in own]))
        for own in found
    ]


def fall(runtime: ModelRuntime, public: EvaluationSet, adapter: State) -> dict[str, float]:
    """By how much the loss of an adapter is lower than before training (``heldout_fall``, nats), with how many records
    tell and the 95 % interval over them, which are paired. Of one record, or of records that all tell the same, no
    interval: it would be certain of anything.

    The loss is a sum of nats over a sum of tokens, so its error is that of a ratio (Cochran 1977, *Sampling
    Techniques*, theorem 2.5), with Student's t. Several records of one person are taken to be independent.
    """
    with phase("evaluate"):
        before, after = public.reader.read(runtime, [runtime.origin, adapter], [public.heldout] * 2)
    fell = np.array([(one.nll.astype(np.float64) - two.nll).sum() for one, two in zip(before, after, strict=True)])
    lengths = np.array([len(one.nll) for one in before])
    mean = float(fell.sum() / lengths.sum())
    found = Estimate.of(((fell - mean * lengths) / lengths.mean() + mean).tolist())
    return _over_texts("heldout_fall", found)


def measure(
    runtime: ModelRuntime, public: EvaluationSet, adapters: Sequence[State], *, completes: bool = False
) -> list[dict[str, Any]]:
    """For each adapter its figures by name: loss over all held-out records, and where ``public.sample`` is not 0
    continuations of the first so many of them and, if it ``completes`` them, of the non-members. All are written in
    shared batches."""
    with phase("evaluate"):
        found = losses(runtime, public, adapters)
        # Held-out records that serve as non-members too are continued once.
        apart = completes and public.nonmembers is not public.heldout
        kinds = [public.heldout, public.nonmembers] if apart else [public.heldout]
        samples = [kind[: public.sample] for _ in adapters for kind in kinds]
        rows = continued(runtime, [a for a in adapters for _ in kinds], samples, "held-out answers")
    written = list(map(_means, rows))
    figures: list[dict[str, Any]] = []
    guessed = _guessed(runtime, public)
    for k, loss in enumerate(found):
        others = written[(k + 1) * len(kinds) - 1]
        own = rows[k * len(kinds)]
        figures.append({"heldout_loss": loss, **guessed})
        if own:
            figures[-1] |= _over_texts("heldout_rouge", Estimate.of_shares([one.rouge for one in own]))
            figures[-1] |= _over_texts("heldout_f1", Estimate.of_shares([one.f1 for one in own]))
        if completes:
            figures[-1] |= {f"nonmember_{name}": others[name] for name in ("rouge", "exact", "prefix")}
    return figures
