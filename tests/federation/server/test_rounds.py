"""The loop of rounds: what is recorded, saved, and taken up again."""

import json

import pytest
import torch

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.aggregation.rules import Mean
from murmura.errors import PrivacyError, RunError
from murmura.federation.engines.local import LocalEngine
from murmura.federation.exporting import Exporting
from murmura.federation.method import Method
from murmura.federation.server.checkpoint import latest
from murmura.federation.server.stores import Stores
from murmura.federation.traits import Traits
from murmura.federation.wire.releases import Count, Metric, verb
from murmura.measure.config import EvaluationConfig
from murmura.measure.monitor import Monitor
from murmura.methods.fedit.config import FedITConfig, LocalConfig
from murmura.methods.fedit.method import FedIT, LocalOnly
from murmura.privacy.journal import Journal
from murmura.privacy.reported import ReportedEpsilons
from murmura.training.adapter import crop
from murmura.training.config import LocalTraining
from tests.federation.world import MEASURED, QUIET, failing, lead, make_world
from tests.training.helpers import assert_same


class Counting(Method):
    """Each round the global adapter grows by one, and each site counts its rounds."""

    traits = Traits(label="Counting")

    def __init__(self, rounds=3, fails_in=None):
        super().__init__(None)
        self.rounds, self.fails_in, self.worked, self.rates = rounds, fails_in, [], []

    def lead(self, server, fleet):
        for round in server.rounds(self.rounds):
            self.worked.append(round)
            self.rates.append(server.lr(round))
            for reply in fleet.ask("count", fleet.sites):
                server.note_loss(reply["loss"])
                server.count({"asked": 1, "rounds": reply["rounds"]})
            if round == self.fails_in:
                raise RunError("broken", where=f"round {round}")
            server.adapter = {name: tensor + 1 for name, tensor in server.adapter.items()}
            server.store["past"] = [*server.store.get("past", []), round]
            server.store["moments"] = {"m": torch.tensor(round)}

    @verb(releases={"rounds": Count(), "loss": Metric("loss")})
    def count(self, cohort, ask):
        for site in cohort.sites:
            site.store["rounds"] = site.store.get("rounds", 0) + 1
        losses = [None if site.size == 2 else float(site.size) for site in cohort.sites]
        return cohort.reply(rounds=[site.store["rounds"] for site in cohort.sites], loss=losses)


def resume(tokenizer, method, folder, **options):
    """A new process's world, taken up from the folder's checkpoint."""
    checkpoint = latest(folder / "checkpoint")
    world = make_world(tokenizer, method, folder, **options)
    world.server.restore(checkpoint)
    method.lead(world.server, world.fleet)
    return world


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_row_for_each_round_and_one_before(tokenizer, tmp_path):
    world = lead(tokenizer, Counting(), tmp_path, evaluation=MEASURED)
    rows = world.server.rows
    assert rows == lines(tmp_path)
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert [row["counts"] for row in rows] == [{}] + [{"asked": 3, "rounds": 3 * n} for n in (1, 2, 3)]
    assert rows[0]["train_loss"] is None
    assert rows[1]["train_loss"] == (3 + 4) / 2  # a site without a loss does not count
    assert rows[0]["bytes_up"] == rows[0]["bytes_down"] == 0
    assert rows[1]["bytes_up"] == rows[2]["bytes_up"] > 0
    assert all(row["wall"] > 0 and row["peak_memory"] > 0 and row["events"] == [] for row in rows)
    assert rows[1]["seconds"].keys() == {"evaluate"}
    assert json.loads((tmp_path / "disclosure.json").read_text())[0]["messages"] == 9


def test_everything_is_in_the_checkpoint(tokenizer, tmp_path):
    world = lead(tokenizer, Counting(), tmp_path)
    saved = latest(tmp_path / "checkpoint")
    assert saved.round == 3
    assert world.stores() == {f"site-{k}": {"rounds": 3} for k in range(3)}
    assert [site.kept.rewind(3) for site in world.sites] == [{"rounds": 3}] * 3
    assert saved.server["store.past"] == [1, 2, 3]
    assert saved.run["rows"] == world.server.rows


