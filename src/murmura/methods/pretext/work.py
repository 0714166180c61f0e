"""What a run does besides training at the sites: how much of it there is, and a way to try it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from murmura.federation.forecast import Work, few
from murmura.methods.pretext.config import PretextConfig, in_proportion
from murmura.streams import Stream
from murmura.training.config import LocalTraining

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime

_TRIED = Stream(0) / "trial"
_FEW = 8  # texts that are tried together where a text takes long, and it matters little how many there are


def work(config: PretextConfig, records: Sequence[int], training: LocalTraining) -> Iterator[Work]:
    """All of a run's. Answers that cannot be used are asked for again, which is not foreseen.

    Args:
        records: of each site.
    """
    c, own = config, sum(min(count, config.texts_per_site) for count in records)
    if c.tunes:
        stood = c.candidates * c.rounds
        yield Work("candidates to write", "writing", stood, few(partial(_expand, c), stood), at_most=True)
        yield Work("texts to embed", "embedding", stood + own, few(_embed, stood + own, _FEW), at_most=True)
        tuned = c.prompts * c.rounds
        yield Work(
            "pairs to tune on", "training", tuned * c.tuning.epochs, few(partial(_tune, c), tuned, _FEW), at_most=True
        )
    elif c.seeds == "voted":
        stood = c.population * c.rounds
        varied, embedded = stood * (c.lookahead + 1) - c.population, stood * max(c.lookahead, 1) + own
        together = _FEW if c.variation == "mask-fill" else None
        yield Work("texts to vary", "writing", varied, few(partial(_vary, c), varied, together))
        yield Work("texts to embed", "embedding", embedded, few(_embed, embedded, _FEW))
    if c.seeds == "paraphrased":
        together = min(max(records, default=1), c.texts_per_site, _FEW)  # of one site
        yield Work("texts to paraphrase", "writing", own, few(partial(_paraphrase, c), own, together))
    if c.samples and c.endpoint is None:
        yield Work("texts to write", "writing", c.samples, few(partial(_expand, c), c.samples))
    elif c.samples:
        yield Work("texts to ask the endpoint for", "writing", c.samples, None)
    lived = c.rounds * (c.kept if c.selection == "rank" else c.population)  # those drawn twice may be one
    seeds = {"voted": lived, "public": c.population, "private": sum(records), "paraphrased": own}
    last = c.samples or seeds[c.seeds]
    counts = [*{count for count in c.curve if count < last}, last]
    read = sum(_read(count, in_proportion(training, count, last)) for count in counts)
    # Texts that are empty are not trained on.
    yield Work("texts to train on", "training", read, few(_train, read, _FEW), at_most=True)


def _read(count: int, training: LocalTraining) -> int:
    """How many texts a training on so many of them goes through."""
    if training.max_steps is None:
        return count * training.epochs
    return training.max_steps * min(count, training.batch_size)


def _texts(records: Sequence[Any], count: int) -> list[str]:
    return [record.text for record in islice(cycle(records), count)]


def _streams(count: int) -> list[Stream]:
    return [_TRIED / place for place in range(count)]


def _vary(config: PretextConfig, bench: ModelRuntime, records: Sequence[Any], count: int) -> None:
    from murmura.methods.pretext.variations import variation_of

    variation_of(config, bench).vary(_texts(records, count), _streams(count))


def _embed(bench: ModelRuntime, records: Sequence[Any], count: int) -> None:
    bench.resources.encoder("encoder").embed(_texts(records, count))


def _paraphrase(config: PretextConfig, bench: ModelRuntime, records: Sequence[Any], count: int) -> None:
    """Of one site; between any bounds: no token is likelier to end a text than with others."""
    from murmura.methods.pretext.paraphrases import OPTION
    from murmura.privacy.entropy import OSEntropy
    from murmura.synthesis.dp_prompt import DPPrompt, paraphrased

    how = DPPrompt(config.paraphrase_tokens, 0.0, 1.0, 1.0)
    paraphrased(bench.another(OPTION), [_texts(records, count)], how, OSEntropy())


def _expand(config: PretextConfig, bench: ModelRuntime, records: Sequence[Any], count: int) -> None:
    from murmura.methods.pretext.generator import local
    from murmura.synthesis.generators import Request
    from murmura.synthesis.prompts import SHOWN, six_samples

    prompt = six_samples(_texts(records, SHOWN))
    for _ in local(config, bench).answers(Request(place, 0, prompt, _TRIED / place) for place in range(count)):
        pass


def _tune(config: PretextConfig, bench: ModelRuntime, records: Sequence[Any], count: int) -> None:
    """One step on so many pairs; what the reference says of them is a part of it."""
    from murmura.methods.pretext.generator import bench_of
    from murmura.methods.pretext.popri import WrittenText, tokenised, tuned
    from murmura.synthesis.prompts import SHOWN, six_samples

    texts = _texts(records, 2 * count)
    prompt, own = six_samples(_texts(records, SHOWN)), bench_of(config, bench)
    one = [WrittenText(prompt, text, ends=False) for text in texts]
    pairs = list(zip(one[::2], one[1::2], strict=True))
    how = config.tuning.model_copy(update={"batch_size": count, "epochs": 1})
    tuned(own, tokenised(own, pairs), own.bank.initial(_TRIED), how, _TRIED)


def _train(bench: ModelRuntime, records: Sequence[Any], count: int) -> None:
    from murmura.training.loop import train

    items = list(islice(cycle(bench.tokenise_fitting(records)), count))
    options = bench.training.model_copy(update={"batch_size": count, "max_steps": 1})
    start, step = bench.initial(_TRIED), bench.step
    train(bench.bank, [items], [start], options, options.lr, [_TRIED], step=step, description="try training")
