"""What a secure sum costs a site: milliseconds and bytes, against the vector in clear and against Flower's SecAgg+.

    python bench/secure_sum.py                     all sites are neighbours
    python bench/secure_sum.py --sites 0           only one site's part in a sum of many, with all or few neighbours

Sites and server are in this process, with nothing between them, so that only the protocol is timed. Each way takes its
turn with each vector: votes (whole numbers of 64 bits) and an adapter's update (float32, unweighed). Flower's functions
are those that its client calls (``flwr.client.mod``), with every other site as a neighbour and the same threshold: the
same protocol, but for signatures and the consistency check. What is left without masks must be the sum.

One site's part in a sum of many (``--many``) is measured at a few sites. Of the others there is what those are sent:
keys, signatures and encrypted shares, of which the contents make no difference to what it costs to open them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from measure import machine

from murmura.aggregation.config import SecureSumConfig
from murmura.federation.server.unmasking import Unmasking
from murmura.federation.site import masking
from murmura.federation.site.identity import public
from murmura.federation.site.masking import Masking, is_signed
from murmura.federation.wire.layout import Agreement, Layout
from murmura.federation.wire.masks import Roll, advertised, agree, consistent, protocol_bytes, statement, vouched
from murmura.federation.wire.neighbours import fewest, graph
from murmura.federation.wire.shamir import SHARE_BYTES

ROUND, VERB = 1, "send"
STEPS = ("keys", "shares", "vector", "check", "reveal")


@dataclass
class Cost:
    """Of one way: seconds of each step over all sites, seconds of the server, bytes that one site sends and is sent."""

    steps: dict[str, float] = field(default_factory=dict)
    server: float = 0.0
    up: int = 0
    down: int = 0

    def timed(self, step: str, work: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        found = work()
        spent = time.perf_counter() - begun
        if step == "server":
            self.server += spent
        else:
            self.steps[step] = self.steps.get(step, 0.0) + spent
        return found

    @property
    def site(self) -> float:
        return sum(self.steps.values())


def clear(vectors: Sequence[torch.Tensor]) -> tuple[Cost, np.ndarray]:
    """The sum in clear, as a fleet adds it up; a site does nothing but send."""
    from murmura.federation.wire.sums import Sum

    cost, total = Cost(up=vectors[0].nbytes), Sum()
    for k, vector in enumerate(vectors):
        cost.timed("server", lambda k=k, vector=vector: total.add(str(k), {"vector": vector}))
    return cost, total["vector"].numpy()


def masked(vectors: Sequence[torch.Tensor]) -> tuple[Cost, np.ndarray]:
    """Murmura's secure sum."""
    names, options = [str(k) for k in range(len(vectors))], SecureSumConfig(neighbours="all")
    keys = {name: Ed25519PrivateKey.generate() for name in names}
    roster = {name: public(key) for name, key in keys.items()}
    sites = {name: Masking(name, "run", keys[name], roster, Agreement(options, len(names))) for name in names}
    layout = Layout.of({"vector": torch.zeros_like(vectors[0])}, {}, len(names), options)
    server, cost = Unmasking("run", ROUND, VERB, names, layout), Cost()

    def all_sites(step: str, work: Callable[[Any], Any]) -> dict[str, Any]:
        found = {}
        for name, site in sites.items():
            is_signed.cache_clear()  # a site by itself has nobody to share the work with
            found[name] = cost.timed(step, lambda site=site: work(site))
        return found

    offers = all_sites("keys", lambda site: site.advertise(ROUND, VERB, len(names), server.number))
    cost.timed("server", lambda: server.advertised(offers))
    sealed = all_sites("shares", lambda site: site.share(server.number, server.roll.names, server.roll.offers))
    cost.timed("server", lambda: server.shared(sealed))
    terms = server.terms()
    for name, vector in zip(names, vectors, strict=True):
        reply = {"vector": vector}
        found, _ = cost.timed(
            "vector", lambda name=name, reply=reply: sites[name].mask(ROUND, VERB, terms, bytes(32), reply)
        )
        cost.timed("server", lambda name=name, found=found: server.add(name, found))
    signatures = all_sites("check", lambda site: site.confirm(server.number, server.members)[0])
    cost.timed("server", lambda: server.confirmed(signatures))
    signed = server.signatures
    revealed = all_sites(
        "reveal",
        lambda site: site.reveal(server.number, list(signed), list(signed.values()), server.sealed_for(site.site)),
    )
    total = cost.timed("server", lambda: server.unmasked(revealed))
    cost.up = found.nbytes + protocol_bytes(len(names))[0]
    return cost, total["vector"].numpy()


