"""POPri (Hou et al. 2025, arXiv 2504.16438): sites' votes tune the generator, by preferences among what it has written.

A round's candidates are what the generator, as tuned so far, writes for prompts that show public texts. Sites vote for
them as in any PrE-Text, and all that follows comes of the noisy votes, of public texts and of the run's randomness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from murmura.data.tokenising import Tokenised
from murmura.errors import RunError
from murmura.methods.pretext import population
from murmura.methods.pretext.config import Tuning
from murmura.methods.pretext.evolution import Evolution, starting
from murmura.methods.pretext.generator import TUNED, bench_of, local
from murmura.progress import phase
from murmura.streams import Stream
from murmura.synthesis.expansion import prompt_of
from murmura.synthesis.generators import Answer, Request
from murmura.synthesis.prompts import STOP, mended, read_sample
from murmura.training.adapter import State
from murmura.training.config import LocalTraining
from murmura.training.loop import NonFiniteLoss, Trained, train
from murmura.training.preference import Pair, PreferenceStep, Reference

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime

SHOWN, PAIRS = "shown", "pairs"
"""In the server's store: the public texts that prompts show; and a list for each round, of pairs as texts with their
noisy votes: chosen, rejected, votes of the one, votes of the other."""


@dataclass(frozen=True)
class WrittenText:
    """What the generator has written for a prompt.

    Attributes:
        text: in one line.
        ends: it came to its end, and was not cut.
    """

    prompt: str
    text: str
    ends: bool


class Popri(Evolution):
    """The generator of a run, round after round; see ``Evolution``."""

    kept: ClassVar[tuple[str, ...]] = (PAIRS,)

    def round(self, round: int) -> None:
        """One round: the generator writes, sites vote, and the generator is tuned (Algorithm 1)."""
        c, server = self.config, self.server
        if round == 1:
            server.store[SHOWN] = starting(c, server)
        groups = self._written(round)
        candidates = [candidate for group in groups for candidate in group]
        encoder = server.runtime.resources.encoder("encoder")
        where = population.places(encoder, [[candidate.text] for candidate in candidates])
        votes, sigma = self.votes(where, round)
        if c.tells_distance:
            self._tell_distance(where)
        ends = np.cumsum([0, *map(len, groups)]).tolist()
        places = [range(*two) for two in pairwise(ends)]
        pairs = preferred(votes, places, c.rejected_rank)
        if pairs:
            self._tune([(candidates[chosen], candidates[rejected]) for chosen, rejected in pairs], round)
        else:
            server.event(
                "no text has more votes than another one, so the votes say nothing: the generator stays as it is"
            )
        own = [[candidates[a].text, candidates[b].text, float(votes[a]), float(votes[b])] for a, b in pairs]
        server.store[PAIRS] = [*server.store[PAIRS], own]
        for name, value in (("candidates", len(candidates)), ("pairs", len(pairs)), ("vote_noise", sigma)):
            server.note(name, value)

    def _written(self, round: int) -> list[list[WrittenText]]:
        """The different texts that the generator writes for each prompt, of those prompts that can make a pair."""
        c, stream, seeds = self.config, self.server.stream / "candidates" / round, self.server.store[SHOWN]
        different, count = len(set(seeds)), c.candidates_per_prompt
        requests = (
            Request(number * count + place, 0, prompt, stream / number / place)
            for number in range(c.prompts)
            for prompt in [prompt_of(seeds, different, stream / number / "seeds")]
            for place in range(count)
        )
        found: list[dict[str, WrittenText]] = [{} for _ in range(c.prompts)]
        faults = Counter[str]()
        with phase("generate"):
            generator = local(c, self.server.runtime, self.server.store.get(TUNED))
            for answers in generator.answers(requests):
                for answer, candidate in zip(answers, self._read(answers), strict=True):
                    own = found[answer.request.sample // count]
                    if candidate is None or candidate.text in own:
                        faults["unusable" if candidate is None else "repeated"] += 1
                    else:
                        own[candidate.text] = candidate
        self.server.count({f"candidates.{fault}": times for fault, times in faults.items()})
        groups = [list(own.values()) for own in found if len(own) >= c.rejected_rank]
        if not groups:
            what = f"for none of {c.prompts} prompts has the generator written {c.rejected_rank} different texts"
            why = ", ".join(f"{times} {fault}" for fault, times in faults.most_common())
            fix = "Use another generator, let it write more (method.sample_tokens), or set method.torn = 'kept'."
            raise RunError(f"{what} ({why})", where=f"round {round}", fix=fix)
        return groups

    def _read(self, answers: Sequence[Answer]) -> list[WrittenText | None]:
        """Answers as candidates of at most ``text_tokens`` tokens; None of what cannot be used."""
        c, mends = self.config, self.config.torn == "mended"
        read = [read_sample(answer.text or "", answer.finished) for answer in answers]
        whole = ["" if one.fault else one.text if one.finished or not mends else mended(one.text) for one in read]
        short = population.shortened(whole, self._bench.tokenizer, c.text_tokens, mended=mends)
        return [
            WrittenText(answer.request.prompt, text, ends=one.finished and text == one.text) if text else None
            for answer, one, text in zip(answers, read, short, strict=True)
        ]

    def _tune(self, pairs: Sequence[tuple[WrittenText, WrittenText]], round: int) -> None:
        """Tune the generator on a round's pairs, from where the last round left it."""
        server, bank = self.server, self._bench.bank
        start: State = server.store.get(TUNED) or bank.initial(server.stream / "generator")
        with phase("train"):
            try:
                result = tuned(
                    self._bench, tokenised(self._bench, pairs), start, self.config.tuning, self._stream(round)
                )
            except NonFiniteLoss as error:
                where, fix = f"round {round}, tuning the generator", "Lower method.tuning.lr, and start again."
                raise error.told(where, fix) from None
        server.store[TUNED] = result.state
        server.note("tuning_loss", result.loss or 0.0)

    def _stream(self, round: int) -> Stream:
        return self.server.stream / "tuning" / round

    @property
    def _bench(self) -> ModelRuntime:
        return bench_of(self.config, self.server.runtime)


