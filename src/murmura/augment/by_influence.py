"""LESS (Xia et al. 2024, arXiv 2402.04333): records whose training step goes where a site's own gradients point.

The server trains an adapter on a few records of the pool. Each site sends gradients of its own records at the ends of
that training's epochs, and the server compares them with the step that Adam would take for each record of the pool.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from murmura.augment.influence import features, field, influences, projection
from murmura.augment.strategies import Chosen, FromPool, Rows, Selections, beginnings
from murmura.data.tokenising import Tokenised, tokenise_all
from murmura.errors import RunError
from murmura.federation.forecast import Forecast, Trial, Work, seconds
from murmura.federation.wire.sums import misfit
from murmura.progress import bar, phase
from murmura.streams import Stream
from murmura.training.by_example import at_once
from murmura.training.config import LocalTraining
from murmura.training.loop import NonFiniteLoss
from murmura.training.warm_up import Milestone, warm_up
from murmura.units import FLOAT32

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.wire.messages import Payload, Reply
    from murmura.model_runtime import ModelRuntime
    from murmura.retrieval.pool import Pool

_AT_ONCE = 1024  # records of the pool whose texts are held at once
_TRIED = 16  # records

Scores = npt.NDArray[np.float32]


class LESS(FromPool):
    """Records of the highest influence on a site's own."""

    asks: ClassVar[tuple[str, ...]] = ("features",)
    private: ClassVar[str] = "the projected gradients of every single record of each site"
    betrays: ClassVar[str] = "the gradients of a single record can be turned back into much of its text"
    scored_by = "influence"

    @property
    def title(self) -> str:  # type: ignore[override]
        sample = self.config.less_sample
        return "LESS" if sample is None else f"LESS among {sample} records of the pool"

    @property
    def warning(self) -> str:
        c = self.config
        rows = "each record of the pool" if c.less_sample is None else f"each of {c.less_sample} records of the pool"
        return (
            f"{super().warning} For {rows} the server would take a forward and a backward pass in each of "
            f"{c.less_epochs} epochs."
        )

    def forecast(self, run: Selections, pool: Pool | None) -> Forecast:
        found, each = super().forecast(run, pool), run.times * self.config.less_epochs
        up = math.nan if run.own is None else each * run.own * self.config.less_dimension * FLOAT32
        return replace(found, down=found.down + run.sites * each * run.adapter, up=up)

    def work(self, run: Selections, pool: Pool | None) -> Iterator[Work]:
        """In each epoch the records of its warm-up, those of the pool that are compared, and the sites' own."""
        assert pool is not None
        c = self.config
        compared = len(pool) if c.less_sample is None else min(c.less_sample, len(pool))
        records = max(1, round(c.less_warm_up * len(pool))) + compared + (run.own or 0)
        yield Work("gradients of records", "choosing", c.less_epochs * records, self._gradient, run.times)

    def _gradient(self, trial: Trial) -> float:
        """Of a record, with its share of a projection, the matrix of which is made for many records at once."""
        bank, stream = trial.server.bank, Stream(0)
        project = projection(stream, self.config.less_dimension)
        items = trial.server.tokenise_fitting(trial.heldout[:_TRIED])
        bank.load([bank.initial(stream)])
        matrix = seconds(lambda: project(torch.zeros(1, bank.size, device=bank.device)))
        every = seconds(lambda: features(bank, items, trial.server.training, project))
        passes = math.ceil(len(items) / at_once(bank))
        return max(every - passes * matrix, 0.0) / len(items) + matrix / at_once(bank)

    def choose(self, server: Server, fleet: Fleet, sites: Sequence[str], pool: Pool, round: int) -> dict[str, Chosen]:
        stream = self.stream(server, round) / "less"
        milestones = self._warm_up(server, pool, stream)
        told = self._told(fleet, sites, milestones)
        rows = self._drawn(pool, self.config.less_sample, stream / "sample")
        scores = self._scored(server, pool, rows, milestones, list(told.values()))
        free, given = np.ones(len(rows), dtype=bool), {}
        for site, own in zip(told, scores.T, strict=True):
            order = np.argsort(-own, kind="stable")
            order = order[free[order] & np.isfinite(own[order])]
            [found] = self.afford(pool, beginnings(rows[order], own[order]))
            given[site] = Chosen(found.rows, found.scores)
            if self.config.dedup == "all":
                free[order[: len(found.rows)]] = False
        return given

    def why(self, chosen: Chosen, place: int) -> str:
        whose = "one of the site's records" if self.config.less_over == "max" else "the site's records on average"
        return f"number {place + 1} of those that, trained on, would lower the loss of {whose} most, by influence"

    # ---- the steps ---------------------------------------------------------------------------------------------------

    def _warm_up(self, server: Server, pool: Pool, stream: Stream) -> list[Milestone]:
        """Train the global adapter on a few records of the pool; the server's own stays as it is."""
        c, bench = self.config, server.runtime
        rows = self._drawn(pool, max(1, round(c.less_warm_up * len(pool))), stream / "warm-up")
        items = [item for _, item in _tokenised(bench, pool, rows)]
        t = bench.training
        same = {name: getattr(t, name) for name in ("betas", "eps", "clip", "tokens_per_pass", "precision")}
        own = {"lr": c.less_lr, "schedule": "constant", "epochs": c.less_epochs, "batch_size": c.less_batch}
        training = LocalTraining(**own, **same)
        if not items:
            what = f"none of the {len(rows)} records of the pool that were drawn fits {bench.max_length} tokens"
            raise RunError(what, where="augment.pool", fix="Raise data.max_length, or augment.less_warm_up.")
        try:
            with phase("train"):
                return warm_up(bench.bank, items, server.adapter, training, stream / "training")
        except NonFiniteLoss as error:
            raise error.told(f"round {server.round}, warm-up of LESS", "Lower augment.less_lr.") from None

    def _told(self, fleet: Fleet, sites: Sequence[str], milestones: Sequence[Milestone]) -> dict[str, torch.Tensor]:
        """What each site has answered."""
        sent: dict[str, Any] = {field(epoch): one.state for epoch, one in enumerate(milestones)}

        def unfit(reply: Reply) -> str | None:
            return _unfit(reply.fields, epochs=len(milestones), dimension=self.config.less_dimension)

        replies = fleet.ask("features", sites, refused=unfit, epochs=len(milestones), **sent)
        told = {reply.site: reply["features"] for reply in replies}
        return {site: told[site] for site in sites if site in told}

    def _scored(
        self, server: Server, pool: Pool, rows: Rows, milestones: Sequence[Milestone], own: Sequence[torch.Tensor]
    ) -> Scores:
        """The influence of each of these rows on each site, float32 [rows, sites]; −∞ where a record does not fit."""
        bench, scores = server.runtime, np.full((len(rows), len(own)), -np.inf, dtype=np.float32)
        project = projection(server.stream, self.config.less_dimension)
        with phase("score"), bar("influence", len(rows)) as progress:
            for start in range(0, len(rows), _AT_ONCE):
                some = list(_tokenised(bench, pool, rows[start : start + _AT_ONCE]))
                places, items = [start + place for place, _ in some], [item for _, item in some]
                found = influences(bench.bank, items, milestones, own, bench.training, project, self.config.less_over)
                scores[places] = found.numpy()
                progress.advance(min(_AT_ONCE, len(rows) - start))
        return scores

    def _drawn(self, pool: Pool, count: int | None, stream: Stream) -> Rows:
        """So many rows, or all of them, ascending; none that nobody is given."""
        free = np.setdiff1d(np.arange(len(pool)), self.withheld)
        if count is None or count >= len(free):
            return free
        return np.sort(stream.numpy().choice(free, count, replace=False))


def _unfit(fields: Payload, epochs: int, dimension: int) -> str | None:
    """Why gradients that a site has sent cannot be compared with those of the pool; None where they can."""
    found = fields.get("features")
    records = found.shape[1] if isinstance(found, torch.Tensor) and found.ndim > 1 else 0
    return misfit(fields, {"features": torch.empty(epochs, records, dimension, device="meta")})


def _tokenised(bench: ModelRuntime, pool: Pool, rows: Rows) -> Iterator[tuple[int, Tokenised]]:
    """Those of some rows that fit the model, with their places among them. Nothing of it is kept."""
    found = tokenise_all(pool.records(rows), bench.template, bench.tokenizer, bench.max_length)
    return zip(found.kept, found.items, strict=True)
