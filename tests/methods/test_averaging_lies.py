"""A site that answers anything at all: it is left out by its name, and the run goes on with the others."""

import pytest
import torch

from murmura.aggregation.mean import FURTHEST
from murmura.federation.engines.local import LocalEngine
from murmura.federation.wire.frames import answer_of
from murmura.federation.wire.messages import Failure, Reply
from murmura.measure.config import EvaluationConfig
from murmura.methods.fedit.config import LocalConfig
from murmura.methods.fedit.method import LocalOnly
from murmura.methods.fewfedweight.config import FewFedWeightConfig
from murmura.methods.fewfedweight.method import FewFedWeight
from tests.federation.world import lead, make_world
from tests.methods.every_other import SGD, Alike, EveryOther, OneByOne, method

LIAR = "site-1"


def with_fields(**fields):
    return lambda reply: Reply(reply.site, {**reply.fields, **fields})


def with_adapter(change):
    return lambda reply: Reply(reply.site, {**reply.fields, "adapter": change(reply.fields["adapter"])})


def with_tally(change):
    return lambda reply: Reply(reply.site, {**reply.fields, "tally": {k: change(v) for k, v in reply["tally"].items()}})


def nested(depth):
    return {"a": nested(depth - 1)} if depth else 1.0


TRAIN = {
    "no field at all": lambda reply: Reply(reply.site, {}),
    "nothing": lambda reply: Reply(reply.site, {"loss": 1.0}),
    "examples None": with_fields(examples=None),
    "examples in a table": with_fields(examples={"a": 1}),
    "examples in a list": with_fields(examples=[1]),
    "examples beyond a float": with_fields(examples=10**400),
    "examples beyond any site's": with_fields(examples=10**200),
    "examples below 0": with_fields(examples=-1),
    "examples as tensors": with_fields(examples=torch.tensor([1, 2])),
    "examples without an order": with_fields(examples=torch.tensor([1]).to(torch.uint64)),
    "loss in a table": with_fields(loss={"x": 1.0}),
    "loss in words": with_fields(loss="low"),
    "loss in a list": with_fields(loss=[1.0]),
    "loss in tables without end": with_fields(loss=nested(480)),
    "loss as a tensor": with_fields(loss=torch.zeros(2)),
    "loss beyond a float": with_fields(loss=10**400),
    "adapter in 8 bits": with_adapter(lambda state: {k: v.to(torch.float8_e4m3fn) for k, v in state.items()}),
    "one tensor more, with a name to be shown": with_adapter(lambda state: {**state, "\x1b[2J": torch.zeros(2)}),
    "adapter in 64 bits": with_adapter(lambda state: {k: v.double().fill_(1e308) for k, v in state.items()}),
    "one tensor more": with_adapter(lambda state: {**state, "more": torch.zeros(2)}),
    "adapter in tables without end": with_fields(adapter=nested(480)),
    "loss in a table with a tensor": with_fields(loss={"a": 1.0, "b": torch.zeros(1)}),
    "loss deeper than anything": with_fields(loss=nested(900)),
    "adapter in words": with_fields(adapter="here"),
    "a field more": with_fields(more=1),
}
COMMIT = {
    "a number": with_fields(unkept=5),
    "a list of numbers": with_fields(unkept=[5]),
    "a field more": with_fields(more=1),
    "a table with a tensor": with_fields(unkept={"a": 1, "b": torch.zeros(1)}),
    "tables without end": with_fields(unkept=nested(900)),
    "a text of its own": with_fields(unkept=[[0, "all is well\n\x1b[2J"], [1, ["lost"]]]),
    "it failed": lambda reply: Failure(reply.site, "OSError"),
    "it failed for no reason": lambda reply: answer_of({"failed": [1], "site": reply.site}, {}),
}


ATTACK = {
    "counts below 0": with_tally(lambda counts: counts - 1),
    "more than were asked for": with_tally(lambda counts: counts + 10),
    "far more than there are": with_tally(lambda counts: torch.full_like(counts, 1e30)),
    "no whole numbers": with_tally(lambda counts: counts / 2),
    "no tally": with_fields(tally=5),
    "another shape": with_fields(tally={"loss difference": torch.zeros(3)}),
    "a number for a tensor": with_fields(tally={"loss difference": 1.0}),
    "tables without end": with_fields(others=nested(480)),
    "fewer than none": with_tally(lambda counts: counts - 1),
    "half a record": with_tally(lambda counts: counts + 0.5),
}

ARITHMETIC = {
    "plain": {},
    **{rule: {"rule": rule} for rule in ("ffa", "rolora", "fedsa", "fedex", "flora", "flexlora", "fair")},
    "scaffold": {"local": "scaffold"},
    **{step: {"server": step} for step in ("fedavgm", "fedadam", "fedyogi", "fedadagrad")},
    **{f"{rule} of ranks": {"rule": rule, "ranks": (2, 1)} for rule in ("mean", "ffa", "fedex", "flora", "flexlora")},
    "fair of ranks": {"rule": "fair", "ranks": (2, 1)},
}


