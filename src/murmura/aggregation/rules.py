"""How the sites' adapters become the next global one.

FedAvg averages A and B separately, and ``Σ p_k B_k A_k`` differs from the product of the means by
``Σ p_k (B_k − B̄)(A_k − Ā)``. Every rule here but the mean does something about that. With p_k the sites' shares of the
weights and s the adapter's scale:

=========  ==================  ==================  =============================================================
rule       trained             travels             next global adapter
=========  ==================  ==================  =============================================================
mean       A and B             A and B             Ā and B̄
ffa        B                   B                   A as at the start, B̄ (exact, since A is common)
rolora     B and A in turn     the trained one up  its mean (exact, since the other is common)
fedsa      A and B             A                   Ā; B stays at the site
fedex      A and B             A and B, residual   Ā and B̄, and s·Σ p_k (B_k − B̄)(A_k − Ā) into the residual (exact)
flora      A and B             A and B, residual   a fresh adapter, and s·Σ p_k B_k A_k into the residual (exact)
flexlora   A and B             A and B             the best adapter of its rank for Σ p_k B_k A_k
fair       A and B             A and B             Ā, and B̄ + ΔB with the ridge solution of (B̄ + ΔB)Ā ≈ Σ p_k B_k A_k
=========  ==================  ==================  =============================================================

A residual is a low-rank change of the frozen weight that all sites share: ``residual_B·residual_A``, without scale. A
site of smaller rank has the first rows of A and columns of B; its upload is filled up with zeros. No rule ever forms a
matrix as large as the weight. DoRA's magnitudes go where B goes; with them no rule is exact, and those that start from
products make no sense.

Sources: FFA-LoRA (Sun et al. 2024, arXiv 2403.12313), RoLoRA (Chen et al. 2025, 2502.01755), FedSA-LoRA (Guo et al.
2024, 2410.01463), FedEx-LoRA (Singhal et al. 2024, 2410.09432), FLoRA (Wang et al. 2024, 2409.05976), FlexLoRA (Bai et
al. 2024, 2402.11505), LoRA-FAIR (Bian et al. 2024, 2411.14961; the paper minimises by SGD, here in closed form).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch

from murmura.aggregation.config import AggregationConfig, FairRule, KrumRule
from murmura.aggregation.low_rank import Factors, WeightedProducts, compressed, fitting, modules, stack
from murmura.aggregation.mean import WeightedMean
from murmura.errors import RunError
from murmura.streams import Stream
from murmura.training.adapter import MAGNITUDE, State, crop, factor_of, fresh, split_residual
from murmura.training.bank import Factor

Contributions = Iterable[tuple[State, float]]
BOTH: frozenset[Factor] = frozenset({"A", "B"})


class Rule(ABC):
    """What of an adapter is trained, what of it travels, and how uploads are put together.

    Attributes:
        ranks: of the sites in order, repeated cyclically; empty if every site has the run's rank.
        title: what reports call it; empty for the mean.
        personal: True where sites keep a factor to themselves, so that each ends up with an adapter of its own.
    """

    title: ClassVar[str] = ""
    personal: ClassVar[bool] = False

    def __init__(self, config: AggregationConfig | None = None) -> None:
        self.config = config or AggregationConfig()

    @property
    def ranks(self) -> tuple[int, ...]:
        return self.config.ranks

    @property
    def least(self) -> int:
        """The fewest uploads that the rule says anything of."""
        liars: int = getattr(self.config.rule, "liars", 0)
        if isinstance(self.config.rule, KrumRule):  # or a liar's upload is among those chosen
            return max(2 * liars + 3, self.config.rule.chosen + liars)
        return 2 * liars + 1

    def rank(self, place: int) -> int | None:
        """Of the site at a place among all sites; None where all have the run's."""
        return self.ranks[place % len(self.ranks)] if self.ranks else None

    def frozen(self, round: int) -> Factor | None:
        """The factor that sites do not train in a round, counted from 1."""
        return None

    def sent(self, round: int) -> frozenset[Factor]:
        """The factors that travel down."""
        return BOTH

    def uploaded(self, round: int) -> frozenset[Factor]:
        """The factors that travel up."""
        return BOTH

    def download(self, current: State, rank: int | None, round: int) -> State:
        """What a site of a rank is sent of the global adapter: the factors that it needs, and the residual."""
        adapter, residual = split_residual(current)
        part = _factors(adapter if rank is None else crop(adapter, rank), self.sent(round))
        return {**part, **residual}

    def upload(self, state: State, round: int) -> State:
        """What of a trained adapter a site sends up."""
        return _factors(state, self.uploaded(round))

    def complete(self, part: State, known: State) -> State:
        """An adapter of which only a part has travelled, filled up from one that is known, at the part's own rank."""
        adapter, residual = split_residual({**known, **part})
        rank = next((_rank(name, part[name]) for name in part if _has_rank(name)), None)
        return {**(adapter if rank is None else crop(adapter, rank)), **residual}

    def residual_growth(self, ranks: Sequence[int]) -> int:
        """Most that the residual's rank grows in a round with uploads of these ranks."""
        return 0

    @abstractmethod
    def step(self, current: State, contributions: Contributions, *, scale: float, round: int, stream: Stream) -> State:
        """The next global adapter.

        Args:
            current: the one that this round's sites started from.
            contributions: (upload, weight) of each site that replied, read once, one at a time.
            scale: s.
            round: counted from 1.
            stream: randomness of this step.

        Returns:
            Float32 tensors; all arithmetic is float64.

        Raises:
            RunError: nobody replied; or an upload has other tensors, a larger rank, or is not finite, or its weight is
                not positive.
        """