@dataclass
class Peer:
    """A site of which others see what it sends."""

    name: str
    identity: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    encrypting: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)
    masking: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate)

    def offer(self, what: tuple[str | int, ...]) -> bytes:
        pairs = (self.encrypting, self.masking)
        keys = b"".join(pair.public_key().public_bytes_raw() for pair in pairs) + bytes(32)
        return keys + self.identity.sign(advertised(what, self.name, keys))

    def sealed(self, roll: Roll, place: int, receiver: int) -> bytes:
        agreed = agree(self.encrypting, roll.key_to_encrypt(receiver))
        cipher = ChaCha20Poly1305(roll.encryption_key(agreed, place, receiver))
        return cipher.encrypt(bytes(12), bytes(2 * SHARE_BYTES), None)


def part(vector: torch.Tensor, count: int, neighbours: Any, measured: int) -> tuple[Cost, int]:
    """What a sum over so many costs a site, and how many neighbours it has. The sites that are measured do their parts
    one after the other, and nothing that one has computed serves another."""
    options, number = SecureSumConfig(neighbours=neighbours), "number"
    what = ("run", ROUND, VERB, count, number)
    peers = [Peer(str(k)) for k in range(count)]
    roster = {peer.name: public(peer.identity) for peer in peers}
    layout, cost, asked, everyone = Layout.of({"vector": vector}, {}, count, options), Cost(), bytes(32), range(count)
    terms = {"sum": number, "sharers": list(everyone), "layout": layout.to_payload()}
    names, theirs = tuple(peer.name for peer in peers), [peer.offer(what) for peer in peers]
    for place in range(measured):
        site = Masking(names[place], "run", peers[place].identity, roster, Agreement(options, count))
        for cache in (is_signed, masking._shared_roll, graph, fewest):
            cache.cache_clear()
        own = cost.timed("keys", lambda site=site: site.advertise(ROUND, VERB, count, number))
        offers = (*theirs[:place], own, *theirs[place + 1 :])
        cost.timed("shares", lambda site=site, offers=offers: site.share(number, names, offers))
        cost.timed("vector", lambda site=site: site.mask(ROUND, VERB, terms, asked, {"vector": vector}))
        cost.timed("vector", lambda site=site: site.vouch(number))
        cost.timed("check", lambda site=site: site.confirm(number, everyone))
        roll = Roll(what, names, offers)
        found = graph(roll, options)
        said = statement("ask", terms, asked.hex())
        signed = [peer.identity.sign(consistent(roll, said, everyone)) for peer in peers]
        holders = found.holders(place)
        sealed = [peers[one].sealed(roll, one, place) if one != place else b"" for one in holders]
        vouchers = [] if found.is_full else [peers[one].identity.sign(vouched(roll, said)) for one in holders]
        graph.cache_clear()
        cost.timed("reveal", partial(site.reveal, number, everyone, signed, sealed, vouchers))
    up, cost.down = protocol_bytes(count, None if found.is_full else found.rows - 1)
    cost.up = up + layout.length * layout.dtype.itemsize
    return cost, found.rows - 1


