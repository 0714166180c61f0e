"""Membership inference by every attack that scores records, on every model of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from murmura.audit import BROUGHT
from murmura.audit.attack_scores import AttackScores, shape
from murmura.errors import ConfigError
from murmura.generation.sampling import Sampling
from murmura.generation.scoring import CloseScores, TokenScores
from murmura.measure.attacks import ATTACKS, CONTROL, Passes, plain_loss
from murmura.measure.figure import GUESSING
from murmura.measure.membership import one_in_four, passes, score
from murmura.measure.reader import Reader
from murmura.model_runtime import ModelRuntime
from murmura.progress import bar
from murmura.runs.audit import AuditedModel, Separation
from murmura.streams import Stream
from murmura.tasks import Task
from murmura.training.adapter import State

MIN_K = "Min-K%++"
_SHARE = 0.2  # k of Min-K%++: the share of tokens that count, those that look least like it
_LEAST = 1e-6  # of σ, which is 0 where the model is sure of a token


@dataclass(frozen=True)
class AuditSample:
    """The records that are scored.

    Attributes:
        members: of each site, by name, its sampled records; sites without one are left out.
        places: of each site, where these stand among all of its records that can be attacked.
        others: records that no site has.
    """

    members: Mapping[str, Sequence[Any]]
    places: Mapping[str, Sequence[int]]
    others: Sequence[Any]

    @staticmethod
    def drawn(members: Mapping[str, Sequence[Any]], others: Sequence[Any], most: int, stream: Stream) -> AuditSample:
        """At most so many members of all sites together, all as likely, and at most so many others."""
        every = [(site, place) for site, own in members.items() for place in range(len(own))]
        chosen = set((stream / "members").python().sample(every, min(most, len(every))))
        places = {
            site: [place for place in range(len(own)) if (site, place) in chosen] for site, own in members.items()
        }
        places = {site: own for site, own in places.items() if own}
        return AuditSample(
            {site: [members[site][place] for place in own] for site, own in places.items()},
            places,
            (stream / "others").python().sample(others, min(most, len(others))),
        )

    @property
    def count(self) -> int:
        """How many members there are."""
        return sum(map(len, self.members.values()))


@dataclass(frozen=True)
class Readings:
    """What models make of records, by site.

    Attributes:
        members: of each site, its own records under its model and under that before training.
        others: of each different model, the others likewise.
        rows: of each site, the place of its model in ``others``.
    """

    members: Mapping[str, Sequence[Passes]]
    others: Sequence[Sequence[Passes]]
    rows: Mapping[str, int]


def readings_of(
    reader: Reader, runtime: ModelRuntime, sample: AuditSample, models: Mapping[str, State], description: str
) -> Readings:
    """What the model of each site makes of its own records and of the others; many models share batches.

    Args:
        reader: as of ``closely``, which reads with the model before training once.
        runtime: with the run's base model.
        sample: the records.
        models: of each site in the sample; the same object for several sites is one model.
        description: for the progress bar.
    """
    base, others = runtime.origin, sample.others
    distinct = list({id(model): model for model in models.values()}.values())
    rows = {site: [model is one for one in distinct].index(True) for site, model in models.items()}
    own = {site: records for site, records in sample.members.items() if site in models}
    jobs = [(base, records) for records in (*own.values(), others)]
    jobs += [(models[site], records) for site, records in own.items()] + [(model, others) for model in distinct]
    found: list[list[TokenScores]] = []
    step = runtime.slots if runtime.bank.lora else len(jobs)
    with bar(description, sum(len(records) for _, records in jobs)) as progress:
        for first in range(0, len(jobs), step):
            some = jobs[first : first + step]
            found += reader.read(runtime, *map(list, zip(*some, strict=True)))
            progress.advance(sum(len(records) for _, records in some))
    before, after = found[: len(own) + 1], found[len(own) + 1 :]
    members = [passes(model, known) for model, known in zip(after, before[:-1], strict=False)]
    return Readings(
        dict(zip(own, members, strict=True)), [passes(model, before[-1]) for model in after[len(own) :]], rows
    )


def closely(task: Task, sampling: Sampling) -> Reader:
    """What reads records: the tokens of a text with a closer look, labels as they are.

    Args:
        task: the kind of record.
        sampling: of which ``CloseScores.drawn`` tells.
    """
    if not task.is_text:
        return Reader(task.token_scores)

    def close(runtime: ModelRuntime, adapters: Sequence[State], records: Sequence[Any]) -> list[TokenScores]:
        items = runtime.reading.tokenise(records)
        return list(runtime.close_scores(adapters, items, sampling, description="read"))

    return Reader(close)


def scored(task: Task, readings: Readings) -> dict[str, AttackScores]:
    """Every record's score by each attack that needs no more than its model and that before training.

    Raises:
        ConfigError: one of another package cannot be imported, has the name of one of Murmura's, or makes no number of
            a record.
    """
    attacks = {name: ATTACKS[name] for name in task.attacks}
    if task.is_text:
        attacks[MIN_K] = min_k
    found = {name: versus(readings, attack) for name, attack in attacks.items()}
    for name, source in BROUGHT.items():
        if name in attacks:
            fix = "Uninstall the package, or have it name the attack otherwise."
            raise ConfigError(f"'{name}' is an attack of Murmura's own", where=f"package {source.package}", fix=fix)
        attack = BROUGHT.load(name)
        with BROUGHT.guarded(name, "is an attack that makes no number of a record"):
            found[name] = versus(readings, partial(_number, attack))
    return found


def _number(attack: Callable[[Passes], float], one: Passes) -> float:
    """A record's score by an attack of another package; where the models themselves make no number of the record, what
    comes of that is not the attack's mistake.

    Raises:
        Exception: whatever the attack raises.
        ValueError: it gives no finite number.
    """
    found = float(attack(one))
    if not np.isfinite(found) and np.isfinite(one.raised).all():
        raise ValueError(f"it gives {found}")
    return found


def versus(readings: Readings, attack: Callable[[Passes], float]) -> AttackScores:
    """Members, site by site in the order of the sample, against others."""
    members = [score(attack, one) for own in readings.members.values() for one in own]
    rows = [readings.rows[site] for site, own in readings.members.items() for _ in own]
    others = [[score(attack, one) for one in some] for some in readings.others]
    return AttackScores(np.array(members), np.array(others), np.array(rows, dtype=np.int64))


def unlike(readings: Readings) -> bool:
    """Whether the loss before training tells members from others: they then are records of different kinds, or what
    training began with knew some, and attacks find more or less than training gives away."""
    low, high = versus(readings, lambda one: plain_loss(Passes(one.base, one.base))).interval
    return not low <= GUESSING <= high


def min_k(one: Passes) -> float:
    """Min-K%++ (Zhang et al. 2024, arXiv 2404.02936) of a record with at least one token: is it a mode of what the
    model would write? The higher, the more it looks like one that was trained on.

    With μ and σ the mean and standard deviation of log p(z) over tokens z that the model itself draws at a place, a
    token's score is (log p(x) − μ)/σ; the record's is the mean of the lowest k % of them, of one at least.
    """
    scores = one.model
    assert isinstance(scores, CloseScores)
    each = (-scores.nll.astype(np.float64) - scores.mean) / np.maximum(scores.std, _LEAST)
    return float(np.sort(each)[: max(1, int(len(each) * _SHARE))].mean())


def measured(target: str, found: Mapping[str, AttackScores], stream: Stream) -> AuditedModel:
    """How well each attack tells members from others.

    One in four of both is set apart, the same ones for all attacks. They decide which attack is the strongest, and the
    others say how strong each one is, so that the choice flatters nobody.

    Args:
        target: what was attacked, a key of ``runs.audit.TARGETS``.
        found: scores by attack, all of the same records.
        stream: decides what is set apart.
    """
    first = next(iter(found.values()))
    apart = [
        one_in_four(count, stream / name)
        for name, count in (("members", len(first.members)), ("others", first.others.shape[1]))
    ]
    rest = [~one for one in apart]
    rivals = [name for name in found if name != CONTROL]
    enough = all(one.any() and not one.all() for one in apart) and len(rivals) > 1
    if not enough:
        rest = [np.ones_like(one) for one in rest]
    best = max(rivals, key=lambda name: found[name].part(apart[0], apart[1]).auc if enough else 0.0)
    counts = int(rest[0].sum()), int(rest[1].sum())
    attacks = []
    for name, every in found.items():
        part = every.part(rest[0], rest[1])
        (low, high), tpr = part.interval, part.tpr
        tpr_low, tpr_high = (None, None) if tpr is None else part.tpr_interval
        deciding = every.part(apart[0], apart[1]).auc if enough else None
        attacks.append(Separation(name, part.auc, low, high, tpr, tpr_low, tpr_high, name == CONTROL, deciding))
    histogram = shape(found[best].members[rest[0]], found[best].others[:, rest[1]])
    return AuditedModel(target, *counts, best, tuple(attacks), histogram)