def test_a_run_goes_on_after_its_last_saved_round(tokenizer, tmp_path):
    whole = lead(tokenizer, Counting(), tmp_path / "whole", evaluation=MEASURED)
    with pytest.raises(RunError, match="broken"):
        lead(tokenizer, Counting(fails_in=2), tmp_path / "stopped", evaluation=MEASURED)
    assert latest(tmp_path / "stopped" / "checkpoint").round == 1
    second = Counting()
    world = resume(tokenizer, second, tmp_path / "stopped", evaluation=MEASURED)
    assert second.worked == [2, 3]
    assert world.stores() == whole.stores()
    assert world.server.store == whole.server.store
    messages = [{row["field"]: row["messages"] for row in one.ledger.table()} for one in (whole, world)]
    assert messages == [{"rounds": 9, "loss": 9}, {"rounds": 12, "loss": 12}]  # what was sent twice has left twice
    assert world.server.rows[2]["bytes_up"] == whole.server.rows[2]["bytes_up"]
    for name, tensor in whole.server.adapter.items():
        assert torch.equal(world.server.adapter[name], tensor)
    for ours, theirs in zip(world.server.rows, whole.server.rows, strict=True):
        for key in theirs.keys() - {"seconds", "at_sites", "wall", "peak_memory"}:
            assert ours[key] == theirs[key], key


@pytest.mark.parametrize("kind", [Journal, ReportedEpsilons])
@pytest.mark.parametrize("opened", ["before", "after"])
@pytest.mark.parametrize("rolled_back", [False, True], ids=["gone", "rolled back"])
def test_a_journal_that_has_lost_lines_since_the_run_was_saved_is_refused(
    tokenizer, tmp_path, kind, opened, rolled_back
):
    """Of the sites that were asked, and have said nothing since, only this tells what they may have spent."""
    file = tmp_path / "checkpoint" / "spent.journal"
    written = Journal(file)
    written.append({"silent": {"a": 1.0}, "round": 1})
    first = file.read_bytes()
    written.append({"silent": {"b": 2.0}, "round": 1})
    method = Counting()
    world = make_world(tokenizer, method, tmp_path)
    world.server.journal("spent", kind)
    method.lead(world.server, world.fleet)
    again = make_world(tokenizer, Counting(), tmp_path)
    again.server.restore(latest(tmp_path / "checkpoint"))
    again.server.journal("spent", kind)
    file.write_bytes(first) if rolled_back else file.unlink()
    left = make_world(tokenizer, Counting(), tmp_path)
    if opened == "before":
        left.server.journal("spent", kind)
    with pytest.raises(PrivacyError, match=f"has {int(rolled_back)} lines, and had 2 when the run was last saved"):
        left.server.restore(latest(tmp_path / "checkpoint"))
        left.server.journal("spent", kind)


def test_a_run_that_had_ended_ends_again_and_its_files_are_complete(tokenizer, tmp_path):
    """It may have been stopped after its last checkpoint, before its last files."""
    rows = lead(tokenizer, Counting(), tmp_path).server.rows
    (tmp_path / "metrics.jsonl").write_text(json.dumps(rows[0]) + "\n")
    (tmp_path / "disclosure.json").unlink()
    method = Counting()
    world = resume(tokenizer, method, tmp_path)
    assert method.worked == []
    assert world.server.rows == lines(tmp_path) == rows
    assert (tmp_path / "disclosure.json").exists()
    longer = Counting(rounds=5)
    resume(tokenizer, longer, tmp_path)
    assert longer.worked == [4, 5]


def losing(*lost):
    """An engine behind which sites' processes die at the end of a round, after they have replied: (site, round)."""

    def dead(site, ask):
        return ask.verb == "commit" and any(site == one and ask.round >= when for one, when in lost)

    return failing(LocalEngine, dead)


def test_sites_are_told_which_round_is_the_last(tokenizer, tmp_path, monkeypatch):
    told, commit = [], Stores.commit
    monkeypatch.setattr(Stores, "commit", lambda one, last: told.append((one._fleet.round, last)) or commit(one, last))
    lead(tokenizer, Counting(rounds=2), tmp_path)
    assert told == [(0, False), (1, False), (2, True)]


def local(rounds=3):
    return LocalOnly(LocalConfig(rounds=rounds))


def test_a_site_that_lost_its_first_round_begins_again_when_the_run_is_resumed(tokenizer, tmp_path):
    engine = losing(("site-1", 1))
    world = lead(tokenizer, local(rounds=1), tmp_path, engine=engine)
    assert world.server.store["started"] == ["site-0", "site-2"]
    assert "these sites have not kept their part of the round: site-1 (gone)" in (world.server.rows[1]["events"])
    again = resume(tokenizer, local(rounds=2), tmp_path)
    assert sorted(again.server.store["started"]) == ["site-0", "site-1", "site-2"]
    assert all(store["adapter"] for store in again.stores().values())
    late = lead(tokenizer, local(rounds=2), tmp_path / "late", engine=losing(("site-2", 2)))
    assert late.server.store["started"] == ["site-0", "site-1", "site-2"]  # what it kept before is there