def compare_graphs(kind: str, vector: torch.Tensor, count: int, measured: int) -> None:
    """One site's part with few neighbours and with all, in turn."""
    print(f"\n{kind}, {len(vector):,} numbers: one site of {count:,}, the mean of {measured}", flush=True)
    costs = {}
    for neighbours in ("auto", "all"):
        cost, found = part(vector, count, neighbours, measured)
        costs[neighbours] = cost
        steps = ", ".join(f"{step} {1000 * cost.steps[step] / measured:.0f}" for step in STEPS)
        print(
            f"{found:5} neighbours: {1000 * cost.site / measured:8.0f} ms ({steps}); {cost.up:,} bytes up, "
            f"{cost.down:,} down",
            flush=True,
        )
    few, every = costs["auto"], costs["all"]
    words = every.up - protocol_bytes(count)[0]
    up = (every.up - words) / (few.up - words)
    print(
        f"all / few: {every.site / few.site:.1f} times as long, {up:.1f} times as much up besides the vector, "
        f"{every.down / few.down:.1f} times as much down"
    )


def flower(vectors: Sequence[torch.Tensor]) -> tuple[Cost, np.ndarray]:
    """Flower's SecAgg+, whose sums are of fixed point, weighed by a number of examples: here, one each."""
    from flwr.common import bytes_to_ndarray, ndarrays_to_parameters
    from flwr.common.secure_aggregation.crypto.shamir import combine_shares
    from flwr.common.secure_aggregation.ndarrays_arithmetic import (
        parameters_addition,
        parameters_mod,
        parameters_subtraction,
    )
    from flwr.common.secure_aggregation.quantization import dequantize
    from flwr.common.secure_aggregation.secaggplus_constants import Key
    from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

    # The package has a function of the module's name.
    client: Any = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
    count = len(vectors)
    threshold, clipping, target, modulus = 2 * count // 3 + 1, 8.0, 2**22, 2**32
    states, cost = [client.SecAggPlusState(nid=k) for k in range(count)], Cost()
    setup = {Key.SAMPLE_NUMBER: count, Key.SHARE_NUMBER: count, Key.THRESHOLD: threshold, Key.MAX_WEIGHT: 1.0}
    setup |= {Key.CLIPPING_RANGE: clipping, Key.TARGET_RANGE: target, Key.MOD_RANGE: modulus}
    told = [cost.timed("keys", lambda state=state: client._setup(state, setup)) for state in states]
    keys = {str(k): (one[Key.PUBLIC_KEY_1], one[Key.PUBLIC_KEY_2]) for k, one in enumerate(told)}
    shared = [cost.timed("shares", lambda state=state: client._share_keys(state, keys)) for state in states]
    waiting: dict[int, list[tuple[int, bytes]]] = {k: [] for k in range(count)}
    for k, one in enumerate(shared):
        for to, sealed in zip(one[Key.DESTINATION_LIST], one[Key.CIPHERTEXT_LIST], strict=True):
            waiting[to].append((k, sealed))
    total: list[np.ndarray] | None = None
    for state, vector in zip(states, vectors, strict=True):
        parameters = ndarrays_to_parameters([vector.numpy().astype(np.float32)])
        got = {Key.SOURCE_LIST: [k for k, _ in waiting[state.nid]]}
        got[Key.CIPHERTEXT_LIST] = [sealed for _, sealed in waiting[state.nid]]
        sent = cost.timed("vector", partial(client._collect_masked_vectors, state, got, 1, parameters))
        found = [bytes_to_ndarray(part) for part in sent[Key.MASKED_PARAMETERS]]
        total = found if total is None else cost.timed("server", lambda a=total, b=found: parameters_addition(a, b))
    everyone = {Key.ACTIVE_NODE_ID_LIST: list(range(count)), Key.DEAD_NODE_ID_LIST: []}
    revealed = [cost.timed("reveal", lambda state=state: client._unmask(state, everyone)) for state in states]

    def unmasked() -> np.ndarray:
        assert total is not None
        left = total
        for k in range(count):
            seed = combine_shares([one[Key.SHARE_LIST][k] for one in revealed[:threshold]])
            left = parameters_subtraction(left, pseudo_rand_gen(seed, modulus, [part.shape for part in left]))
        [whole] = dequantize(parameters_mod(left, modulus)[1:], clipping, target)
        return whole - (count - 1) * clipping

    found = cost.timed("server", unmasked)
    cost.up = sum(len(part) for part in sent[Key.MASKED_PARAMETERS])
    cost.up += sum(map(len, told[0].values())) + sum(map(len, shared[0][Key.CIPHERTEXT_LIST]))
    cost.up += sum(map(len, revealed[0][Key.SHARE_LIST]))
    return cost, found


