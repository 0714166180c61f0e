"""The server's half of SCAFFOLD (Karimireddy et al. 2020, arXiv 1910.06378): the common control variate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from murmura.aggregation.mean import StateSum
from murmura.errors import RunError

if TYPE_CHECKING:
    from murmura.training.adapter import State


def control_update(c: State, deltas: Iterable[State], total_sites: int) -> State:
    """The server's next control variate, `c + (1/N) Σ_{k∈S} (c_k⁺ − c_k)` (Algorithm 1 of the paper).

    The divisor N counts all sites, not only those that replied: a site that was not asked keeps its own c_k, so that c
    stays the mean of all c_k.

    Args:
        c: The control variate that this round's sites were sent.
        deltas: `c_k⁺ − c_k` of each site that replied, with the names and shapes of `c`; read once, one at a time.
        total_sites: N, the number of sites in the federation.

    Returns:
        A new float32 state. Without replies it equals `c`.

    Raises:
        RunError: More sites replied than there are; a delta does not have the tensors of `c`, or is not finite.
    """
    total = StateSum(like=c)
    for delta in deltas:
        total.add(delta)
    if total.count > total_sites:
        raise RunError(f"{total.count} sites replied with a control variate, of {total_sites} in all")
    if not total.count:
        return {name: tensor.clone() for name, tensor in c.items()}
    return {name: (tensor.double() + total.tensors[name] / total_sites).float() for name, tensor in c.items()}
