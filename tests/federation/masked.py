"""Sites and a server of secure sums, without engines: what passes between them can be changed on its way."""

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from murmura.aggregation.config import SecureSumConfig
from murmura.federation.server.unmasking import Unmasking
from murmura.federation.site.identity import public
from murmura.federation.site.masking import Masking
from murmura.federation.wire import neighbours
from murmura.federation.wire.layout import Agreement, Layout
from murmura.federation.wire.neighbours import Degree

SECURE = SecureSumConfig()


@pytest.fixture(params=["all", "ring"])
def each_graph(request, monkeypatch):
    """Once with all sites as neighbours, and once each with two, of which two shares are enough: so few protect nothing
    against sites that help the server, but every check of a site is the same as in a large sum."""
    if request.param == "ring":
        monkeypatch.setattr(neighbours, "degree", lambda count, asked, options: Degree(2, 2))
        neighbours.graph.cache_clear()
        monkeypatch.setattr(neighbours, "_SLOW", 2)
        yield "ring"
        neighbours.graph.cache_clear()
    else:
        yield "all"


class Parties:
    """``count`` sites called a, b, c, ... and the server of one sum of vectors of whole numbers.

    Every step takes the sites that take part in it; ``told`` lets a test change what one of them is told.
    """

    def __init__(self, count, like=None, options=SECURE, weights=None, cohort=None, drawn=None):
        self.names = [chr(ord("a") + k) if count <= 26 else f"site-{k:03}" for k in range(count)]
        keys = {name: Ed25519PrivateKey.generate() for name in self.names}
        self.roster = {name: public(key) for name, key in keys.items()}
        agreement = Agreement(options, count if cohort is None else cohort, drawn)
        self.sites = {name: Masking(name, "run", keys[name], self.roster, agreement) for name in self.names}
        like = {"votes": torch.zeros(4, dtype=torch.int64)} if like is None else like
        self.layout = Layout.of(like, weights or {}, count, options)
        self.begin()

    def begin(self, round=1):
        self.round = round
        self.server = Unmasking("run", round, "vote", self.names, self.layout)

    def advertise(self, among):
        self.server.advertised({name: self.offer(name) for name in among})

    def offer(self, name):
        return self.sites[name].advertise(self.round, "vote", len(self.names), self.server.number)

    def share(self, among, told=None):
        names, offers = self.server.roll.names, self.server.roll.offers
        sealed = {}
        for name in among:
            own = (told or {}).get(name, (names, offers))
            sealed[name] = self.sites[name].share(self.server.number, *own)
        self.server.shared(sealed)

    @property
    def terms(self):
        return {"sum": self.server.number, "sharers": self.server.sharers, "layout": self.layout.to_payload()}

    def collect(self, replies, told=None, asked=None):
        """``replies`` by site."""
        for name, reply in replies.items():
            terms = {**self.terms, **(told or {}).get(name, {})}
            digest = (asked or {}).get(name, b"asked")
            vector, _ = self.sites[name].mask(self.round, "vote", terms, digest, reply, self.layout.weights)
            self.server.add(name, vector, self.sites[name].vouch(self.server.number) or b"")
        self.server.collected()

    def confirm(self, among, told=None):
        given = {name: (told or {}).get(name, self.server.members) for name in among}
        number = self.server.number
        self.server.confirmed({name: self.sites[name].confirm(number, own)[0] for name, own in given.items()})

    def reveal(self, name):
        signed = self.server.signatures
        sealed, vouchers = self.server.sealed_for(name), self.server.vouchers_for(name)
        return self.sites[name].reveal(self.server.number, list(signed), list(signed.values()), sealed, vouchers)

    def unmask(self, among):
        return self.server.unmasked({name: self.reveal(name) for name in among})


def votes(*numbers):
    return {"votes": torch.tensor(numbers)}