WAYS = {"in clear": clear, "Murmura": masked, "Flower": flower}


def vectors_of(kind: str, length: int, sites: int) -> list[torch.Tensor]:
    """Votes of at most 8, or updates within ±0.1."""
    drawn = torch.Generator().manual_seed(0)
    if kind == "votes":
        return [torch.randint(0, 9, (length,), generator=drawn) for _ in range(sites)]
    return [torch.rand(length, generator=drawn) / 5 - 0.1 for _ in range(sites)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=100, help="of the sums that are made as a whole; 0: none")
    parser.add_argument("--votes", type=int, default=2048, help="numbers of the one vector")
    parser.add_argument("--update", type=int, default=1_000_000, help="numbers of the other; 0 for none")
    parser.add_argument(
        "--many", type=int, default=1000, help="sites of a sum in which each has few neighbours; 0: none"
    )
    parser.add_argument("--measured", type=int, default=3, help="of these, sites whose part is measured")
    parser.add_argument("--without-flower", action="store_true", help="its shares of 100 sites take minutes")
    options = parser.parse_args(arguments)
    ways = dict(WAYS)
    if options.without_flower:
        del ways["Flower"]
    elif importlib.util.find_spec("flwr") is None:
        print("left out: Flower, since it is not installed. pip install -e '.[flower-bench]'")
        del ways["Flower"]
    print(f"machine: {machine()}")
    vectors = [(kind, length) for kind, length in (("votes", options.votes), ("update", options.update)) if length]
    if options.sites:
        print(f"{options.sites} sites, of which {2 * options.sites // 3 + 1} are enough; nobody drops out")
        for kind, length in vectors:
            compare(kind, vectors_of(kind, length, options.sites), ways)
    if options.many:
        for kind, length in vectors:
            compare_graphs(kind, vectors_of(kind, length, 1)[0], options.many, options.measured)
    return 0


def compare(kind: str, vectors: Sequence[torch.Tensor], ways: dict[str, Any]) -> None:
    """One vector, each way in turn; ends the program if a sum is wrong."""
    exact = np.sum([vector.numpy().astype(np.float64) for vector in vectors], axis=0)
    print(f"\n{kind}, {len(vectors[0]):,} numbers of {vectors[0].element_size()} bytes")
    costs: dict[str, Cost] = {}
    for name, way in ways.items():
        costs[name], found = way(vectors)
        far = float(np.abs(found - exact).max())
        if far > (0 if kind == "votes" and name != "Flower" else len(vectors) * 2.0**-18):
            raise SystemExit(f"{name} does not give the sum: one number is {far:g} off")
        show(name, costs[name], len(vectors), far)
    one = costs["Murmura"]
    print(f"a site sends {one.up / costs['in clear'].up:.2f} times the vector in clear")
    if "Flower" in costs:
        other = costs["Flower"]
        print(
            f"Flower / Murmura: a site works {other.site / one.site:.1f} times as long, the server "
            f"{other.server / one.server:.1f} times, and a site sends {other.up / one.up:.2f} times as much"
        )


def show(name: str, cost: Cost, sites: int, far: float) -> None:
    steps = ", ".join(f"{step} {1000 * cost.steps[step] / sites:.1f}" for step in STEPS if step in cost.steps)
    each = f"{1000 * cost.site / sites:8.1f} ms a site ({steps})" if steps else f"{0:8.1f} ms a site"
    print(f"{name:9}{each}; server {cost.server:.2f} s; {cost.up:,} bytes up a site; at most {far:.1g} off", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