class Looking(FedIT):
    """Sums a count over all sites, of which one trains."""

    def verbs(self):
        return ["train", "look"]

    def lead(self, server, fleet):
        for _ in server.rounds(1):
            assert server.sum("look", fleet.sites).sites == ["site-0", "site-1", "site-2"]
            self.average(server, fleet, ["site-1"])

    @verb(releases={"looked": Count()})
    def look(self, cohort, ask):
        return cohort.reply(looked=[1 for _ in cohort.sites])


def test_only_sites_that_have_trained_have_started(tokenizer, tmp_path):
    world = lead(tokenizer, Looking(FedITConfig(), rule(AggregationConfig(rule="fedsa"))), tmp_path)
    assert world.server.store["started"] == ["site-1"]


def test_a_site_that_was_only_busy_goes_on_from_its_own_adapter(tokenizer, tmp_path):
    """It is sent a start again, since nobody knows if it has one, and does not need it."""
    busy = lead(tokenizer, local(rounds=2), tmp_path / "busy", engine=losing(("site-1", 1)))
    whole = lead(tokenizer, local(rounds=2), tmp_path / "whole")
    for name, store in whole.stores().items():
        assert_same(busy.stores()[name]["adapter"], store["adapter"])


def test_sites_that_leave_no_adapter_of_their_own_are_named(tokenizer, tmp_path, capsys):
    engine = failing(LocalEngine, lambda site, ask: ask.verb == "keep" and site == "site-1")
    world = lead(tokenizer, local(rounds=1), tmp_path, engine=engine)
    for verbs in (world.fleet.verbs, world.fleet.engine.host.verbs):
        verbs.append(Exporting())
    capsys.readouterr()
    world.server.let_keep()
    told = "these sites have left no adapter of their own: site-1 (site site-1 did not answer 'keep': gone)"
    assert told in capsys.readouterr().err


def test_it_is_known_which_sites_have_kept_a_round(tokenizer, tmp_path):
    lead(tokenizer, Counting(), tmp_path, engine=losing(("site-1", 0), ("site-2", 2)))
    assert latest(tmp_path / "checkpoint").run["known"] == ["site-0", "site-2"]
    resume(tokenizer, Counting(rounds=4), tmp_path, engine=losing(("site-1", 0), ("site-2", 2)))
    assert latest(tmp_path / "checkpoint").run["known"] == ["site-0", "site-2"]


def test_rounds_that_are_not_measured_are_recorded_and_saved_too(tokenizer, tmp_path):
    evaluation = EvaluationConfig(**{**QUIET.model_dump(), "every": 2})
    rows = lead(tokenizer, Counting(), tmp_path, evaluation=evaluation).server.rows
    assert ["heldout_loss" in row for row in rows] == [True, False, True, True]
    assert [row["round"] for row in lines(tmp_path)] == [0, 1, 2, 3]


def test_a_note_does_not_hide_what_is_measured(tokenizer, tmp_path):
    class Noting(Counting):
        def lead(self, server, fleet):
            for round in server.rounds(self.rounds):
                server.note("heldout_loss", -1.0)
                server.note("own", float(round))

    evaluation = EvaluationConfig(**{**QUIET.model_dump(), "every": 2})
    rows = lead(tokenizer, Noting(), tmp_path, evaluation=evaluation).server.rows
    assert [row["heldout_loss"] < 0 for row in rows] == [False, True, False, False]
    assert [row.get("own") for row in rows] == [None, 1.0, 2.0, 3.0]


def test_every_round_begins_for_the_monitor_too(tokenizer, tmp_path, monkeypatch):
    """Else it would keep uploads of rounds that were not measured, and a resumed run would differ."""
    begun = []
    monkeypatch.setattr(Monitor, "begin", lambda monitor, round: begun.append(round))
    lead(tokenizer, Counting(), tmp_path)
    assert begun == [0, 1, 2, 3]


def test_what_opens_a_round_is_a_part_of_it_and_comes_again_when_the_round_is_repeated(tokenizer, tmp_path):
    opened = []

    def opening(world):
        def called(round):
            opened.append(round)
            world.server.store["opened"] = [*world.server.store.get("opened", []), round]
            world.server.event("it opens")
            world.server.tell("it has opened")
            list(world.fleet.ask("count", ["site-0"]))

        world.server.opening = called
        return world

    method = Counting(fails_in=2)
    world = opening(make_world(tokenizer, method, tmp_path))
    with pytest.raises(RunError, match="broken"):
        method.lead(world.server, world.fleet)
    again, method = opening(make_world(tokenizer, Counting(), tmp_path)), Counting()
    again.server.restore(latest(tmp_path / "checkpoint"))
    method.lead(again.server, again.fleet)
    assert opened == [1, 2, 2, 3] and again.server.store["opened"] == [1, 2, 3]
    first, *others = again.server.rows
    plain = lead(tokenizer, Counting(), tmp_path / "plain").server.rows
    assert first["events"] == [] and first["bytes_up"] == 0
    assert all((row["events"], row["told"]) == (["it opens"], ["it has opened"]) for row in others)
    assert all(row["bytes_up"] > without["bytes_up"] for row, without in zip(others, plain[1:], strict=True))
    assert again.sites[0].store["rounds"] == 2 * again.sites[1].store["rounds"] == 6


