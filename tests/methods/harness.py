"""A whole run of a method on a tiny model, without experiment files."""

from murmura.data.records import Instruction
from murmura.data.templates import template
from murmura.federation.engines.local import LocalEngine
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.rounds import Server
from murmura.federation.site.site import Site
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.monitor import Monitor
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.tasks import INSTRUCTION
from murmura.tasks.instruction import InstructionReading
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from tests.federation.world import begun, connect, verbs_of
from tests.training.helpers import EPS

TOPICS = {
    "kidney": ("tablets", "blood", "dose", "week"),
    "heart": ("pulse", "stairs", "breath", "clinic"),
    "skin": ("rash", "cream", "sun", "itch"),
}


def records(topic, count):
    """``count`` records, every other one with an input, no two of them alike."""
    words = TOPICS[topic]
    return [
        Instruction(
            f"{words[i % 4]} {topic} number {i} please explain to the patient",
            f"{words[(i + 1) % 4]} {i * i} noted by nurse {i}" if i % 2 else "",
            f"the {topic} {words[(i + 2) % 4]} answer {i} is to call on day {3 * i}",
        )
        for i in range(count)
    ]


def sites(sizes=(6, 3, 9)):
    return [Site(topic, records(topic, size)) for topic, size in zip(TOPICS, sizes, strict=True)]


def runtime(model, tokenizer, **options):
    training = LocalTraining(lr=5e-3, batch_size=2, eps=EPS)
    return ModelRuntime(
        Bank(model, LoraSpec(rank=4, alpha=8)),
        tokenizer,
        InstructionReading(template("alpaca"), tokenizer, 256),
        training,
        max_length=256,
        **options,
    )


def perform(method, bench, folder, *, members=None, engine=LocalEngine, seed=0, sample=0):
    """Run ``method`` to its end; returns the server and the fleet."""
    stream = Stream(seed)
    fleet = Fleet(connect(engine, members or sites(), method, bench, stream), verbs_of(method), Ledger(), stream)
    run = begun(folder)
    public = EvaluationSet(INSTRUCTION, records("skin", 12)[10:], sample=sample)
    monitor = Monitor(bench, public, EvaluationConfig(attacks=False, sample=sample), stream)
    server = Server(bench, fleet, monitor, run, stream, bench.bank.initial(stream / "adapter"), method.rule)
    method.lead(server, fleet)
    return server, fleet


def same(first, second):
    """Whether two adapters are equal bit for bit."""
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


def furthest(first, second):
    """The largest difference between two adapters."""
    return max(float((first[name] - second[name]).abs().max()) for name in first)