def preferred(votes: npt.NDArray[np.float64], groups: Sequence[Sequence[int]], rank: int) -> list[tuple[int, int]]:
    """A pair of each prompt: the text with the most votes, and the one that is so-and-so-many-th best (Algorithm 1).

    Texts are told apart by their places and not by what they say. Of equally many votes the first text counts as
    better, but no text is preferred to one with as many: votes that say nothing make no pair.

    Args:
        votes: of each text, noise included.
        groups: the places of each prompt's texts.
        rank: ℓ, from 2; a prompt with fewer texts makes no pair.

    Returns:
        (chosen, rejected), by their places, in the order of the prompts.
    """
    pairs = []
    for group in groups:
        if len(group) < rank:
            continue
        order = sorted(group, key=lambda place: -votes[place])
        chosen, rejected = order[0], order[rank - 1]
        if votes[chosen] > votes[rejected]:
            pairs.append((chosen, rejected))
    return pairs


def tokenised(bench: ModelRuntime, pairs: Sequence[tuple[WrittenText, WrittenText]]) -> list[Pair]:
    """Pairs as the generator reads them: each text behind the prompt that it was written for, and what it ended with
    there, the header of the next one, if it came to its end."""
    end, context = STOP[0], bench.context

    def read(candidate: WrittenText) -> Tokenised:
        prompt = bench.prompt_ids(candidate.prompt)
        written = candidate.text + (end if candidate.ends else "")
        ids: Any = bench.tokenizer(written, add_special_tokens=False, verbose=False)["input_ids"]
        return Tokenised([*prompt, *ids][:context], len(prompt), truncated=False)

    return [Pair(read(chosen), read(rejected)) for chosen, rejected in pairs]


def tuned(bench: ModelRuntime, pairs: Sequence[Pair], start: State, how: Tuning, stream: Stream) -> Trained:
    """What the generator's adapter comes to on pairs, by DPO against the generator as it was loaded.

    Raises:
        NonFiniteLoss: the loss is no longer finite.
    """
    options = LocalTraining(
        lr=how.lr,
        schedule="constant",
        batch_size=how.batch_size,
        epochs=how.epochs,
        dpo_beta=how.beta,
        tokens_per_pass=bench.training.tokens_per_pass,
        precision=bench.training.precision,
    )
    step = partial(PreferenceStep, reference=Reference())
    told = "tune the generator"
    return train(bench.bank, [pairs], [start], options, how.lr, [stream], step=step, description=told)[0]
