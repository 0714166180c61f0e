"""LESS in the study of coverage: how far a training step on a public record goes where a site's own gradients point.

It is LESS (Xia et al. 2024, arXiv 2402.04333) as ``murmura.augment`` has it, with what FedDCA's authors spared: one
checkpoint. Every site and seed is compared by the same warm-up, so that a record's gradient is computed once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from murmura import atomic
from murmura.data.templates import template
from murmura.data.tokenising import tokenise_all
from murmura.models import load
from murmura.progress import bar
from murmura.streams import Stream

if TYPE_CHECKING:
    from murmura.data.tokenising import TokenisedSet
    from murmura.models import LoadedModel
    from murmura.retrieval.pool import Pool
    from murmura.training.bank import Bank
    from murmura.training.config import LocalTraining
    from murmura.training.warm_up import Milestone

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float32]

AT_ONCE = 20  # records whose gradients are kept together, in memory and then on disk


@dataclass(frozen=True)
class Options:
    """How gradients are compared.

    Args:
        model: the language model.
        targets: its modules that carry an adapter, of this ``rank``: those of the last layers, which halves the time
            that a gradient takes.
        max_length: most tokens of a record; a longer prompt is cut, and a record whose response is longer left out.
        warm_up: public records that the adapter is first trained on.
        epochs: of that, in batches of ``batch``. LESS takes some 1,700 steps at rates of up to 2e-5; the rates of these
            few add up to about half as much.
        dimension: of projected gradients.
    """

    model: str = "smollm2-135m"
    targets: tuple[str, ...] = tuple(f"{layer}.self_attn.{name}_proj" for layer in range(22, 30) for name in "qkvo")
    rank: int = 8
    max_length: int = 512
    warm_up: int = 32
    epochs: int = 2
    batch: int = 8
    lr: float = 2e-3
    dimension: int = 1024


class Influence:
    """The influence of training on public records on the losses of others.

    Args:
        pool: has all of them.
        public: rows that nobody holds as private, of which those of the warm-up are drawn.
        folder: where gradients are kept as they come.
        options: of it.
    """

    def __init__(self, pool: Pool, public: Rows, folder: Path, options: Options | None = None) -> None:
        self.options = options or Options()
        drawn = (Stream(0) / "coverage" / "less" / "warm-up").numpy().permutation(public)[: self.options.warm_up]
        self._pool, self._drawn = pool, np.sort(drawn)
        told = json.dumps([asdict(self.options), self._drawn.tolist()]).encode()
        self._folder = folder / hashlib.sha256(told).hexdigest()[:12]
        self._folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, rows: Rows, own: Sequence[Rows]) -> Numbers:
        """Of each public record on each site: the largest cosine of Adam's step for it with the gradient of a record of
        the site (float32 [rows, sites]); −∞ of a record that is too long."""
        steps = self._features("steps", rows)
        sites = [self._features("gradients", one) for one in own]
        found = [(steps @ one[np.isfinite(one).all(1)].T).max(axis=1, initial=-np.inf) for one in sites]
        return np.nan_to_num(np.stack(found, axis=1), nan=-np.inf, neginf=-np.inf)

    def _features(self, kind: str, rows: Rows) -> Numbers:
        """One line for each row, NaN for a record that is too long. What is not on the disk is made, and put there."""
        file = self._folder / f"{kind}.npz"
        known: dict[int, Numbers] = {}
        if file.exists():
            with np.load(file) as kept:
                known = dict(zip(kept["rows"].tolist(), kept["features"], strict=True))
        missing = [int(row) for row in rows if int(row) not in known]
        with bar(kind, len(missing)) as progress:
            for first in range(0, len(missing), AT_ONCE):
                some = missing[first : first + AT_ONCE]
                known |= zip(some, self._made(kind, some), strict=True)
                with atomic.replacing(file) as stream:
                    np.savez(stream, rows=np.array(list(known)), features=np.stack(list(known.values())))
                progress.advance(len(some))
        return np.stack([known[int(row)] for row in rows])

    def _made(self, kind: str, rows: Sequence[int]) -> Numbers:
        from murmura.augment.influence import features, projection

        found = np.full((len(rows), self.options.dimension), np.nan, dtype=np.float32)
        read, bank, milestone = self._tokenised(np.array(rows)), self._bank, self._milestone
        bank.load([milestone.state])
        moments = milestone.moments if kind == "steps" else None
        project = projection(Stream(0) / "coverage" / "less", self.options.dimension)
        found[read.kept] = features(bank, read.items, self._training, project, moments).cpu().numpy()
        return found

    def _tokenised(self, rows: Rows) -> TokenisedSet:
        tokenizer = self._loaded.tokenizer
        return tokenise_all(self._pool.records(rows), template("alpaca"), tokenizer, self.options.max_length)

    @cached_property
    def _loaded(self) -> LoadedModel:
        return load(self.options.model, "causal", device="cpu")

    @cached_property
    def _bank(self) -> Bank:
        from murmura.training.bank import Bank
        from murmura.training.config import LoraSpec

        c = self.options
        return Bank(self._loaded.model, LoraSpec(rank=c.rank, alpha=2.0 * c.rank, targets=c.targets))

    @cached_property
    def _training(self) -> LocalTraining:
        from murmura.training.config import LocalTraining

        c = self.options
        return LocalTraining(lr=c.lr, schedule="constant", epochs=c.epochs, batch_size=c.batch)

    @cached_property
    def _milestone(self) -> Milestone:
        """Where the warm-up ends, from the disk if it is there."""
        from safetensors.torch import load_file, save

        from murmura.training.warm_up import Milestone, Moments, warm_up

        file, stream = self._folder / "warm-up.safetensors", Stream(0) / "coverage" / "less" / "training"
        if not file.exists():
            items, start = self._tokenised(self._drawn).items, self._bank.initial(stream / "adapter")
            end = warm_up(self._bank, items, start, self._training, stream)[-1]
            atomic.write(file, save({**end.state, "mean": end.moments.mean, "square": end.moments.square}))
        state = load_file(file)
        moments = Moments(state.pop("mean"), state.pop("square"), self._training.betas)
        return Milestone(state, moments, rate=1.0)  # of one alone the rate plays no part