def of_rank(state, rank):
    shapes = {name: (rank, len(one.T)) if ".lora_A." in name else (len(one), rank) for name, one in state.items()}
    return {name: torch.zeros(shape) for name, shape in shapes.items()}


UPLOADS = {
    "far too large": (
        lambda state: {name: torch.full_like(one, 1e38) for name, one in state.items()},
        "longer than training makes it",
    ),
    "too large to go on with": (
        lambda state: {k: torch.full_like(one, 1e5) for k, one in state.items()},
        "longer than training makes it",
    ),
    "no numbers": (lambda state: {name: one * torch.nan for name, one in state.items()}, "NaN"),
    "turned": (lambda state: {name: one.T.contiguous() for name, one in state.items()}, "has shape"),
    "a rank more": (lambda state: of_rank(state, 3), "has shape"),
    "one number": (lambda state: dict.fromkeys(state, torch.tensor(1.0)), "has shape"),
}


def lying(bend, verb):
    """Answers of one site to a verb are bent: all in one way, or of each round in another, from the first on."""
    bends = bend if isinstance(bend, list) else None

    class Lying(LocalEngine):
        def ask(self, ask, sites):
            for answer in super().ask(ask, sites):
                lies = isinstance(answer, Reply) and answer.site == LIAR and ask.verb == verb
                yield (bends[ask.round - 1] if bends else bend)(answer) if lies else answer

    return Lying


def finite(world):
    return all(bool(torch.isfinite(tensor).all()) for tensor in world.server.adapter.values())


@pytest.mark.parametrize("kind", [EveryOther, OneByOne, Alike])
def test_an_upload_that_cannot_be_averaged_is_left_out(tokenizer, tmp_path, kind):
    """Another lie each round."""
    lies = [lie for lie in TRAIN if kind is not Alike or lie != "examples None"]  # it asks for no number of examples
    engine = lying([TRAIN[lie] for lie in lies], "train")
    world = lead(tokenizer, method(kind, len(lies)), tmp_path, engine=engine, training=SGD)
    for number, lie in enumerate(lies, start=1):
        [events] = [row["events"] for row in world.server.rows if row["round"] == number]
        assert any(LIAR in event and "left out" in event for event in events), (lie, events)
        assert all(event.isprintable() and len(event) < 300 for event in events), (lie, events)
    assert finite(world)


@pytest.mark.parametrize("options", [{"local": "scaffold"}, {"ranks": (2, 1)}], ids=["scaffold", "ranks"])
def test_a_site_that_sends_nothing_is_left_out_whatever_the_options(tokenizer, tmp_path, options):
    engine = lying(TRAIN["no field at all"], "train")
    world = lead(tokenizer, method(OneByOne, 1, **options), tmp_path, engine=engine, training=SGD)
    [event] = world.server.rows[1]["events"]
    assert f"the answer of site {LIAR} to 'train' is left out" in event and finite(world)


@pytest.mark.parametrize("options", ARITHMETIC)
def test_no_upload_spoils_the_global_adapter_or_stops_the_run_whatever_the_rule(tokenizer, tmp_path, options):
    """Another lie each round; in two, where a rule has what it averages take turns."""
    lies = [lie for lie in UPLOADS for _ in range(2 if options == "rolora" else 1)]
    engine = lying([with_adapter(UPLOADS[lie][0]) for lie in lies], "train")
    world = lead(tokenizer, method(EveryOther, len(lies), **ARITHMETIC[options]), tmp_path, engine=engine, training=SGD)
    for row, lie in zip(world.server.rows[1:], lies, strict=True):
        [event] = row["events"]
        told = f"the answer of site {LIAR} to 'train' is left out: '"
        assert told in event and UPLOADS[lie][1] in event, (lie, event)
    assert finite(world) and len(world.server.rows) == 1 + len(lies)


@pytest.mark.parametrize("options", ARITHMETIC)
def test_with_what_is_as_long_as_may_be_the_others_go_on(tokenizer, tmp_path, options):
    """Though it is all that counts: others would stop the run, and be named for it."""

    def bend(reply):
        longest = {k: torch.full_like(one, FURTHEST / one.numel() ** 0.5) for k, one in reply["adapter"].items()}
        return with_fields(adapter=longest, examples=10**6)(reply)

    made = method(EveryOther, 3, **ARITHMETIC[options])
    world = lead(tokenizer, made, tmp_path, engine=lying(bend, "train"), training=SGD)
    assert finite(world) and [row["events"] for row in world.server.rows] == [[]] * 4