class Mean(Rule):
    """Every tensor by itself (McMahan et al. 2017)."""

    def step(self, current: State, contributions: Contributions, *, scale: float, round: int, stream: Stream) -> State:
        mean = WeightedMean(like=_factors(current, self.uploaded(round)))
        for state, weight in contributions:
            mean.add(_filled(state, current, mean.count + 1), weight)
        return {**current, **mean.result()}


class FFA(Mean):
    """FFA-LoRA (Sun et al. 2024): A stays at its random start, which every site can make itself; B is trained."""

    title = "FFA-LoRA"

    def frozen(self, round: int) -> Factor:
        return "A"

    def sent(self, round: int) -> frozenset[Factor]:
        return frozenset({"B"})

    def uploaded(self, round: int) -> frozenset[Factor]:
        return frozenset({"B"})


class RoLoRA(Mean):
    """RoLoRA (Chen et al. 2025): B in odd rounds, A in even ones, since A has no gradient while B is zero."""

    title = "RoLoRA"

    def frozen(self, round: int) -> Factor:
        return "A" if round % 2 else "B"

    def uploaded(self, round: int) -> frozenset[Factor]:
        return BOTH - {self.frozen(round)}


class FedSA(Mean):
    """FedSA-LoRA (Guo et al. 2024): A is shared, B is each site's own."""

    title = "FedSA-LoRA"
    personal = True

    def sent(self, round: int) -> frozenset[Factor]:
        return frozenset({"A"})

    def uploaded(self, round: int) -> frozenset[Factor]:
        return frozenset({"A"})


class FromProducts(Rule):
    """Rules that start from the means of the factors and from the mean of the products, ``Σ p_k B_k A_k``."""

    def step(self, current: State, contributions: Contributions, *, scale: float, round: int, stream: Stream) -> State:
        mean, products = WeightedMean(like=_factors(current, BOTH)), WeightedProducts()
        for state, weight in contributions:
            mean.add(_filled(state, current, mean.count + 1), weight)
            products.add(state, weight)
        return self.put_together(current, mean.result(torch.float64), products.mean(), scale, stream)

    @abstractmethod
    def put_together(
        self, current: State, mean: State, products: dict[str, Factors], scale: float, stream: Stream
    ) -> State:
        """The next global adapter, from Ā and B̄ (float64) and the stacked factors of each module's mean product."""

    def _with_residual(self, current: State, adapter: State, changes: dict[str, Factors]) -> State:
        """Add a change of each module's frozen weight, named by its A, to the residual."""
        after = {name: tensor.float() for name, tensor in adapter.items()}
        for name, change in changes.items():
            over, under = name.replace(".lora_", ".residual_"), name.replace(".lora_A.", ".residual_B.")
            change = compressed(change)
            if over in current:
                change = fitting(stack([(current[under].double(), current[over].double()), change]))
            B, A = change if self.config.residual_rank is None else compressed(change, self.config.residual_rank)
            if len(A):
                after[over], after[under] = A.float().contiguous(), B.float().contiguous()
        return after


class FedEx(FromProducts):
    """FedEx-LoRA (Singhal et al. 2024): the mean, and what it misses as a residual, truncated to ``residual_rank``."""

    title = "FedEx-LoRA"

    def residual_growth(self, ranks: Sequence[int]) -> int:
        return (len(ranks) - 1) * max(ranks)

    def put_together(
        self, current: State, mean: State, products: dict[str, Factors], scale: float, stream: Stream
    ) -> State:
        changes = {
            a: stack([(scale * products[a][0], products[a][1]), (-scale * mean[b], mean[a])]) for a, b in modules(mean)
        }
        return self._with_residual(current, mean, changes)