def test_a_site_that_has_an_adapter_of_its_own_is_not_sent_one_to_score_with(tokenizer, tmp_path):
    world = make_world(tokenizer, Counting(), tmp_path)
    fields = world.server.current(["site-0", "site-1"])
    for site in ("site-0", "site-1"):
        assert_same(fields[site]["adapter"], world.server.adapter)
    world.server.store["started"] = ["site-1"]
    assert [list(one) for one in world.server.current(["site-0", "site-1"]).values()] == [["adapter"], []]


def test_a_site_is_sent_an_adapter_of_its_rank_to_score_with(tokenizer, tmp_path):
    method = Counting()
    method.rule = Mean(AggregationConfig(ranks=(1, 2)))
    world = make_world(tokenizer, method, tmp_path)
    for site, fields in world.server.current(["site-1", "site-0"]).items():
        assert_same(fields["adapter"], crop(world.server.adapter, {"site-0": 1, "site-1": 2}[site]))


def test_events_belong_to_their_round(tokenizer, tmp_path):
    def fails(site, ask):
        return site == "site-1" and ask.round == 2

    rows = lead(tokenizer, Counting(), tmp_path, engine=failing(LocalEngine, fails)).server.rows
    assert [row["events"] for row in rows] == [[], [], ["site site-1 did not answer 'count': gone"], []]
    assert [row["counts"].get("asked") for row in rows] == [None, 3, 2, 3]


def test_a_method_may_tell_an_event_and_whole_numbers(tokenizer, tmp_path, capsys):
    class Telling(Counting):
        def lead(self, server, fleet):
            for round in server.rounds(2):
                server.note("annotated", 12 * round)
                if round == 2:
                    server.event("nobody came")

    rows = lead(tokenizer, Telling(), tmp_path).server.rows
    assert [row["events"] for row in rows] == [[], [], ["nobody came"]]
    shown = capsys.readouterr().err
    assert shown.count("round 2: nobody came\n") == 1
    assert "annotated 12, " in shown and "annotated 24, " in shown


def test_the_rate_of_a_round(tokenizer, tmp_path):
    method = Counting()
    lead(tokenizer, method, tmp_path, training=LocalTraining(lr=1.0, lr_min=0.0))
    assert method.rates == pytest.approx([1.0, 0.75, 0.25])
    method = Counting()
    lead(tokenizer, method, tmp_path, training=LocalTraining(lr=1.0, schedule="constant"))
    assert method.rates == [1.0] * 3


class Stopping(Counting):
    """Breaks off in its second round."""

    def lead(self, server, fleet):
        for round in server.rounds(self.rounds):
            list(fleet.ask("count", fleet.sites))
            if round == 2:
                break


def test_a_program_that_breaks_off_is_told_so_since_what_it_has_sent_is_in_no_figure(tokenizer, tmp_path):
    world = lead(tokenizer, Stopping(), tmp_path / "run", engine=LocalEngine)
    with pytest.raises(RunError, match="ended in round 2, which was not measured or saved"):
        world.server.require_whole()
    whole = lead(tokenizer, Counting(), tmp_path / "whole", engine=LocalEngine)
    whole.server.require_whole()
    with pytest.raises(RunError, match="ended in round 0"):
        make_world(tokenizer, Counting(), tmp_path / "none", engine=LocalEngine).server.require_whole()


def test_what_is_noted_is_a_number(tokenizer, tmp_path):
    world = make_world(tokenizer, Counting(), tmp_path / "run", engine=LocalEngine)
    with pytest.raises(RunError, match="figure 'speed' is a Tensor, and no number"):
        world.server.note("speed", torch.tensor(1.0))


def test_a_method_that_promises_nothing_notes_no_epsilon(tokenizer, tmp_path):
    world = lead(tokenizer, Counting(), tmp_path / "run", engine=LocalEngine)
    with pytest.raises(PrivacyError, match="an ε is noted that the method has not promised"):
        world.server.note_privacy({"epsilon": 0.1, "delta": 1e-5})