@pytest.mark.parametrize("rule", ["mean", "ffa", "fedex", "flora", "flexlora", "fair"])
def test_a_site_of_a_smaller_rank_sends_an_adapter_of_that_rank(tokenizer, tmp_path, rule):
    engine = lying(with_adapter(lambda state: of_rank(state, 2)), "train")
    options = {"rule": rule, "ranks": (2, 1)}  # site-1 has the second
    world = lead(tokenizer, method(EveryOther, 1, **options), tmp_path, engine=engine, training=SGD)
    [event] = world.server.rows[1]["events"]
    assert f"site {LIAR}" in event and "has shape" in event


@pytest.mark.parametrize("rule", ["median", "trimmed-mean", {"kind": "norm-bound", "norm": 1.0}], ids=str)
def test_a_robust_rule_has_to_do_with_what_is_far_too_large(tokenizer, tmp_path, rule):
    engine = lying(with_adapter(UPLOADS["far too large"][0]), "train")
    world = lead(tokenizer, method(EveryOther, 1, rule=rule), tmp_path, engine=engine, training=SGD)
    assert not world.server.rows[1]["events"] and finite(world)
    assert all(float(tensor.abs().max()) < 10 for tensor in world.server.adapter.values())


def alone():
    return method(LocalOnly, 1), "train_alone"


def by_skill():
    return FewFedWeight(FewFedWeightConfig(rounds=1, answer_tokens=8, error_records=2)), "improve"


@pytest.mark.parametrize(
    ("made", "field", "value"),
    [
        (alone, "loss", "low"),
        (by_skill, "skill", "great"),
        (by_skill, "skill", torch.ones(2)),
        (by_skill, "counts", None),
    ],
)
def test_what_a_method_cannot_read_is_left_out(tokenizer, tmp_path, made, field, value):
    asked, verb = made()
    world = lead(tokenizer, asked, tmp_path, engine=lying(with_fields(**{field: value}), verb), training=SGD)
    [event] = world.server.rows[1]["events"]
    assert f"the answer of site {LIAR} to '{verb}' is left out: '{field}'" in event


@pytest.mark.parametrize("skill", [None, 1e300])
def test_no_site_has_more_skill_than_one_that_is_always_right(tokenizer, tmp_path, skill):
    asked, verb = by_skill()
    assert finite(lead(tokenizer, asked, tmp_path, engine=lying(with_fields(skill=skill), verb), training=SGD))


@pytest.mark.parametrize("lie", [lie for lie in TRAIN if lie.startswith("loss")])
def test_what_a_site_says_of_an_adapter_of_its_own_is_left_out(tokenizer, tmp_path, lie):
    alone = LocalOnly(LocalConfig(rounds=1))
    world = lead(tokenizer, alone, tmp_path, engine=lying(TRAIN[lie], "train_alone"), training=SGD)
    assert any(LIAR in event and "left out" in event for event in world.server.rows[-1]["events"])


@pytest.mark.parametrize("lie", COMMIT)
def test_a_site_that_says_anything_of_what_it_kept_stops_nobody(tokenizer, tmp_path, lie):
    world = lead(tokenizer, method(EveryOther, 2), tmp_path, engine=lying(COMMIT[lie], "commit"), training=SGD)
    assert [row["round"] for row in world.server.rows] == [0, 1, 2] and finite(world)


def test_no_site_tells_of_more_attacked_records_than_it_was_asked_for_however_many_others_were(tokenizer, tmp_path):
    """Its count would be a larger part of the figures than its records are."""
    asked, measuring = method(EveryOther, 1), EvaluationConfig(sample=2, uploads=0)
    engine = lying(with_tally(lambda counts: counts * 2), "attack")
    world = make_world(tokenizer, asked, tmp_path, engine=engine, training=SGD, evaluation=measuring)
    world.server._monitor.sizes = {site.name: site.size for site in world.sites}
    assert [site.size for site in world.sites] == [3, 2, 4] and world.sites[1].name == LIAR
    asked.lead(world.server, world.fleet)
    events = [event for row in world.server.rows for event in row["events"]]
    assert any(f"site {LIAR} to 'attack' is left out" in event and "2 at most" in event for event in events), events


@pytest.mark.parametrize("lie", ATTACK)
def test_a_tally_that_cannot_be_added_up_is_left_out(tokenizer, tmp_path, lie):
    measuring = EvaluationConfig(sample=2, uploads=0)
    engine = lying(ATTACK[lie], "attack")
    world = lead(tokenizer, method(EveryOther, 1), tmp_path, engine=engine, training=SGD, evaluation=measuring)
    events = [event for row in world.server.rows for event in row["events"]]
    assert any(LIAR in event and "left out" in event for event in events), events
