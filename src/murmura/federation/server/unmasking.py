"""The server's part in a secure sum (Bonawitz et al. 2017): it passes on what sites have for one another, adds up their
masked vectors, and takes the masks off the sum with what sites reveal at the end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from murmura.errors import RunError
from murmura.federation.wire import shamir
from murmura.federation.wire.layout import MASKED, Layout, as_vector
from murmura.federation.wire.masks import OFFER_BYTES, SIGNATURE_BYTES, Roll, add_mask, misshapen, packed, unpacked
from murmura.federation.wire.messages import Payload, Reply
from murmura.federation.wire.neighbours import graph
from murmura.federation.wire.releases import VOUCHED
from murmura.federation.wire.shamir import SEALED_BYTES, SHARE_BYTES
from murmura.federation.wire.sums import Sum

Each = Mapping[str, Payload] | None
"""Fields for single sites."""
Misfits = Callable[[Reply], str | None]
"""Why an answer is left out, in words; None where it is not."""


class Unmasking:
    """One sum, step by step: what each step takes in comes from the sites that answered, by their names.

    Args:
        run, round, verb: what is summed.
        sites: those that are asked.
        layout: of their vectors.

    Attributes:
        number: names the sum, and is used once.
        least: the threshold; with fewer sites there is no sum, and nothing is revealed.
        left_out: sites that have answered a step of it otherwise than they should; noted by whoever asks them.
    """

    def __init__(self, run: str, round: int, verb: str, sites: Sequence[str], layout: Layout) -> None:
        self.number = secrets.token_hex(16)
        self.layout, self.asked, self.verb = layout, list(sites), verb
        self.least = layout.options.least(len(sites))
        self.left_out: set[str] = set()
        self._what = (run, round, verb, len(sites), self.number)
        self._places: dict[str, int] = {}
        self._sealed: dict[int, Sequence[bytes]] = {}
        self._vouchers: dict[int, bytes] = {}
        self._total = np.zeros(layout.length, layout.dtype)
        self.sharers: list[int] = []
        self.members: list[int] = []
        self.signatures: dict[int, bytes] = {}

    def advertised(self, offers: Mapping[str, bytes]) -> None:
        """Step 0: the sites' keys."""
        names = [site for site in self.asked if site in offers]
        self._require(names, "advertised keys")
        self.roll = Roll(self._what, tuple(names), tuple(offers[name] for name in names))
        self._places = {name: place for place, name in enumerate(names)}
        self.graph = graph(self.roll, self.layout.options)

    def shared(self, sealed: Mapping[str, Sequence[bytes]]) -> None:
        """Step 1: what each site has encrypted for each of its holders."""
        self._require(sealed, "shared their secrets")
        self._sealed = {self._places[name]: own for name, own in sealed.items()}
        self.sharers = sorted(self._sealed)

    def terms(self) -> dict[str, Any]:
        """What sites are told with the ask that they answer with a masked vector; JSON."""
        return {"sum": self.number, "sharers": self.sharers, "layout": self.layout.to_payload()}

    def add(self, site: str, vector: np.ndarray, voucher: bytes = b"") -> None:
        """Step 2: a masked vector, which is of the layout; and what its site has signed, unless all are neighbours."""
        self._total += vector
        self.members.append(self._places[site])
        self._vouchers[self._places[site]] = voucher

    def collected(self) -> None:
        """Step 2 is over."""
        self.members.sort()
        self._require(self.members, "sent their part")

    def confirmed(self, signatures: Mapping[str, bytes]) -> None:
        """Step 3: signatures of who is in."""
        self._require(signatures, "confirmed who is in the sum")
        self.signatures = {self._places[name]: signatures[name] for name in sorted(signatures, key=self._places.get)}  # type: ignore[arg-type]

    def sealed_for(self, site: str) -> list[bytes]:
        """What each of a site's holders has encrypted for it; nothing where one has not."""
        place = self._places[site]
        holders = self.graph.holders(place)
        return [self._sealed[one][self.graph.row(one, place)] if one in self._sealed else b"" for one in holders]

    def vouchers_for(self, site: str) -> list[bytes]:
        """What each of a site's holders has signed with its masked vector; none where all sites are neighbours."""
        if self.graph.is_full:
            return []
        return [self._vouchers.get(one, b"") for one in self.graph.holders(self._places[site])]

    def for_one(self, site: str) -> Payload:
        """What one site alone is sent to reveal its shares with."""
        own: Payload = {"sealed": packed(self.sealed_for(site), SEALED_BYTES)}
        if not self.graph.is_full:
            own["vouchers"] = packed(self.vouchers_for(site), SIGNATURE_BYTES)
        return own

    def misfit(self, reply: Reply) -> str | None:
        """Why what a site has sent with its masked vector cannot be used, in words; None where it can."""
        if why := self.layout.misfit(reply.fields):
            return why
        if len(reply.fields) > (1 if self.graph.is_full else 2):
            return "it holds a field that no masked reply has"
        return None if self.graph.is_full else misshapen(reply.fields.get(VOUCHED), 1, SIGNATURE_BYTES)

    def sizes(self) -> dict[str, int]:
        """Bytes that each field of a site's reply takes in what it sends under masks."""
        return self.layout.sizes() | ({} if self.graph.is_full else {VOUCHED: SIGNATURE_BYTES})

    def names(self, places: Sequence[int]) -> list[str]:
        return [self.roll.names[place] for place in places]

    def unmasked(self, revealed: Mapping[str, Sequence[bytes]]) -> Sum:
        """Step 4: the sum, from the shares that sites reveal.

        Args:
            revealed: by site, its share of each of its holders.

        Raises:
            RunError: too few have, or their shares do not fit what was advertised.
        """
        self._require(revealed, "helped to take the masks off")
        shares = {self._places[name]: own for name, own in revealed.items()}
        members = set(self.members)
        for peer in self.sharers:
            secret = self._joined(peer, shares)
            if peer in members:
                if sha256(secret).digest() != self.roll.seed_digest(peer):
                    raise self._spoilt(self.roll.names[peer])
                add_mask(self._total, secret, -1)
            else:
                self._take_off_pairs(peer, secret, members)
        return self.layout.sum(self._total, self.names(self.members))

    def _joined(self, peer: int, revealed: Mapping[int, Sequence[bytes]]) -> bytes:
        """A site's secret, of shares by the places of those who have revealed some."""
        site, graph = self.roll.names[peer], self.graph
        holders = graph.holders(peer)
        helpers = [holder for holder in holders if holder in revealed][: graph.threshold]
        if len(helpers) < graph.threshold:
            passing, first = remedy(self.names(holders), self.left_out, graph.threshold)
            raise RunError(
                f"only {len(helpers)} of site {site}'s {len(holders) - 1} neighbours and itself helped to "
                f"take its masks off the sum, and it needs {graph.threshold}",
                fix=f"{first} and start again with --resume, or raise aggregation.secure.dropouts.",
                passing=passing,
            )
        shares = {graph.row(peer, holder) + 1: revealed[holder][graph.row(holder, peer)] for holder in helpers}
        try:
            return shamir.join(shares)
        except ValueError:
            raise self._spoilt(site) from None

    def _take_off_pairs(self, gone: int, secret: bytes, members: set[int]) -> None:
        """Take off the masks that sites have shared with one that has dropped out."""
        key = X25519PrivateKey.from_private_bytes(secret)
        if key.public_key().public_bytes_raw() != self.roll.key_to_mask(gone):
            raise self._spoilt(self.roll.names[gone])
        for member in members.intersection(self.graph.holders(gone)):
            add_mask(self._total, self.roll.mask_seed(key, gone, member), -1 if member < gone else 1)

    def _spoilt(self, site: str) -> RunError:
        return RunError(
            f"the sites' shares for site {site} do not fit together, so the masks cannot be taken off the sum",
            fix="A site has sent wrong shares: start again with --resume, and if it happens again, look for the site.",
        )

    def _require(self, sites: Sequence[object] | Mapping[str, object], what: str) -> None:
        if len(sites) < self.least:
            passing, first = remedy(self.asked, self.left_out, self.least)
            raise RunError(
                f"only {len(sites)} of {len(self.asked)} sites {what}; a secure sum needs {self.least}, and nothing of "
                "it was revealed",
                fix=f"{first} and start again with --resume, or ask more sites. What a site has refused, "
                "and why, is in notes.txt of its private folder.",
                passing=passing,
            )


