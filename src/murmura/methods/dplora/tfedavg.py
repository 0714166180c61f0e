"""T-FedAvg (Xu et al. 2020): ternary weights while training, and both ways on the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from murmura.aggregation.mean import shapes, too_long
from murmura.aggregation.ternary import SERVER_THRESHOLD, SITE_THRESHOLD, dequantise, quantise, ternary
from murmura.errors import RunError
from murmura.federation.wire.messages import Payload
from murmura.federation.wire.sums import misfit
from murmura.measure.heldout import losses
from murmura.training.adapter import State
from murmura.training.bank import Bank

if TYPE_CHECKING:
    from murmura.federation.server.rounds import Server

_SENT = ("codes", "scales")  # in the server's store while the global adapter is ternary
_DECIDED = "ternary"


@contextmanager
def ternary_pass(bank: Bank) -> Iterator[None]:
    """FTTQ: put ternary tensors in the place of a bank's, for one step's forward and backward passes.

    Afterwards the bank holds its own values θ again, and their gradients are ``w·g`` where |θ| > Δ = T·mean|θ|, and
    ``g`` elsewhere, g being the gradients of the ternary values and w the tensor's scale, which is computed, not
    trained.

    Args:
        bank: its slots and their gradients; the latter must be zero before.
    """
    latent, factor = bank.flat.clone(), torch.ones_like(bank.flat)
    for slot in range(bank.slots):
        values, factors = bank.unpack(bank.flat[slot]), bank.unpack(factor[slot])
        for name, value in values.items():
            codes, scale = ternary(value, SITE_THRESHOLD)
            value.copy_(codes * scale)
            factors[name].masked_fill_(codes != 0, float(scale))
    try:
        yield
    finally:
        bank.flat.copy_(latent)
    bank.grad.mul_(factor)


def settle(server: Server, mean: State, tolerance: float) -> None:
    """Make ``mean`` the global adapter: ternary, unless that is too much worse on the held-out records.

    The paper's strategy II, with held-out loss for its validation accuracy. What goes down is kept in the server's
    store.

    Args:
        tolerance: how much larger the loss may be, by share of the float mean's.
    """
    packed = quantise(mean, SERVER_THRESHOLD)
    light = dequantise(packed.codes, packed.scales, shapes(mean))
    found = losses(server.runtime, server.evaluation_set, [light, mean])
    for name in _SENT:
        server.store.pop(name, None)
    server.store[_DECIDED] = found[0] <= (1 + tolerance) * found[1]
    server.adapter = light if server.store[_DECIDED] else mean
    if server.store[_DECIDED]:
        server.store |= {"codes": packed.codes, "scales": packed.scales}


def settled(server: Server) -> bool:
    """Whether a global adapter was settled before."""
    return _DECIDED in server.store


def outgoing(server: Server) -> Payload:
    """What every site is sent: codes and scales, or the float adapter."""
    if not server.store[_DECIDED]:
        return {"adapter": server.adapter}
    return {name: server.store[name] for name in _SENT}


def reading(adapter: State) -> Callable[[Payload], Payload]:
    """What reads a site's reply as the adapter that its codes stand for.

    Args:
        adapter: one as all sites train it.
    """
    like = quantise(adapter)
    fitting: Payload = {"codes": like.codes, "scales": like.scales, "loss": 0.0}

    def read(fields: Payload) -> Payload:
        """
        Raises:
            RunError: the fields are not those of such an adapter.
        """
        if why := misfit(fields, fitting):
            raise RunError(why)
        upload = dequantise(fields["codes"], fields["scales"], shapes(adapter))
        if why := too_long(upload, adapter):
            raise RunError(why)
        return {"adapter": upload, "loss": fields.get("loss")}

    return read


def received(payload: Payload, bank: Bank) -> State:
    """The adapter that a site was sent in either form."""
    if "adapter" in payload:
        adapter: State = payload["adapter"]
        return adapter
    return dequantise(payload["codes"], payload["scales"], {e.name: torch.Size(e.shape) for e in bank.manifest})
