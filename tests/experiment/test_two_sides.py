"""What each side of a run is assembled from; that neither loads a module of the other is in ``test_imports.py``."""

import shutil
from dataclasses import asdict

import pytest

from murmura import methods
from murmura.data.records import Instruction
from murmura.experiment import server_side, site_side
from murmura.experiment.context import process_context
from murmura.experiment.prepare import prepare
from murmura.experiment.simulation import share_out
from murmura.experiment.verbs import fingerprint
from murmura.federation.wire.messages import VERSION, Ask, Reply, decode, encode
from murmura.measure.evaluation_set import EvaluationSet
from murmura.runs.folder import RunFolder
from murmura.tasks import INSTRUCTION
from tests.experiment.deployed import founded
from tests.experiment.small import COMMON, GSM8K, SUMS, URGENT, write_lines
from tests.federation.world import Scripted, instructions


@pytest.fixture
def unread(monkeypatch):
    """No file of records is opened."""

    def read(*place, **options):
        raise AssertionError(f"{place} is read")

    monkeypatch.setattr("murmura.data.loading._rows", read)


def test_a_server_is_assembled_where_no_site_and_no_private_record_is(make, tmp_path, unread):
    experiment = make()
    shutil.rmtree(tmp_path / "sites")
    answer = {"versions": {"messages": VERSION}, "kind": "instruction", "records": 3}
    method = methods.build(experiment.method)
    context = process_context(experiment, method, sides=["server"])
    public = EvaluationSet(INSTRUCTION, instructions(2, seed=1), sample=0)
    part = server_side.ServerPart(experiment, method, context, experiment.evaluation, public)
    engine = Scripted(lambda site, ask: Reply(site, answer), ["heart", "skin"])
    side = server_side.assemble(part, engine, RunFolder(tmp_path / "run"), run="a")
    side.meet()
    assert side.server.has_adapter and not (tmp_path / "run" / "private").exists()


def test_a_site_is_opened_where_no_server_is_and_writes_in_its_own_place_alone(make, tmp_path):
    experiment = make(run={"name": "shared", "folder": str(tmp_path / "run")})
    shutil.rmtree(tmp_path / "sites")
    (tmp_path / "heldout.jsonl").unlink()
    clinic = tmp_path / "clinic"
    clinic.mkdir()
    own = {"heart": instructions(2, seed=1)}
    share_out(experiment, own, {"heart": clinic / "heart"}, tmp_path / "results", ["cpu"])
    host = site_side.open_sites([clinic / "heart"])
    assert list(host.sites["heart"].records) == own["heart"]
    [refused] = host.answer(Ask("commit", 0, run="a"), ["heart"])
    assert refused.why == "RefusedError"  # it has joined no run
    joining = {"resumed": False, "experiment": fingerprint(experiment)}
    [joined] = host.answer(Ask("join", 0, joining, run="a"), ["heart"])
    assert joined["kind"] == "instruction"
    assert [one.fields for one in host.answer(Ask("commit", 0, run="a"), ["heart"])] == [{}]
    assert [one.why for one in host.answer(Ask("join", 0, joining, run="b"), ["heart"])] == ["RefusedError"]
    host.close()
    assert not (tmp_path / "run").exists() and not (tmp_path / "results").exists()


def test_a_site_measures_its_own_adapter_on_what_its_server_has_by_its_federation_and_on_nothing_else(make, tmp_path):
    """Else a server would learn of any text that it guesses whether a site has it."""
    write_lines(tmp_path / "urgent.jsonl", URGENT)
    write_lines(tmp_path / "sums.jsonl", SUMS)
    asked = {"choices": COMMON, "benchmarks": {"gsm8k": GSM8K}}
    federation = founded(make({"name": "local", "rounds": 9}, evaluation=asked), tmp_path / "federation")
    plan = prepare(federation.experiment, remote=federation.remote)
    public, host = plan.server.evaluation_set, site_side.open_sites([tmp_path / "federation" / "heart"])
    joining = {"resumed": False, "experiment": fingerprint(plan.experiment)}
    [joined] = host.answer(Ask("join", 0, joining, run="a"), ["heart"])
    assert joined["kind"] == "instruction"

    def assessed(**changes):
        fields = decode(encode({**public.to_payload(), "adapter": {}, **changes}))
        [answer] = host.answer(Ask("assess", 0, fields, run="a"), ["heart"])
        return answer

    figures = assessed()["figures"]
    assert (figures["choice_accuracy_n"], figures["gsm8k_n"]) == (len(URGENT), len(SUMS))
    own = Instruction("who is in bed 7", "", "jane roe")
    for changes in (
        {"heldout": [asdict(own)]},
        {"choices": [{"instruction": "who is in bed 7", "input": "", "options": ["jane roe", "a"], "answer": 0}]},
        {"benchmarks": [{"name": "gsm8k", "config": {"file": "x"}, "questions": [asdict(own)]}]},
    ):
        refused = assessed(**changes)
        assert refused.why == "RefusedError" and "not on the list" in str(refused.error)
    host.close()
    assert "not on the list" in (tmp_path / "federation" / "heart" / "notes.txt").read_text(encoding="utf-8")
