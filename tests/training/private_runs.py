"""Plans of privacy, and training by them, as tests of private training take them."""

import random

from murmura.privacy.clipping import ExampleClipping
from murmura.privacy.entropy import SeededEntropy
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FullParticipation
from murmura.streams import Stream
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.loop import train
from murmura.training.private import Private
from tests.training.helpers import Item, random_state

SPEC = LoraSpec(rank=4, alpha=8)
HUGE = 1e9  # a clipping norm that nothing reaches
SGD = LocalTraining(optimizer="sgd", lr=1.0, clip=0.01)  # the clip must not count: the plan has a norm
LR = 0.5


def plan(sampler=None, *, norm=HUGE, groups=1, std=0.0, clip=ExampleClipping, steps=1000):
    sampler, clipping, noise = sampler or FullParticipation(), clip(norm, groups), GaussianNoise(std)
    return PrivacyPlan("record", "zero-out", sampler, clipping, noise, steps, delta=1e-5)


def secret(*path):
    return SeededEntropy(Stream(7, path))


def run(bank, shards, plans, training=SGD, *, starts=None, entropy=None, lr=LR, **options):
    count = len(shards)
    starts = starts or [random_state(bank, k) for k in range(count)]
    entropy = entropy or [secret(k) for k in range(count)]
    streams = [Stream(0, (k,)) for k in range(count)]
    return train(bank, shards, starts, training, lr, streams, privacy=Private(plans, entropy), **options)


def moved(bank, result, start, lr=LR):
    """The gradient that one step of SGD followed, as a vector [P]."""
    return (bank.pack(start) - bank.pack(result.state)) / lr


def alike(count, *, seed=0, length=12):
    """Records with equally many labelled tokens, so that a mean over records is the mean over their tokens."""
    rng = random.Random(seed)
    made = [[rng.randrange(10, 250) for _ in range(length)] for _ in range(count)]
    return [Item(ids, [-100] * 4 + ids[4:]) for ids in made]
