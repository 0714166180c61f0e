"""A site's part in secure sums: it hides its vector, and reveals no more than what takes the masks off the sum.

Bonawitz et al. 2017, Figure 4, with the steps against a server that lies. Each site makes two key pairs for a sum, and
a seed. Its vector leaves with a mask of the seed, and with one for each pair of neighbours, which one of the two adds
and the other takes away. The seed and the private key of the pair masks are shared out among the neighbours by Shamir's
scheme: so for each site whose vector is in the sum these reveal shares of its seed, and for each that has dropped out
shares of its key, and never both. Before that, more than the threshold must have signed the same list of who is in.

Neighbours are all, or in large sums those that ``wire/neighbours.py`` has. There a site also signs, when its masked
vector leaves, what it was asked and with whom it was told to share masks, and its neighbours reveal nothing of a site
that was told anything else: it could otherwise have been told of none of its honest neighbours.

Beyond the paper: the signature also covers the keys of all and a digest of what was asked, so that a server is noticed
that sends sites different models, or masks, to make one of them stand out (Pasquini et al. 2022). And shares that
others have encrypted for a site are handed to it when it is to reveal them, not before.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from murmura.errors import SecureSumError
from murmura.federation.site.identity import Roster, is_signed, public
from murmura.federation.site.signed import SignedInAllRuns
from murmura.federation.wire import shamir
from murmura.federation.wire.layout import Agreement, Layout, entries_of
from murmura.federation.wire.masks import Roll, add_mask, advertised, agree, consistent, statement, vouched
from murmura.federation.wire.messages import Payload, digest
from murmura.federation.wire.neighbours import Graph, graph
from murmura.privacy.journal import Journal
from murmura.runs.names import ROSTER

_AGAIN = "a secure sum of this round is made again, as when a run is resumed. With noise in it, its ε has to count both"
_NOT_KEPT = (
    "no account over all runs is kept here (budget.folder), so this site does not notice where another run on the same "
    "records makes the same sum over other sites: of the two, the difference could be read"
)
_NONCE = bytes(12)  # each key encrypts one message
Step = Literal["advertised", "shared", "masked", "confirmed"]


@dataclass
class _Sum:
    """One sum, as far as it has come. Its secrets are nowhere else."""

    what: tuple[str | int, ...]
    step: Step
    encrypting: X25519PrivateKey
    masking: X25519PrivateKey
    seed: bytes
    offer: bytes
    roll: Roll | None = None
    graph: Graph | None = None
    place: int = -1
    own: bytes = b""  # the share of its own seed
    agreed: dict[int, bytes] = field(default_factory=dict)  # with each neighbour, to encrypt
    asked: bytes = b""
    question: str = ""
    made: str = ""  # digest of the site's reply, which is never told to anybody
    sharers: tuple[int, ...] = ()
    members: tuple[int, ...] = ()

    @property
    def asked_sites(self) -> int:
        return int(self.what[3])


class Masking:
    """What one site does in the secure sums of a run, one at a time. A step that it refuses ends the sum for it.

    Args:
        site: its name.
        run: the run's id, once the site has joined it.
        key: its identity.
        roster: of all sites.
        agreement: what the experiment says of secure sums.
        journal: of every sum that it has signed; it does not go back when the run does.
        all_runs: the same of all runs; None: nobody keeps it.

    Raises:
        SecureSumError: the roster has another key for this site.
    """

    def __init__(
        self,
        site: str,
        run: str,
        key: Ed25519PrivateKey,
        roster: Roster,
        agreement: Agreement,
        journal: Journal | None = None,
        all_runs: SignedInAllRuns | None = None,
    ) -> None:
        self.site, self.run, self.roster, self.agreement = site, run, roster, agreement
        self._key, self._journal = key, journal or Journal(what="journal of secure sums")
        self._all_runs, self._warned = all_runs, False
        self._sum: _Sum | None = None
        self._used: set[str] = set()
        if roster.get(site) != public(key):
            _refuse("the roster of sites does not have this site's identity key")

    def advertise(self, round: int, verb: str, asked: int, number: str) -> bytes:
        """Fresh keys for a sum, signed.

        Args:
            asked: how many sites take part.
            number: used once.

        Raises:
            SecureSumError: too few sites take part, or the number was used before.
        """
        self._sum = None
        if asked > (known := len(self.roster)):
            _refuse(f"a sum over {asked} sites, where this site's roster has {known}", _OLD)
        if asked < (least := self.agreement.cohort):
            _refuse(f"a sum over {asked} sites, where the experiment has {least} or more take part", _OLD)
        if number in self._used:
            _refuse("a sum is asked for a second time")
        self._used.add(number)
        encrypting, masking = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        what, seed = (self.run, round, verb, asked, number), secrets.token_bytes(32)
        keys = b"".join(key.public_key().public_bytes_raw() for key in (encrypting, masking)) + sha256(seed).digest()
        offer = keys + self._key.sign(advertised(what, self.site, keys))
        self._sum = _Sum(what, "advertised", encrypting, masking, seed, offer)
        return offer

    def share(self, number: str, names: Sequence[str], offers: Sequence[bytes]) -> list[bytes]:
        """Shares of this site's secrets, encrypted for each of its holders (``Graph.holders``); nothing in its own row.

        Args:
            names: of all who have advertised keys.
            offers: what they have advertised.

        Raises:
            SecureSumError: the list is not one that an honest server sends.
        """
        now = self._step(number, "advertised")
        if len(names) != len(set(names)) or len(names) != len(offers) or self.site not in names:
            _refuse("the list of sites has some twice, or not this one")
        if not self._least(now) <= len(names) <= now.asked_sites:
            _refuse(f"{len(names)} of {now.asked_sites} sites have keys, which are too few, or too many")
        if self.agreement.drawn and not set(names) <= set(self.agreement.drawn(int(now.what[1]))):
            _refuse(f"keys are shared among sites that this run does not ask in round {now.what[1]}", _OLD)
        roll = _shared_roll(now.what, tuple(names), tuple(offers))
        now.place = names.index(self.site)
        if roll.offers[now.place] != now.offer:
            _refuse("the keys that are said to be this site's are not")
        for place, name in enumerate(names):
            self._require_signed(name, *roll.signed(place))
        keys = [key for place in range(len(names)) for key in (roll.key_to_encrypt(place), roll.key_to_mask(place))]
        if len(set(keys)) < len(keys):
            _refuse("two sites have the same key")
        now.roll, now.graph = roll, graph(roll, self.agreement.options)
        holders, threshold = now.graph.holders(now.place), now.graph.threshold
        of_key = shamir.split(now.masking.private_bytes_raw(), len(holders), threshold)
        of_seed = shamir.split(now.seed, len(holders), threshold)
        sealed = []
        for row, peer in enumerate(holders):
            if peer == now.place:
                now.own = of_seed[row]
                sealed.append(b"")
                continue
            now.agreed[peer] = _agreed(roll, now.encrypting, peer)
            key = roll.encryption_key(now.agreed[peer], now.place, peer)
            sealed.append(ChaCha20Poly1305(key).encrypt(_NONCE, of_key[row] + of_seed[row], None))
        self._reached(now, "shared")
        return sealed

    def mask(
        self,
        round: int,
        verb: str,
        terms: Mapping[str, Any],
        asked: bytes,
        reply: Payload,
        weights: Mapping[str, str] | None = None,
    ) -> tuple[np.ndarray, list[str]]:
        """A reply as it may leave, and what of it was clipped, in words.

        Args:
            terms: of the sum: its number, places of the ``sharers``, the ``layout``.
            asked: digest of the fields that were asked with.
            weights: what its fields are weighed by, as the site's own method has it (``Verbs.weights``).

        Raises:
            SecureSumError: the terms are not those that an honest server sends, or the layout is not that of the reply.
            RunError: the reply holds a number that cannot be summed.
        """
        now = self._step(terms["sum"], "shared")
        assert now.roll is not None and now.graph is not None
        if (round, verb) != (now.what[1], now.what[2]):
            _refuse(f"keys were made for round {now.what[1]} and verb '{now.what[2]}'")
        now.sharers = self._places(now, terms["sharers"], range(len(now.roll.names)))
        now.asked, now.question = statement("ask", terms, asked.hex()), asked.hex()
        vector, told = Layout(entries_of(terms), weights or {}, now.asked_sites, self.agreement.options).vector(reply)
        now.made = digest(reply).hex() if self._all_runs and not _is_nothing(reply) else ""
        add_mask(vector, now.seed, 1)
        sharers = set(now.sharers)
        for peer in now.graph.holders(now.place):
            if peer != now.place and peer in sharers:
                add_mask(vector, self._pair_seed(now.roll, now, peer), 1 if now.place < peer else -1)
        self._reached(now, "masked")
        return vector, told

    def vouch(self, number: str) -> bytes | None:
        """The site's signature of what it was asked, and with whom it may have masked, which leaves with its vector;
        None where all sites are neighbours.

        Raises:
            SecureSumError: the sum is not at that step.
        """
        now = self._step(number, "masked")
        assert now.roll is not None and now.graph is not None
        self._reached(now, "masked")
        return None if now.graph.is_full else self._key.sign(vouched(now.roll, now.asked))

    def confirm(self, number: str, members: Sequence[int]) -> tuple[bytes, list[str]]:
        """A signature of whose vectors are in the sum; and what to tell the site's owner, such as that it has signed
        one of this round and verb before, as when a run is resumed.

        Of two sums of the same vectors over different sites the difference can be read. So what is signed is in the
        site's journal before, and what is signed again is of the same sites.

        Raises:
            SecureSumError: the list is not one that an honest server sends, or is of other sites than before.
            CheckpointError: the journal cannot be written.
        """
        now = self._step(number, "masked")
        assert now.roll is not None
        now.members = self._places(now, members, now.sharers)
        about = {"round": now.what[1], "verb": now.what[2]}
        line = {**about, "sites": statement("sites", sorted(now.roll.names[place] for place in now.members)).hex()}
        before = [one for one in self._journal.lines if about.items() <= one.items()]
        if any(one != line for one in before) and not self.agreement.options.allow_cohort_change_on_retry:
            _refuse(
                f"round {now.what[1]} is summed again over other sites than before, and of the two sums the difference "
                "could be read",
                "Have the same sites in it; or if that difference may be known, set "
                "aggregation.secure.allow_cohort_change_on_retry = true. If it is a round of another run, that needs "
                "another run.seed and a new folder of this site's: its journal does not tell runs apart.",
            )
        told = [_AGAIN] if before else []
        if self._all_runs is not None:
            entry = {"verb": line["verb"], "asked": now.question, "made": now.made, "sites": line["sites"]}
            told += self._all_runs.enter(
                entry, run=self.run, repeats=self.agreement.options.allow_cohort_change_on_retry
            )
        elif not self._warned:
            told.append(_NOT_KEPT)
            self._warned = True
        self._journal.append(line)
        self._reached(now, "confirmed")
        return self._key.sign(consistent(now.roll, now.asked, now.members)), told

    def reveal(
        self,
        number: str,
        signers: Sequence[int],
        signatures: Sequence[bytes],
        sealed: Sequence[bytes],
        vouchers: Sequence[bytes] = (),
    ) -> list[bytes]:
        """Of each of its holders, a share of the seed if that is in the sum, or of the key if it has dropped out;
        nothing for others. With that the site has forgotten the sum.

        Args:
            signers: places of those who have signed who is in.
            signatures: theirs.
            sealed: what each of its holders has encrypted for this one.
            vouchers: what each of them has signed with its masked vector; none where all sites are neighbours.

        Raises:
            SecureSumError: too few have signed what this site has signed, a neighbour was told something else, or a
                message was changed.
        """
        now = self._step(number, "confirmed")
        roll = now.roll
        assert roll is not None and now.graph is not None
        holders, sharers, members = now.graph.holders(now.place), set(now.sharers), set(now.members)
        signers = self._places(now, signers, now.members, own=False)
        due = 0 if now.graph.is_full else len(holders)
        if (len(signatures), len(sealed), len(vouchers)) != (len(signers), len(holders), due):
            _refuse("signatures or shares are missing")
        signed = consistent(roll, now.asked, now.members)
        for place, signature in zip(signers, signatures, strict=True):
            self._require_signed(roll.names[place], signed, signature)
        for peer, voucher in zip(holders, vouchers, strict=False):
            if peer in members:
                self._require_signed(roll.names[peer], vouched(roll, now.asked), voucher)
        revealed = [b""] * len(holders)
        for row, peer in enumerate(holders):
            if peer == now.place:
                revealed[row] = now.own
            elif peer in sharers:
                of_key, of_seed = self._opened(now, roll, peer, sealed[row])
                revealed[row] = of_seed if peer in members else of_key
        return revealed

    def _opened(self, now: _Sum, roll: Roll, peer: int, sealed: bytes) -> tuple[bytes, bytes]:
        """Shares of a neighbour's key and seed."""
        key = roll.encryption_key(now.agreed[peer], peer, now.place)
        try:
            opened = ChaCha20Poly1305(key).decrypt(_NONCE, sealed, None)
        except InvalidTag:
            _refuse(f"what site {roll.names[peer]} has encrypted for this one was changed on its way")
        return opened[: shamir.SHARE_BYTES], opened[shamir.SHARE_BYTES :]

    # ---- what it holds the server to -----------------------------------------------------------------------------

    def _step(self, number: str, after: Step) -> _Sum:
        """The sum, taken out: it is put back when the step has gone well."""
        now, self._sum = self._sum, None
        if now is None or now.what[4] != number or now.step != after:
            _refuse("a step of a sum that this site is not at")
        return now

    def _reached(self, now: _Sum, step: Step) -> None:
        now.step = step
        self._sum = now

    @property
    def least(self) -> int:
        """The fewest sites that the sum at hand can end with, by what this site itself knows: noise that sites add in
        shares is sized for so many.

        Raises:
            SecureSumError: there is no sum.
        """
        if self._sum is None:
            _refuse("a share of noise is asked for, and there is no sum")
        return self._least(self._sum)

    def _least(self, now: _Sum) -> int:
        return self.agreement.options.least(now.asked_sites)

    def _places(self, now: _Sum, places: Sequence[int], among: Sequence[int], *, own: bool = True) -> tuple[int, ...]:
        """Places in ascending order, all of them among others, enough of them, and this site's too."""
        if list(places) != sorted(set(places)) or not set(places) <= set(among):
            _refuse("a list of sites is not in order, or names some that are not in the sum")
        if own and now.place not in places:
            _refuse("a list of sites does not have this one")
        if len(places) < self._least(now):
            _refuse(f"{len(places)} sites of {now.asked_sites} are left, fewer than the threshold {self._least(now)}")
        return tuple(places)

    def _require_signed(self, site: str, what: bytes, signature: bytes) -> None:
        known = self.roster.get(site)
        if known is None:
            _refuse(f"site {site} is not in the roster of sites", _OLD)
        if not is_signed(known, what, signature):
            _refuse(f"the signature that is said to be of site {site} is not, or it has signed something else")

    def _pair_seed(self, roll: Roll, now: _Sum, peer: int) -> bytes:
        """The seed of the mask that this site shares with a peer."""
        try:
            return roll.mask_seed(now.masking, now.place, peer)
        except ValueError:
            _refuse(f"the key of site {roll.names[peer]} is none")


_shared_roll = lru_cache(maxsize=2)(Roll)  # simulated sites are all told the same, and keep it once


def _is_nothing(value: Any) -> bool:
    """Whether all tensors of a reply are zero, as updates are that do not count: of such a site no difference of two
    sums tells anything, whatever else they hold."""
    if isinstance(value, Mapping):
        return all(map(_is_nothing, value.values()))
    return not isinstance(value, torch.Tensor) or not value.any()


def _agreed(roll: Roll, own: X25519PrivateKey, peer: int) -> bytes:
    try:
        return agree(own, roll.key_to_encrypt(peer))
    except ValueError:
        _refuse(f"the key of site {roll.names[peer]} is none")


_FIX = "If nobody changed the roster or the site's identity key, do not trust this server."
_OLD = (
    f"If whoever leads the federation has a newer roster (@federation/{ROSTER}), get it, compare its keys, and start "
    "the site again: `murmura site start`. If this is the newest, do not trust this server."
)


def _refuse(why: str, fix: str = _FIX) -> NoReturn:
    what = f"{why}: this site takes no further part in the secure sum, and reveals nothing of it"
    raise SecureSumError(what, fix=fix)
