"""Choosing among drafts by how the judge finds their responses (FewFedPIT, instruction-following score)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from murmura.data.records import Instruction
from murmura.data.tokenising import Tokenised, tokenise_all, tokenise_response
from murmura.drafting.rejections import counted
from murmura.methods.fewfedpit.config import Scorer
from murmura.methods.fewfedpit.rejections import WHY, Rejection
from murmura.model_runtime import ModelRuntime
from murmura.training.adapter import State
from murmura.units import decimal


@dataclass(frozen=True)
class Opinion:
    """What the judge thinks of a response y to a prompt x.

    Args:
        given: L(y|x), mean token NLL in nats after the whole prompt; NaN where it was not asked for.
        alone: L(y), the same after nothing but the template's response header; NaN where it was not asked for.
    """

    given: float
    alone: float

    @property
    def ratio(self) -> float:
        """IFS, L(y|x) / L(y) (Zhang et al. 2024): below 1 where the prompt makes the response likelier. Infinite where
        it is not a number."""
        ratio = self.given / self.alone if self.alone > 0 else math.inf
        return ratio if math.isfinite(ratio) else math.inf


@dataclass(frozen=True)
class KeptDrafts:
    """Indices of the drafts to keep, ascending, and how many drafts met which rejection."""

    kept: list[int]
    counts: Counter[str]


def choose(scorer: Scorer, opinions: Sequence[Opinion | None], keep: int, rng: random.Random) -> KeptDrafts:
    """Keep the best ``keep`` of one site's drafts.

    IFS (Zhang et al. 2024) keeps the lowest ratios. IFD (Li et al. 2024) keeps the highest, but takes those above 1,
    which its authors drop, after all others. PPL keeps the lowest exp(L(y|x)), which ranks as L(y|x) does. No scorer
    drops a draft that another one would keep, unless its score is not a number: so scorers are compared at the same
    M. How many responses were kept though their prompt makes them no likelier is counted.

    Args:
        opinions: one for each draft; None for one that does not fit the model.
        keep: M.
        rng: for the scorer ``random``.
    """
    counts: Counter[str] = Counter()
    ranks: dict[int, float] = {}
    for index, opinion in enumerate(opinions):
        rank = _rank(scorer, opinion, rng)
        if isinstance(rank, str):
            counts[counted(rank)] += 1
        else:
            ranks[index] = rank
    best = sorted(ranks, key=lambda index: (ranks[index], index))[:keep]
    counts["drafts.outranked"] += len(ranks) - len(best)
    counts["drafts.kept"] += len(best)
    if scorer in ("ifs", "ifd"):
        ratios = [opinion.ratio for index in best if (opinion := opinions[index])]
        counts["kept.ratio_of_1_or_more"] += sum(ratio >= 1 for ratio in ratios)
    return KeptDrafts(sorted(best), counts)


def standing(scorer: Scorer, opinion: Opinion | None, kept: bool) -> str:
    """Why a draft was kept or was not, in words."""
    rank = _rank(scorer, opinion, random.Random())
    if isinstance(rank, str):
        return WHY[rank]
    among = "among the best" if kept else "others ranked before it"
    if scorer == "random" or opinion is None:
        return "drawn at random" if kept else "not drawn"
    if scorer == "ppl":
        return f"{among}: loss of its response {decimal(opinion.given)}"
    return f"{among}: {scorer.upper()} {decimal(opinion.ratio)}"


def _rank(scorer: Scorer, opinion: Opinion | None, rng: random.Random) -> float | Rejection:
    """A draft's place, the lowest first; or why it has none."""
    if opinion is None:
        return "does_not_fit"
    if scorer == "random":
        return rng.random()
    if scorer == "ppl":
        return opinion.given if math.isfinite(opinion.given) else "no_score"
    if opinion.ratio == math.inf:
        return "no_score"
    if scorer == "ifs":
        return opinion.ratio
    return -opinion.ratio if opinion.ratio <= 1 else opinion.ratio


def judge(
    runtime: ModelRuntime, adapters: Sequence[State], drafts: Sequence[Sequence[Instruction]], scorer: Scorer
) -> list[list[Opinion | None]]:
    """L(y|x) and L(y) of each of ``drafts[k]`` under ``adapters[k]`` (Zhang et al. 2024), for what the scorer needs.

    All sites' drafts are scored in the same batches.
    """
    flat = [(k, draft) for k, own in enumerate(drafts) for draft in own]
    fitting = tokenise_all([draft for _, draft in flat], runtime.template, runtime.tokenizer, runtime.max_length)
    full = dict(zip(fitting.kept, fitting.items, strict=True))
    items: list[tuple[int, Tokenised]] = []
    for index, item in full.items():
        if scorer != "random":
            items.append((index, item))
        if scorer in ("ifs", "ifd"):
            alone = tokenise_response(flat[index][1], runtime.template, runtime.tokenizer, runtime.max_length)
            items += [(index, alone)] if alone is not None else []
    scores = runtime.score(
        [adapters[flat[index][0]] for index, _ in items], [item for _, item in items], description="judge drafts"
    )
    losses: dict[int, list[float]] = {index: [] for index in full}
    for (index, _), score in zip(items, scores, strict=True):
        losses[index].append(score.mean)
    opinions: list[list[Opinion | None]] = [[] for _ in drafts]
    for index, (k, _) in enumerate(flat):
        if index not in full:
            opinions[k].append(None)
            continue
        given, alone_loss, *_ = [*losses[index], math.nan, math.nan]
        opinions[k].append(Opinion(given, alone_loss))
    return opinions
