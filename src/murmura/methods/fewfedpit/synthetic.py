"""Each site's synthetic records of a round: drafted and judged, or public ones that the server sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING, get_args

from murmura.data.records import Instruction
from murmura.data.tokenising import Tokenised, tokenise_all
from murmura.drafting.draft import Drafts, Order, draft
from murmura.drafting.rejections import counted
from murmura.methods.fewfedpit.config import SyntheticConfig
from murmura.methods.fewfedpit.rejections import WHY, Rejection
from murmura.methods.fewfedpit.select import Opinion, choose, judge, standing
from murmura.model_runtime import ModelRuntime
from murmura.runs.schema import ShownDraft
from murmura.training.adapter import State

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site

Synthetic = tuple[list[list[Tokenised]], list[dict[str, int]]]
"""For each site its synthetic records as token ids, and how many drafts met which rejection."""

WITHOUT = "sites.without_synthetic"
"""The count that tells whether a site was left without synthetic records."""

COUNTED = (
    *(counted(rejection) for rejection in (*get_args(Rejection), "outranked", "kept")),
    "prompts.shortened",
    "kept.ratio_of_1_or_more",
    "sites.few_records",
    WITHOUT,
)
"""All that may be counted."""

KEPT = "synthetic"  # in a site's store


def generated(cohort: Cohort, writers: Sequence[State], judges: Sequence[State], config: SyntheticConfig) -> Synthetic:
    """Draft with each site's writer, rank with its judge, keep the best M."""
    orders = [
        Order(site.records, _earlier(site), writer, stream)
        for site, writer, stream in zip(cohort.sites, writers, cohort.streams("draft"), strict=True)
    ]
    drafts = draft(cohort.runtime, orders, config.drafting)
    opinions = judge(cohort.runtime, judges, [d.records for d in drafts], config.scorer)
    chosen, counts = [], []
    for site, drafted, found, stream in zip(cohort.sites, drafts, opinions, cohort.streams("select"), strict=True):
        choice = choose(config.scorer, found, config.keep, stream.python())
        chosen.append([drafted.records[index] for index in choice.kept])
        shown = max(config.instructions_shown, config.examples_shown)
        if config.drafts_shown:
            site.show(_shown(cohort.round, drafted, found, choice.kept, config))
        counts.append(drafted.counts + choice.counts + Counter({"sites.few_records": int(site.size < shown)}))
    return _finish(cohort, chosen, counts, config)


def _shown(
    round: int, drafted: Drafts, opinions: Sequence[Opinion | None], kept: Sequence[int], config: SyntheticConfig
) -> list[ShownDraft]:
    """Some that were kept and some that were not, with the reason: of each reason one before any has two."""
    told = [ShownDraft(round, text, False, WHY[rejection]) for text, rejection in drafted.dropped]
    for place, (record, opinion) in enumerate(zip(drafted.records, opinions, strict=True)):
        why = standing(config.scorer, opinion, place in kept)
        told.append(ShownDraft(round, "\n".join(filter(None, astuple(record))), place in kept, why))
    seen: Counter[str] = Counter()
    ranked = []
    for one in told:
        ranked.append((seen[one.why] if not one.kept else 0, one))
        seen[one.why] += 1
    ranked.sort(key=lambda pair: pair[0])
    lots = [[one for _, one in ranked if one.kept is kept] for kept in (True, False)]
    return [one for lot in lots for one in lot[: config.drafts_shown]]


def received(cohort: Cohort, public: Sequence[Sequence[list[str]]], config: SyntheticConfig) -> Synthetic:
    """The public records that the server has drawn for each site; see ``Substitute``."""
    chosen = [[Instruction(*fields) for fields in own] for own in public]
    return _finish(cohort, chosen, [Counter() for _ in cohort.sites], config)


def _finish(
    cohort: Cohort, chosen: list[list[Instruction]], counts: list[Counter[str]], config: SyntheticConfig
) -> Synthetic:
    tokenised: list[list[Tokenised]] = []
    for site, records, count in zip(cohort.sites, chosen, counts, strict=True):
        if config.accumulate:
            records = list(dict.fromkeys([*_earlier(site), *records]))
            site.store[KEPT] = [list(astuple(record)) for record in records]
        tokenised.append(_tokenised(cohort.runtime, records))
        count[WITHOUT] = int(not tokenised[-1])
    return tokenised, [dict(+count) for count in counts]


def _earlier(site: Site) -> list[Instruction]:
    """Synthetic records that the site has kept from earlier rounds."""
    return [Instruction(*fields) for fields in site.store.get(KEPT, [])]


def _tokenised(runtime: ModelRuntime, records: Sequence[Instruction]) -> list[Tokenised]:
    # Not through the runtime's memory: these records are not seen again.
    return tokenise_all(records, runtime.template, runtime.tokenizer, runtime.max_length).items