class FLoRA(FromProducts):
    """FLoRA (Wang et al. 2024): all adapters stacked into the residual, one factor weighted; then a fresh adapter."""

    title = "FLoRA"

    def residual_growth(self, ranks: Sequence[int]) -> int:
        return sum(ranks)

    def put_together(
        self, current: State, mean: State, products: dict[str, Factors], scale: float, stream: Stream
    ) -> State:
        changes = {name: (scale * B, A) for name, (B, A) in products.items()}
        # Sorted, since a state that comes out of a checkpoint may have another order.
        return self._with_residual(current, fresh({name: mean[name].shape for name in sorted(mean)}, stream), changes)


class FlexLoRA(FromProducts):
    """FlexLoRA (Bai et al. 2024): the truncated SVD of the mean product, singular values shared evenly by A and B.

    Where there are fewer than r singular values above zero, rows of A stay as they were beside zero columns of B, so
    that those can still be trained.
    """

    title = "FlexLoRA"

    def put_together(
        self, current: State, mean: State, products: dict[str, Factors], scale: float, stream: Stream
    ) -> State:
        after = {}
        for a, b in modules(mean):
            B, A = compressed(products[a], len(mean[a]))
            after[a], after[b] = current[a].clone(), torch.zeros_like(current[b])
            after[a][: len(A)], after[b][:, : len(A)] = A.float(), B.float()
        return {**current, **after}


class LoRAFair(FromProducts):
    """LoRA-FAIR (Bian et al. 2024): Ā, and B̄ corrected by ``ΔB = (Σ p_k B_k A_k − B̄Ā)Āᵀ (ĀĀᵀ + λI)⁻¹``.

    That is an r × r system per module.
    """

    title = "LoRA-FAIR"

    def put_together(
        self, current: State, mean: State, products: dict[str, Factors], scale: float, stream: Stream
    ) -> State:
        options, after = self.config.rule, {}
        assert isinstance(options, FairRule)
        for a, b in modules(mean):
            A, (left, right) = mean[a], products[a]
            gram = A @ A.T
            missed = left @ (right @ A.T) - mean[b] @ gram
            change = torch.linalg.solve(gram + options.ridge * torch.eye(len(A), dtype=A.dtype), missed.T).T
            after[a], after[b] = A.float(), (mean[b] + change).float()
        return {**current, **after}


def _factors(state: State, factors: frozenset[Factor]) -> State:
    """The tensors of some factors; of a model that is trained whole, all."""
    return {
        name: tensor
        for name, tensor in state.items()
        if ".residual_" not in name and (factors == BOTH or factor_of(name) in factors)
    }


def _has_rank(name: str) -> bool:
    return ".lora_" in name and not name.endswith(MAGNITUDE)


def _rank(name: str, tensor: torch.Tensor) -> int:
    return int(tensor.shape[0] if ".lora_A." in name else tensor.shape[1])


def _filled(state: State, current: State, place: int) -> State:
    """An upload with zeros up to the global rank. What else does not fit is left for the mean to refuse."""
    filled = dict(state)
    for a, b in modules(current):
        ranks = [_rank(name, state[name]) for name in (a, b) if name in state and state[name].dim() == 2]
        if len(set(ranks)) == 2:
            what = f"the tensor '{a}' has rank {ranks[0]}, its B has {ranks[1]}"
            fix = "A site must send both factors of the same adapter."
            raise RunError(what, where=f"contribution {place}", fix=fix)
        for name in a, b:
            if name in state:
                filled[name] = _wide(name, state[name], current[name], place)
    return filled


def _wide(name: str, tensor: torch.Tensor, whole: torch.Tensor, place: int) -> torch.Tensor:
    """A factor with zeros up to another's rank; one that fits already comes back as it is."""
    axis = 0 if ".lora_A." in name else 1
    if tensor.dim() != 2 or tensor.shape[1 - axis] != whole.shape[1 - axis]:
        return tensor
    rank, most = tensor.shape[axis], whole.shape[axis]
    if rank > most:
        what = f"the tensor '{name}' has rank {rank}, above the run's {most}"
        raise RunError(what, where=f"contribution {place}", fix="Raise lora.rank, or lower aggregation.ranks.")
    if rank == most:
        return tensor
    wide = tensor.new_zeros(whole.shape)
    wide.narrow(axis, 0, rank).copy_(tensor)
    return wide
