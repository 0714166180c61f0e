"""Letting models write: do they repeat their sites' records, when asked a record's question or nothing in particular?

A better model also comes closer to records that it never saw. So what counts is how much closer it comes to the sites'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from murmura.audit.differences import dealt, nearest, of_means
from murmura.audit.membership import AuditSample
from murmura.generation.sampling import Sampling
from murmura.measure.heldout import continued
from murmura.model_runtime import ModelRuntime
from murmura.runs.audit import Written
from murmura.streams import Stream
from murmura.training.adapter import State


def completed(
    target: str, models: Mapping[str, State], sample: AuditSample, bench: ModelRuntime, most: int, stream: Stream
) -> Written:
    """Records' own prompts, continued greedily (Carlini et al. 2023): ROUGE-L with the true response.

    Args:
        target: whose models these are, a key of ``runs.audit.TARGETS``.
        models: of each site; others are shared out over them.
        sample: instructions.
        bench: with the run's model.
        most: at most so many members, and so many others.
        stream: decides which members.
    """
    every = [(site, record) for site, own in sample.members.items() for record in own]
    members = stream.python().sample(every, min(most, len(every)))
    sites = list(models)
    others = [(sites[k % len(sites)], record) for k, record in enumerate(sample.others[:most])]
    pairs = [*members, *others]
    found = continued(bench, [models[site] for site, _ in pairs], [[record] for _, record in pairs], "completing")
    scores = [own[0].rouge for own in found]
    own, other = scores[: len(members)], scores[len(members) :]
    return _written(target, "record", own, other, of_means(own, other))


def begun(
    target: str,
    models: Mapping[str, State],
    sample: AuditSample,
    bench: ModelRuntime,
    texts: int,
    sampling: Sampling,
    stream: Stream,
) -> Written | None:
    """Template extraction (Wang et al. 2024, arXiv 2409.20135): texts behind nothing but what stands before every
    instruction, and how close each comes to the nearest of the sites' own, by ROUGE-L.

    Each is compared with as many others, drawn at random, so that nearness to the sites' own is not just that of many.

    Args:
        target: whose models these are.
        models: of each site, which write by turns; each text is compared with that site's records, or with those of all
            where they have one model.
        sample: instructions.
        bench: with the run's model.
        texts: how many to write.
        sampling: how.
        stream: decides about texts and others.

    Returns:
        None where the template has nothing before an instruction.
    """
    prompt = bench.prompt_ids(bench.template.opening)
    if not prompt:
        return None
    distinct = {id(model): model for model in models.values()}
    writers = [(model, [s for s in models if models[s] is model]) for model in distinct.values()]
    turns = [writers[k % len(writers)] for k in range(texts)]
    found = bench.write(
        [model for model, _ in turns],
        [prompt] * texts,
        [bench.max_length - len(prompt)] * texts,
        sampling=sampling,
        streams=[stream / "texts" / k for k in range(texts)],
        stop=_stops(bench),
        description="writing",
    )
    own = [[record.question for site in sites for record in sample.members[site]] for _, sites in writers]
    pairs = dealt(own, [record.question for record in sample.others], stream / "references")
    known = {id(model): some for (model, _), some in zip(writers, pairs, strict=True)}
    near = np.array(
        [
            [[lot.best(text.text) for lot in pair] for pair in known[id(model)]]
            for (model, _), text in zip(turns, found, strict=True)
        ]
    )
    ends = nearest(near, (stream / "bootstrap").numpy())
    own_near, other_near = near.max(axis=1).T.tolist()
    return _written(target, "template", own_near, other_near, ends)


def _stops(bench: ModelRuntime) -> list[str]:
    """What ends an instruction: the header of its response."""
    header = bench.template.response_prefix.strip()
    return [header] if header else []


def _written(
    target: str, prompt: str, own: Sequence[float], other: Sequence[float], ends: tuple[float, float]
) -> Written:
    means = fmean(own), fmean(other)
    return Written(target, prompt, len(own), len(other), *means, means[0] - means[1], *ends)
