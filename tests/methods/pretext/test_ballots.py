"""What a site's votes follow from: some of its own texts, and nobody else's."""

from types import SimpleNamespace

import numpy as np
import torch

from murmura.data.records import Document
from murmura.methods.pretext.ballots import Ballots
from murmura.methods.pretext.config import PretextConfig
from murmura.streams import Stream


class Encoder:
    """To whom a text is the number that it ends with; it remembers what was embedded together."""

    def __init__(self):
        self.groups = []

    def embed_apart(self, groups):
        self.groups += [list(group) for group in groups]
        return [
            np.array([[float(text.split()[-1]), 0.0] for text in group], np.float32).reshape(-1, 2) for group in groups
        ]


def cohort(encoder, sizes, round=1, told=None):
    sites = [
        SimpleNamespace(
            name=name,
            size=size,
            records=[Document(f"{name} {number}") for number in range(size)],
            tell=(told if told is not None else []).append,
        )
        for name, size in sizes.items()
    ]
    bench = SimpleNamespace(device="cpu", resources=SimpleNamespace(encoder=lambda option: encoder))
    return SimpleNamespace(sites=sites, round=round, stream=Stream(0), runtime=bench)


def test_at_most_s_texts_of_a_site_vote_the_same_in_every_round_and_are_embedded_once_and_alone():
    encoder, told, where = Encoder(), [], torch.arange(20.0)[:, None] * torch.tensor([1.0, 0.0])
    own = Ballots(PretextConfig(public="x", texts_per_site=3))
    first = own.votes(cohort(encoder, {"north": 12, "south": 2}, told=told), where)
    assert [int(votes.sum()) for votes in first] == [3, 2] and first[0].max() == 1
    assert first[1].nonzero().flatten().tolist() == [0, 1]
    assert told == ["Only 3 of your 12 texts take part, drawn at random (method.texts_per_site)."]
    again = own.votes(cohort(encoder, {"south": 2, "north": 12, "west": 0}, round=2, told=told), where)
    assert torch.equal(again[1], first[0]) and torch.equal(again[0], first[1]) and not again[2].any()
    assert len(told) == 1
    assert [{text.split()[0] for text in group} for group in encoder.groups] == [{"north"}, {"south"}, set()]
    # Another process, which goes on with the run, draws the same ones.
    other = Ballots(own.config).votes(cohort(Encoder(), {"north": 12}, round=5), where)
    assert torch.equal(other[0], first[0])