def remedy(asked: Sequence[str], left_out: set[str], needed: int) -> tuple[bool, str]:
    """Whether too few answers may pass by itself, which no site that comes back brings about where too many answers are
    left out; and what to do first."""
    passing = len(asked) - len(left_out.intersection(asked)) >= needed
    return passing, "Bring the sites back" if passing else "Mend what answers are left out for"


def step_by_step(
    now: Unmasking,
    step: Callable[[str, Sequence[str], Payload, Each, Misfits], Iterator[Reply]],
    masked: Callable[[Sequence[str]], Iterator[Reply]],
    settled: Callable[[int], None] | None = None,
) -> Sum:
    """A sum, of which ``SecureSumming`` has what sites do at each step.

    Args:
        step: asks sites for one of ``STEPS``.
        masked: asks sites for their masked vectors.
        settled: is called with how many sites are in the sum, before anything of it is revealed.

    Raises:
        RunError: too few sites go along with it to the end, or what they reveal does not fit.
    """

    def rows(
        name: str, sites: Sequence[str], field: str, count: int, width: int, fields: Payload, each: Each = None
    ) -> dict[str, list[bytes]]:
        replies = step(name, sites, fields, each, lambda reply: misshapen(reply.fields.get(field), count, width))
        return {reply.site: unpacked(reply[field], count, width) for reply in replies}

    fields: Payload = {"verb": now.verb, "sites": len(now.asked)}
    offers = rows("advertise_keys", now.asked, "keys", 1, OFFER_BYTES, fields)
    now.advertised({site: offer for site, [offer] in offers.items()})
    names, count = list(now.roll.names), now.graph.rows
    fields = {"names": names, "keys": packed(now.roll.offers, OFFER_BYTES)}
    now.shared(rows("share_keys", names, "sealed", count, SEALED_BYTES, fields))
    for reply in masked(now.names(now.sharers)):
        now.add(reply.site, as_vector(reply[MASKED]), b"" if now.graph.is_full else reply[VOUCHED].numpy().tobytes())
    now.collected()
    members = now.names(now.members)
    signatures = rows("check_consistency", members, "signature", 1, SIGNATURE_BYTES, {"members": now.members})
    now.confirmed({site: signature for site, [signature] in signatures.items()})
    if settled is not None:
        settled(len(members))
    fields = {"signers": list(now.signatures), "signatures": packed(list(now.signatures.values()), SIGNATURE_BYTES)}
    helpers = now.names(list(now.signatures))
    return now.unmasked(
        rows("unmask", helpers, "shares", count, SHARE_BYTES, fields, {site: now.for_one(site) for site in helpers})
    )
