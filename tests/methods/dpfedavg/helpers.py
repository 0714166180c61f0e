"""Secret randomness that is none, sites that answer what they are told to, and what a run would do by hand."""

import pytest
import torch

from murmura.federation.server.checkpoint import latest
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import Ask, Failure, Reply
from murmura.privacy.clipping import clip
from murmura.privacy.entropy import Entropy
from murmura.training.adapter import subtract
from murmura.training.config import LocalTraining
from tests.federation.world import MEASURED, Scripted, lead, make_world
from tests.privacy.plans import Rehearsed
from tests.training.helpers import EPS

TRAINING = LocalTraining(lr=0.01, batch_size=2, eps=EPS, schedule="constant")
HUGE = 1e6


def seeded(server, round):
    return Rehearsed(server.stream / "entropy" / round)


class Silent(Entropy):
    """No noise, and everybody's lot is the same."""

    is_secret = True

    def __init__(self, lot=0.0):
        self.lot = lot

    def bytes(self, count):
        return bytes(count)

    def uniform(self, count):
        return torch.full((count,), self.lot).numpy()

    def normal(self, count):
        return torch.zeros(count)


def given(method, entropy):
    """A method with another source of randomness than its own; None leaves it that."""
    if entropy is not None:
        method.entropy = entropy
    return method


def run(tokenizer, folder, method, **options):
    return lead(tokenizer, method, folder, **{"training": TRAINING} | options)


def scripted(tokenizer, folder, method, update, *, fails=(), **options):
    """A world whose sites' updates are ``update(site, round)`` on every weight, before they are clipped."""
    world = make_world(tokenizer, method, folder, **options)

    def answer(site, ask):
        if site in fails:
            return Failure(site, "gone")
        change = {name: torch.full_like(t, update(site, ask.round)) for name, t in ask["adapter"].items()}
        clipped, unclipped = clip(change, ask["norm"])
        bit = {"unclipped": torch.tensor(0.5 if unclipped else -0.5)} if method.config.unclipped_is_sent else {}
        return Reply(site, {"update": clipped} | bit)

    world.fleet.engine = Scripted(answer)
    return world


def site_updates(world, adapter, round, **options):
    """What each site alone learns from ``adapter`` in a round, with these options of ``Cohort.train``."""
    found = []
    for site in world.sites:
        cohort = Cohort([site], world.runtime, Ask("train_clipped", round), world.fleet.stream)
        trained = cohort.train(cohort.own(), [adapter], world.server.lr(round), "private", **options)[0]
        found.append(subtract(trained.state, adapter))
    return found


def mean_of(updates):
    return {name: torch.stack([update[name] for update in updates]).mean(0) for name in updates[0]}


def interrupted(tokenizer, folder, make, after, training=TRAINING, **options):
    """A run that is killed after a round, and resumed from its checkpoint by a new process."""
    world = make_world(tokenizer, method := make(), folder, training=training, **options)
    close = world.server._close

    def dying():
        close()
        if world.fleet.round == after:
            raise KeyboardInterrupt

    world.server._close = dying
    with pytest.raises(KeyboardInterrupt):
        method.lead(world.server, world.fleet)
    return resumed(tokenizer, folder, make(), training=training, **options)


def resumed(tokenizer, folder, method, training=TRAINING, **options):
    """A run that goes on from its checkpoint to its end, in a new process."""
    world = make_world(tokenizer, method, folder, training=training, **options)
    world.server.restore(latest(folder / "checkpoint"))
    method.lead(world.server, world.fleet)
    return world


def twice_lost(tokenizer, folder, make):
    """A run whose second round is done three times: twice it has been measured, and is lost before it is saved."""
    for _ in range(2):
        world = make_world(tokenizer, method := make(), folder, training=TRAINING, evaluation=MEASURED)
        if saved := latest(folder / "checkpoint"):
            world.server.restore(saved)
        measure = world.server._monitor.measure

        def ending(*arguments, world=world, measure=measure, **options):
            if world.fleet.round == 2:
                raise KeyboardInterrupt
            return measure(*arguments, **options)

        world.server._monitor.measure = ending
        with pytest.raises(KeyboardInterrupt):
            method.lead(world.server, world.fleet)
    return resumed(tokenizer, folder, make())


def moved(world, start):
    """How far each weight has gone, as one vector."""
    return torch.cat([(world.server.adapter[name] - tensor).flatten() for name, tensor in start.items()])
