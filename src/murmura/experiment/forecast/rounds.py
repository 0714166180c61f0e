"""The rounds that a run would have: whom each asks, how long they train, and what travels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from murmura.aggregation.low_rank import modules
from murmura.aggregation.rules import Rule
from murmura.aggregation.travel import size
from murmura.experiment.config import Experiment
from murmura.experiment.model_spec import ModelSpec
from murmura.experiment.summing import foreseen
from murmura.federation.forecast import SitePart
from murmura.federation.method import Method
from murmura.federation.wire.cohorts import draw
from murmura.streams import Stream
from murmura.training.adapter import State
from murmura.units import FLOAT32


@dataclass(frozen=True)
class ForeseenRound:
    """One round: the sites asked, the most optimiser steps they take together, the bytes of adapters each way, and the
    most tokens that the method has written."""

    sites: int | None
    steps: int | None
    bytes_down: int | None
    bytes_up: int | None
    tokens: int | None = None


def drawn_cohorts(experiment: Experiment, method: Method, names: list[str], stream: Stream) -> list[list[str]]:
    """Each round's sites, drawn as the run draws them."""
    asked = experiment.method.cohort_size
    rounds = range(1, experiment.method.total_rounds + 1)
    return [draw(names, asked, stream, round) if method.asks(round) else [] for round in rounds]


def residual_growth(experiment: Experiment, method: Method, names: list[str], cohorts: list[list[str]]) -> list[int]:
    """Most that the residual's rank grows in each round."""
    ranks = {name: method.rule.rank(place) or experiment.lora.rank for place, name in enumerate(names)}
    return [method.rule.residual_growth([ranks[name] for name in cohort]) for cohort in cohorts]


def largest_residual(rule: Rule, adapter: State, rank: int) -> int:
    """Most bytes of a residual beside an adapter.

    Args:
        rank: most that its rank can have grown to, but for the sizes of the weights and the rule's own limit.
    """
    shapes = [(adapter[b].shape[0], adapter[a].shape[1]) for a, b in modules(adapter)]
    return FLOAT32 * sum(min(rank, rule.config.residual_rank or rank, *shape) * sum(shape) for shape in shapes)


def foreseen_rounds(
    experiment: Experiment,
    method: Method,
    names: list[str] | None,
    cohorts: list[list[str]] | None,
    owned: Mapping[str, Sequence[Any]] | None,
    model: ModelSpec | None,
    public: int,
    federation: int | None = None,
) -> list[ForeseenRound]:
    """All rounds, the first to the last.

    Args:
        names: of the sites, and ``cohorts`` of those that each round asks; None where they are not known.
        owned: records of each site.
        public: most public records that a site is given.
        federation: how many sites a secure sum is over; as many as a round asks, if not given.
    """
    if cohorts is None or names is None:
        return [ForeseenRound(None, None, None, None)] * experiment.method.total_rounds
    rounds, asked, residual = [], set[str](), 0
    ranks = {name: method.rule.rank(place) for place, name in enumerate(names)}
    growth = residual_growth(experiment, method, names, cohorts)

    @cache  # sites of one rank are alike
    def travels(rank: int | None, round: int, residual: int) -> dict[str, int]:
        return _travels(method.rule, model, rank, round, residual) if model else {}

    for round, cohort in enumerate(cohorts, start=1):
        parts = [
            method.forecast(
                SitePart(
                    owned[name] if owned else (),
                    round,
                    name not in asked,
                    experiment.training,
                    public=public,
                    **travels(ranks[name], round, residual),
                )
            )
            for name in cohort
        ]
        asked.update(cohort)
        residual += growth[round - 1]
        share, more_up, more_down = foreseen(method, federation or len(cohort))
        rounds.append(
            ForeseenRound(
                sites=len(cohort),
                steps=sum(part.steps for part in parts) if owned else None,
                bytes_down=_known(sum(part.down + more_down for part in parts)) if model else None,
                bytes_up=_known(sum(share * part.up + more_up for part in parts)) if model else None,
                tokens=sum(part.tokens for part in parts) if owned else None,
            )
        )
    return rounds


def _known(size: float) -> int | None:
    return None if math.isnan(size) else int(size)


def _travels(rule: Rule, model: ModelSpec, rank: int | None, round: int, residual: int) -> dict[str, int]:
    """Most bytes of an adapter on its way down to a site and up from it, as the aggregation rule has it.

    Args:
        residual: the rank, as ``largest_residual`` takes it.
    """
    start = rule.download(model.state, rank, round)
    upload = rule.upload(rule.complete(start, model.state), round)
    down, up = (size(state, rule.config.travel) for state in (start, upload))
    down += largest_residual(rule, model.state, residual)
    return {"adapter": model.trainable * FLOAT32, "down": down, "up": up}
