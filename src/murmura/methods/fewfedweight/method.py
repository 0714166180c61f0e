"""FewFedWeight (Dong et al. 2022, arXiv 2212.08354), as far as its abstract describes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from murmura.aggregation.config import LINEAR
from murmura.aggregation.mean import WeightedMean
from murmura.data.records import Instruction
from murmura.data.tokenising import Tokenised, tokenise_all
from murmura.federation.forecast import Forecast, SitePart
from murmura.federation.traits import AveragingTraits, Combines
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.generation.loops import goes_round, whole
from murmura.measure.text import rouge_l
from murmura.methods.averaging import Averaging
from murmura.methods.fewfedweight.config import FewFedWeightConfig
from murmura.methods.fewfedweight.weights import energy_weights, skill
from murmura.training.adapter import State

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort

_MOST = skill(0) + 1e-9  # as far as machines agree on a logarithm
_ANEW = "what sites train on is written anew in each round, which no control variate can stand for"


class FewFedWeight(Averaging):
    """FewFedWeight, reconstructed from the abstract: its formulas were unavailable, and there is no code.

    What the abstract says: the server's model is broadcast; sites generate pseudo data with it; noisy pseudo data are
    given less weight by their energies; site models are weighted by their performance. What we chose: pseudo data are
    greedy responses to the site's own prompts; the energies are those of an adapter trained on the site's records in
    this round; performance is ROUGE-L on the site's own records, turned into a weight as AdaBoost does. So a site has
    no weight until its answers reach a ROUGE-L of one half; a round without any such site is averaged by the numbers
    of records.
    """

    config: FewFedWeightConfig
    counted = tuple(f"pseudo.{fate}" for fate in ("used", "empty", "cut_off", "no_sentence", "does_not_fit"))
    traits = AveragingTraits(
        label="FewFedWeight",
        single_replies="which of two weights counts for a site's adapter is known only when all have answered",
        combines=Combines(
            rules=LINEAR,
            ranks=False,
            because="which weights count is known only when all sites have answered, and only two means are kept",
            refused={"scaffold": _ANEW},
        ),
        no_public_records="it writes and weighs answers to the sites' own prompts",
    )

    def verbs(self) -> list[str]:
        return ["improve"]

    def forecast(self, part: SitePart) -> Forecast:
        c, own = self.config, len(part.records)
        tokens = c.answer_tokens * (own + min(own, c.error_records))
        return replace(super().forecast(part), steps=part.steps(own, 2 * own), tokens=tokens)

    def contributions(self, server: Server, replies: Iterable[Reply]) -> Iterator[tuple[State, float]]:
        """The mean upload by skill, or by numbers of records where no site has any, as one contribution."""
        by_skill, by_size = WeightedMean(), WeightedMean()
        for reply in replies:
            by_size.add(reply["adapter"], reply["examples"])
            if reply["skill"] > 0:
                by_skill.add(reply["adapter"], reply["skill"])
        server.count({"mean.by_skill" if by_skill.count else "mean.by_size": 1})
        yield (by_skill if by_skill.count else by_size).result(), 1.0

    def _unfit(self, server: Server, verb: str) -> Callable[[Reply], str | None]:
        """As for any average; nor can a reply be with more skill than that of a site that is always right."""
        unfit = super()._unfit(server, verb)

        def unskilled(reply: Reply) -> str | None:
            told = reply.fields.get("skill")
            known = isinstance(told, int | float) and 0 <= told <= _MOST
            return unfit(reply) if known else f"'skill' is no number from 0 to {_MOST:.2f}"

        return unskilled

    @verb(
        releases={
            "adapter": Weights(note="trained on private records and on the global model's answers to their prompts"),
            "skill": Metric("weight in the mean, from ROUGE-L on own records"),
            "examples": Count(),
            "loss": Metric("mean training loss on private and pseudo records"),
            "counts": Metric(
                "how many pseudo responses were used, empty, cut off, without a complete sentence, or too long"
            ),
        }
    )
    def improve(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Train on own records and on weighted pseudo records, and send the adapter with its weight in the mean.

        The loss of a step is ``Σ_i ω_i ℓ_i / tokens`` over the batch, where ℓ_i is the summed token NLL of a record and
        ω_i is 1 for a private one: a weight multiplies the record's share of the batch's token mean.
        """
        own = cohort.own()
        familiar = self.trained(cohort, ask, own)
        pseudo, counts = self._pseudo(cohort, cohort.starts(ask))
        weights = self._weights(cohort, [f.state for f in familiar], pseudo)
        trained = self.trained(
            cohort,
            ask,
            [mine + other for mine, other in zip(own, pseudo, strict=True)],
            "weighted",
            weights=[[1.0] * len(mine) + other for mine, other in zip(own, weights, strict=True)],
        )
        errors = self._errors(cohort, [result.state for result in trained])
        skills = [skill(error) for error in errors]
        return self.answered(cohort, ask, trained, skill=skills, examples=cohort.sizes, counts=counts)

    def _pseudo(self, cohort: Cohort, writers: Sequence[State]) -> tuple[list[list[Tokenised]], list[dict[str, int]]]:
        """Each site's prompts with the global model's greedy responses, and what became of these.

        Writing stops where it goes round in circles, and a response that was cut off keeps its complete sentences, as
        in FewFedPIT: the two are compared with each other, and should not differ in how their texts are cleaned.
        """
        bench = cohort.runtime
        flat = [(k, record) for k, site in enumerate(cohort.sites) for record in site.records]
        items = bench.tokenise_fitting(record for _, record in flat)
        written = bench.write(
            [writers[k] for k, _ in flat],
            [item.ids[: item.start] for item in items],
            [self.config.answer_tokens] * len(flat),
            halt=goes_round,
            description="write pseudo responses",
        )
        answers: list[list[Instruction]] = [[] for _ in cohort.sites]
        counts: list[Counter[str]] = [Counter() for _ in cohort.sites]
        for (k, record), text in zip(flat, written, strict=True):
            response = whole(text.text, text.finished)
            counts[k]["pseudo.cut_off"] += not text.finished
            if response:
                answers[k].append(replace(record, output=response))
            else:
                counts[k]["pseudo.empty" if text.finished else "pseudo.no_sentence"] += 1
        pseudo: list[list[Tokenised]] = []
        for records, count in zip(answers, counts, strict=True):
            found = tokenise_all(records, bench.template, bench.tokenizer, bench.max_length)
            count.update({"pseudo.used": len(found.items), "pseudo.does_not_fit": found.dropped})
            pseudo.append(found.items)
        return pseudo, [dict(+count) for count in counts]

    def _weights(
        self, cohort: Cohort, judges: Sequence[State], pseudo: Sequence[Sequence[Tokenised]]
    ) -> list[list[float]]:
        """λ·ω_i of each site's pseudo records."""
        c = self.config
        energies = cohort.runtime.energies(
            [judge for judge, items in zip(judges, pseudo, strict=True) for _ in items],
            [item for items in pseudo for item in items],
            temperature=c.temperature,
        )
        weights, start = [], 0
        for items in pseudo:
            own = energies[start : start + len(items)]
            start += len(items)
            weights.append([c.pseudo_weight * w for w in energy_weights(own, c.weight_temperature, c.largest_weight)])
        return weights

    def _errors(self, cohort: Cohort, adapters: Sequence[State]) -> list[float]:
        """1 − mean ROUGE-L of each adapter's greedy answers to some of its site's own records."""
        bench = cohort.runtime
        chosen = [
            stream.python().sample(site.records, min(self.config.error_records, site.size))
            for site, stream in zip(cohort.sites, cohort.streams("error"), strict=True)
        ]
        flat = [(k, record) for k, records in enumerate(chosen) for record in records]
        items = bench.tokenise_fitting(record for _, record in flat)
        written = bench.write(
            [adapters[k] for k, _ in flat],
            [item.ids[: item.start] for item in items],
            [self.config.answer_tokens] * len(flat),
            description="own answers",
        )
        scores: list[list[float]] = [[] for _ in chosen]
        for (k, record), text in zip(flat, written, strict=True):
            scores[k].append(rouge_l(text.text, record.output))
        return [1 - sum(own) / len(own) for own in scores]
