"""A small federation: a tiny model, a few sites, and engines that can be told what to do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from murmura.data.records import Instruction
from murmura.data.templates import template
from murmura.federation.engines.local import LocalEngine
from murmura.federation.membership import Membership
from murmura.federation.method import Method
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.rounds import Server
from murmura.federation.site.answer import Host
from murmura.federation.site.site import Site
from murmura.federation.site.store import SiteStore
from murmura.federation.traits import Traits
from murmura.federation.wire.messages import Failure, Reply
from murmura.federation.wire.releases import Count, Metric, Weights, verb
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.monitor import Monitor
from murmura.measure.verbs import MeasurementPlan, Measuring
from murmura.model_runtime import ModelRuntime
from murmura.runs.folder import RunFolder
from murmura.streams import Stream
from murmura.tasks import INSTRUCTION
from murmura.tasks.instruction import InstructionReading
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from tests.conftest import WORDS, make_llama
from tests.federation.engines.wired import Wired
from tests.training.helpers import EPS

SPEC = LoraSpec(rank=2, alpha=4, targets=("q_proj", "v_proj"))
TRAINING = LocalTraining(lr=0.01, batch_size=2, eps=EPS)
QUIET = EvaluationConfig(sample=0, every=100, attacks=False, uploads=0)  # measuring a round takes longer than the round
MEASURED = QUIET.model_copy(update={"every": 1})


def instructions(count, seed):
    """Records of a few words; no two alike."""
    rng = random.Random(seed)
    return [
        Instruction(" ".join(rng.choices(WORDS, k=3)), "", " ".join(rng.choices(WORDS, k=rng.randint(2, 6))))
        for _ in range(count)
    ]


def make_sites(*sizes, folder=None):
    """Sites that keep what they keep in a folder, or nowhere."""
    named = {f"site-{k}": instructions(size, seed=k + 1) for k, size in enumerate(sizes)}
    if folder is None:
        return [Site(name, records) for name, records in named.items()]
    stores = {name: SiteStore(folder / name, name) for name in named}
    return [
        Site(name, named[name], kept=kept, journal=kept.ledger, centres=kept.centres) for name, kept in stores.items()
    ]


def make_workbench(tokenizer, *, model=None, lora=SPEC, training=TRAINING, slots=8, start=None):
    """Without ``lora`` all parameters train, in the one slot that there is then."""
    reading = InstructionReading(template("chat", tokenizer), tokenizer, 96)
    bank, slots = Bank(model or make_llama(tokenizer), lora), slots if lora else 1
    return ModelRuntime(bank, tokenizer, reading, training, max_length=96, slots=slots, start=start)


def evaluation_set(sample=2, heldout=3):
    """Public records like the sites' own; the first, which may be answered in full, has the shortest answer."""
    first, *others = instructions(heldout, seed=100)
    return EvaluationSet(INSTRUCTION, [replace(first, output=first.output.split()[0]), *others], sample=sample)


EVERYTHING = MeasurementPlan(
    EvaluationConfig.model_construct(
        attacks=True, memorisation=True, sample=1000, attack_records=1000, choices=True, benchmarks=True
    ),
    rounds=1000,
    personal=True,
    uploads=True,
    planted=True,
)
"""Whatever there is to measure."""


def measuring(task=INSTRUCTION, members=lambda site, stream: site.records):
    """The verbs of a run that measures it."""
    return Measuring(task, members, EVERYTHING)


def verbs_of(method, task=INSTRUCTION):
    """All that sites can be asked for in a run of a method on a kind of record."""
    return [method, Membership(task.kind, counts=True), measuring(task, method.members)]


def connect(engine, sites, method, runtime, stream, task=INSTRUCTION):
    """Sites behind an engine."""
    return engine(Host(sites, verbs_of(method, task), runtime, stream, method.rule, run=""))


def stores(fleet):
    """What each site behind an engine keeps; sites that keep nothing are left out."""
    return {name: site.store for name, site in fleet.engine.host.sites.items() if site.store}


def begun(path):
    """The folder of a run, new or resumed."""
    folder = RunFolder(path)
    folder.checkpoint.mkdir(parents=True, exist_ok=True)
    folder.write_config("")
    folder.prepare(resume=True, needed=0)
    return folder


@dataclass
class World:
    """Everything of a run but its folder's last files."""

    server: Server
    fleet: Fleet
    runtime: ModelRuntime
    sites: list[Site]
    ledger: Ledger
    folder: RunFolder

    def stores(self):
        return {site.name: site.store for site in self.sites}


def make_world(
    tokenizer, method, folder, *, sizes=(3, 2, 4), engine=LocalEngine, evaluation=QUIET, min_replies=1, seed=0, **bench
):
    runtime = make_workbench(tokenizer, **bench)
    stream, sites, ledger = Stream(seed), make_sites(*sizes, folder=folder / "private"), Ledger()
    fleet = Fleet(connect(engine, sites, method, runtime, stream), verbs_of(method), ledger, stream, min_replies)
    run_folder = begun(folder)
    adapter = runtime.bank.initial(stream / "adapter")
    monitor = Monitor(runtime, evaluation_set(evaluation.sample), evaluation, stream)
    server = Server(runtime, fleet, monitor, run_folder, stream, adapter, method.rule)
    server.promised = method.guarantee(sizes, runtime.training)
    if method.protects == "record":
        server.sizes = {site.name: site.size for site in sites}
    return World(server, fleet, runtime, sites, ledger, run_folder)


def lead(tokenizer, method, folder, **options):
    """Run a method to its end."""
    world = make_world(tokenizer, method, folder, **options)
    method.lead(world.server, world.fleet)
    return world


def failing(engine, fails):
    """An engine whose sites do not answer where ``fails(site, ask)`` holds."""

    class Failing(engine):
        def ask(self, ask, sites):
            alive = [site for site in sites if not fails(site, ask)]
            for site in sites:
                if site not in alive:
                    yield Failure(site, "gone")
            yield from super().ask(ask, alive)

    return Failing


def lying(engine, fields):
    """An engine one of whose sites, site-1, answers ``fields[verb]`` where that is there."""

    class Lying(engine):
        def ask(self, ask, sites):
            for reply in super().ask(ask, sites):
                lies = reply.site == "site-1" and ask.verb in fields
                yield Reply(reply.site, fields[ask.verb]) if lies else reply

    return Lying


@dataclass
class Scripted:
    """An engine without sites behind it: ``answer(site, ask)`` is what comes back, and ``keep(site, ask)`` where sites
    are to keep a round or to go back to one."""

    answer: object
    sites: list[str] = field(default_factory=lambda: ["a", "b", "c"])
    asked: list = field(default_factory=list)
    keep: object = staticmethod(lambda site, ask: Reply(site, {}))

    def ask(self, ask, sites):
        if ask.verb in ("commit", "rewind"):
            return (self.keep(site, ask) for site in sites)
        self.asked.append((ask, list(sites)))
        return (self.answer(site, ask) for site in sites)


ENGINES = {"local": LocalEngine, "processes": Wired}


def journals(folder=None):
    """``Server.journal`` for what stands in for a server; in memory without a folder."""
    made = {}

    def journal(name, kind):
        if name not in made:
            made[name] = kind(folder and folder / f"{name}.journal")
        return made[name]

    return journal


class Small(Method):
    """A method for sites that are scripted."""

    traits = Traits(label="Small")

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"adapter": Weights(), "examples": Count(), "loss": Metric("loss")})
    def train(self, cohort, ask):
        """Never run: the engine is scripted."""
