"""Secure sums through a fleet and its engines: who drops out, what is counted, and what sites refuse."""

import numpy as np
import pytest
import torch

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.errors import BudgetError, CheckpointError, RunError, SecureSumError
from murmura.federation.membership import Membership
from murmura.federation.method import Method
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.site.answer import Host
from murmura.federation.site.identity import identity, read_roster, write_roster
from murmura.federation.site.masking import Masking
from murmura.federation.site.released import ReleaseJournal
from murmura.federation.site.store import released
from murmura.federation.summing import SecureSumming
from murmura.federation.traits import Traits
from murmura.federation.wire.layout import MASKED, Agreement, Layout
from murmura.federation.wire.masks import STEPS
from murmura.federation.wire.messages import Ask, Failure, Reply, digest
from murmura.federation.wire.neighbours import degree
from murmura.federation.wire.releases import Count, Metric, Votes, verb
from murmura.runs.names import ROSTER
from murmura.streams import Stream
from tests.federation.masked import each_graph  # noqa: F401 (fixture)
from tests.federation.world import ENGINES, failing, make_sites, make_workbench

OPTIONS = AggregationConfig(secure=True)
LIKE = {"votes": torch.zeros(3, dtype=torch.int64), "loss": 0.0}
SIZES = (1, 2, 3, 4, 5)


class Voting(Method):
    traits = Traits(label="Voting", single_replies="")

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"votes": Votes("votes"), "loss": Metric("loss")})
    def vote(self, cohort, ask):
        if ask["break"] in [site.name for site in cohort.sites]:
            raise ValueError("patient 12 has the flu")
        votes = [torch.tensor([size, 1, -size]) * ask["times"] for size in cohort.sizes]
        losses = [float("nan") if ask["break"] == f"{site.name} diverges" else site.size / 4 for site in cohort.sites]
        return cohort.reply(votes=votes, loss=losses)

    @verb(releases={"records": Count()}, singly=True)
    def tell(self, cohort, ask):
        return cohort.reply(records=cohort.sizes)


@pytest.fixture(scope="module")
def runtime(tokenizer):
    return make_workbench(tokenizer, slots=2)


def make_fleet(runtime, folder, engine="local", gone=None, min_replies=1, sizes=SIZES):
    """Five sites, of which four are enough; ``gone`` maps a step to the sites that do not answer it."""
    sites = make_sites(*sizes, folder=folder)
    write_roster(folder / ROSTER, {site.name: site.kept.folder for site in sites})
    roster = read_roster(folder / ROSTER)
    for site in sites:
        key = identity(site.kept.folder)
        site.masking = Masking(site.name, "run", key, roster, Agreement(OPTIONS.secure, len(sites)))
    verbs = [Voting(None, rule(OPTIONS)), Membership("instruction", counts=False), SecureSumming()]
    host = Host(sites, verbs, runtime, Stream(0), run="run")
    made = failing(ENGINES[engine], lambda site, ask: site in (gone or {}).get(ask.verb, ()))(host)
    agreement = Agreement(OPTIONS.secure, len(sites))
    return Fleet(made, verbs, Ledger(), Stream(0), min_replies, run="run", agreement=agreement)


def vote(fleet, like=LIKE, each=None, breaks="", **options):
    fleet.begin(1)
    return fleet.sum("vote", fleet.sites, each, like=like, times=10, **{"break": breaks}, **options)


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_sum_is_that_of_the_replies(runtime, tmp_path, engine):
    fleet = make_fleet(runtime, tmp_path, engine)
    found = vote(fleet)
    assert found["votes"].tolist() == [150, 50, -150] and found["votes"].dtype == torch.float64
    assert found.sites == fleet.sites and found.heard == {"votes": 5, "loss": 5}
    assert found.mean("loss") == 0.75 and not fleet.events
    fleet.engine.close()


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize("step", ["advertise_keys", "share_keys", "vote", "check_consistency", "unmask"])
def test_a_site_may_drop_out_at_any_step(runtime, tmp_path, step):
    fleet = make_fleet(runtime, tmp_path, gone={step: ["site-1"]})
    found = vote(fleet)
    there = [size for size in SIZES if size != 2 or step in STEPS[2:]]
    assert found["votes"].tolist() == [10 * sum(there), 10 * len(there), -10 * sum(there)]
    assert ("site-1" in found.sites) == (step in STEPS[2:])
    assert fleet.events == [f"site site-1 did not answer '{step}': gone"]


def test_with_too_few_the_round_fails_and_says_what_to_do(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path, gone={"vote": ["site-1"], "check_consistency": ["site-2"]})
    with pytest.raises(RunError, match="only 3 of 5 sites confirmed who is in the sum; a secure sum needs 4") as error:
        vote(fleet)
    assert error.value.where == "round 1, verb vote"
    assert "Bring the sites back" in error.value.fix and "site site-2 did not answer" in error.value.fix
    assert "unmask" not in {row["verb"] for row in fleet.ledger.table()}


@pytest.mark.usefixtures("each_graph")
def test_who_is_in_a_sum_is_settled_before_anything_of_it_is_revealed(runtime, tmp_path):
    fleet, seen = make_fleet(runtime, tmp_path, gone={"vote": ["site-1"]}), []
    asked = lambda: {row["verb"] for row in fleet.ledger.table()}  # noqa: E731
    vote(fleet, settled=lambda count: seen.append((count, "check_consistency" in asked(), "unmask" in asked())))
    assert seen == [(4, True, False)]
    few = make_fleet(runtime, tmp_path, gone={"check_consistency": ["site-1", "site-2"]})
    with pytest.raises(RunError, match="only 3 of 5 sites confirmed"):
        vote(few, settled=seen.append)
    assert len(seen) == 1


def test_a_run_may_need_more_replies_than_a_sum(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path, gone={"vote": ["site-1"]}, min_replies=5)
    with pytest.raises(RunError, match="only 4 of 5 sites answered 'vote', 5 are needed") as error:
        vote(fleet)
    assert error.value.fix.count("site site-1 did not answer") == 1
    assert "check_consistency" not in {row["verb"] for row in fleet.ledger.table()}


def test_of_those_that_only_helped_nothing_is_kept_with_the_round(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path, gone={"vote": ["site-1"]})
    vote(fleet)
    assert fleet.took_part == {"site-0", "site-2", "site-3", "site-4"}


def test_what_travels_is_counted_field_by_field(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path)
    vote(fleet)
    rows = {(row["verb"], row["field"]): row for row in fleet.ledger.table()}
    assert {key: row["bytes"] // 5 for key, row in rows.items()} == {
        ("advertise_keys", "keys"): 160,
        ("share_keys", "sealed"): 5 * 82,
        ("vote", "votes"): 4 * 8,
        ("vote", "loss"): 2 * 8,
        ("check_consistency", "signature"): 64,
        ("unmask", "shares"): 5 * 33,
    }
    assert rows["vote", "votes"]["protection"]["type"] == "secure sum"
    assert all(rows[key]["kind"] == "keys" and rows[key]["protection"] is None for key in rows if key[0] in STEPS)
    assert fleet.ledger.traffic().down > 5 * 5 * (160 + 82)


def test_a_hundred_sites_have_neighbours_and_the_sum_is_that_of_the_replies(runtime, tmp_path):
    """With the options of every run, and drop-outs before and after their vectors have left."""
    gone = {"vote": ["site-7", "site-70"], "check_consistency": ["site-8"], "unmask": ["site-9"]}
    fleet = make_fleet(runtime, tmp_path, gone=gone, sizes=(1,) * 100)
    assert vote(fleet)["votes"].tolist() == [980, 980, -980]
    rows = {(row["verb"], row["field"]): row for row in fleet.ledger.table()}
    holders = degree(100, 100, OPTIONS.secure).neighbours + 1
    assert rows["vote", "vouched"]["bytes"] == 98 * 64 and rows["vote", "vouched"]["protection"] is None
    assert rows["share_keys", "sealed"]["bytes"] == 100 * holders * 82 < 100 * 100 * 82
    assert rows["unmask", "shares"]["bytes"] == 96 * holders * 33


@pytest.mark.usefixtures("each_graph")
def test_only_one_site_of_a_worker_is_broken_and_the_others_go_on(runtime, tmp_path, capfd):
    """What goes wrong in the method's verb is a drop-out, and not of the cohort that the site is in."""
    fleet = make_fleet(runtime, tmp_path, "processes")
    found = vote(fleet, breaks="site-2")  # one worker has the sites 0, 2 and 4, two slots, and so cohorts of two
    assert sorted(found.sites) == ["site-0", "site-1", "site-3", "site-4"]
    assert "flu" in capfd.readouterr().err
    fleet.engine.close()


def test_a_site_whose_budget_is_spent_is_a_drop_out(runtime, tmp_path, monkeypatch):
    fleet = make_fleet(runtime, tmp_path, "processes")
    refused = lambda host, ask, site: BudgetError("no") if (ask.verb, site.name) == ("vote", "site-3") else None  # noqa: E731
    monkeypatch.setattr(Host, "_refusal", refused)
    assert vote(fleet)["votes"].tolist() == [110, 40, -110]
    assert fleet.events == ["site site-3 did not answer 'vote': BudgetError"]
    fleet.engine.close()


@pytest.mark.usefixtures("each_graph")
def test_what_a_site_cannot_write_down_costs_no_other_site_its_answer(runtime, tmp_path, monkeypatch):
    """All of a process go through each step but once: none of them is asked again for the one that fails."""
    fleet = make_fleet(runtime, tmp_path, "processes")
    full = lambda line: (_ for _ in ()).throw(CheckpointError("the disk is full"))  # noqa: E731
    monkeypatch.setattr(fleet.engine.host.sites["site-2"].masking._journal, "append", full)
    assert vote(fleet)["votes"].tolist() == [150, 50, -150]
    assert fleet.events == ["site site-2 did not answer 'check_consistency': CheckpointError"]
    fleet.engine.close()


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize(("step", "field"), [("share_keys", "sealed"), ("unmask", "shares")])
def test_a_site_whose_message_has_another_form_is_a_drop_out(runtime, tmp_path, monkeypatch, step, field):
    fleet, there = make_fleet(runtime, tmp_path), [1, 0, 1, 1, 1] if step != "unmask" else [1] * 5
    honest = Host.answer

    def answer(host, ask, sites, since=None):
        for reply in honest(host, ask, sites, since):
            broken = (ask.verb, reply.site) == (step, "site-1")
            yield Reply(reply.site, {} if step == "unmask" else {field: reply[field][:, 1:]}) if broken else reply

    monkeypatch.setattr(Host, "answer", answer)
    assert vote(fleet)["votes"][1] == 10 * sum(there)
    [event] = fleet.events
    assert event.startswith(f"the answer of site site-1 to '{step}' is left out: it does not hold")


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize(
    ("step", "field"),
    [("advertise_keys", "keys"), ("share_keys", "sealed"), ("check_consistency", "signature"), ("unmask", "shares")],
)
def test_where_answers_are_left_out_of_a_sum_no_site_that_comes_back_is_enough(
    runtime, tmp_path, monkeypatch, step, field
):
    """So that no unit starts a server again and again, which asks the sites each time."""
    honest, liars = Host.answer, {"site-1", "site-2"}

    def answer(host, ask, sites, since=None):
        for reply in honest(host, ask, sites, since):
            broken = ask.verb == step and reply.site in liars
            yield Reply(reply.site, {field: reply[field][:, :1]}) if broken else reply

    monkeypatch.setattr(Host, "answer", answer)
    with pytest.raises(RunError, match="only 3 of 5 sites") as error:
        vote(make_fleet(runtime, tmp_path))
    assert not error.value.passing and error.value.fix.startswith("Mend what answers are left out for and start again")
    liars.remove("site-2")
    with pytest.raises(RunError, match="only 3 of 5 sites") as error:
        vote(make_fleet(runtime, tmp_path, gone={step: ["site-3"]}))
    assert error.value.passing and error.value.fix.startswith("Bring the sites back and start again")


@pytest.mark.parametrize("left_out", [True, False])
def test_a_run_that_needs_more_replies_than_a_sum_counts_those_lost_before(runtime, tmp_path, monkeypatch, left_out):
    """They are asked for no masked vector, and one that did not answer may come back."""
    honest = Host.answer

    def answer(host, ask, sites, since=None):
        for reply in honest(host, ask, sites, since):
            broken = (ask.verb, reply.site) == ("share_keys", "site-1")
            if broken:
                reply = Reply(reply.site, {"sealed": reply["sealed"][:, :1]}) if left_out else Failure("site-1", "gone")
            yield reply

    monkeypatch.setattr(Host, "answer", answer)
    with pytest.raises(RunError, match="only 4 of 5 sites answered 'vote', 5 are needed") as error:
        vote(make_fleet(runtime, tmp_path, min_replies=5))
    assert error.value.passing is not left_out


@pytest.mark.usefixtures("each_graph")
def test_what_cannot_be_masked_costs_no_other_site_its_answer(runtime, tmp_path):
    """Of a cohort of two: a number that is not finite would spoil the sum."""
    fleet = make_fleet(runtime, tmp_path, "processes")
    assert vote(fleet, breaks="site-2 diverges")["votes"].tolist() == [120, 40, -120]
    assert fleet.events == ["site site-2 did not answer 'vote': RunError"]
    fleet.engine.close()


@pytest.mark.usefixtures("each_graph")
def test_nothing_crosses_but_masked_vectors(runtime, tmp_path, monkeypatch):
    """Not one of the numbers that are summed is among the bytes that a worker sends."""
    crossed = []
    from murmura.federation.engines import processes

    monkeypatch.setattr(processes, "unframe", lambda message: crossed.append(message) or unframe(message))
    from murmura.federation.wire.frames import unframe

    fleet = make_fleet(runtime, tmp_path, "processes")
    vote(fleet)
    fleet.engine.close()
    own = [torch.tensor([10 * size, 10, -10 * size]).numpy().tobytes() for size in SIZES]
    assert len(crossed) > 5 * 5 and not any(row in message for row in own for message in crossed)


# ---- what sites refuse -------------------------------------------------------------------------------------------


def answers(fleet, ask):
    return list(fleet.engine.host.answer(ask, fleet.sites[:1]))


@pytest.mark.usefixtures("each_graph")
def test_a_site_does_not_answer_in_clear_what_leaves_in_a_sum_alone(runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(Voting, "answers", lambda method, name: 1 if name == "vote" else None)
    fleet = make_fleet(runtime, tmp_path)
    [answer] = answers(fleet, Ask("vote", 1, {"times": 1, "break": ""}, run="run"))
    assert isinstance(answer, Failure) and answer.why == "SecureSumError" and "asked for in clear" in str(answer.error)
    [answer] = answers(fleet, Ask("tell", 1, run="run", masked={"sum": "x"}))
    assert answer.why == "SecureSumError"
    notes = (fleet.engine.host.sites["site-0"].kept.folder / "notes.txt").read_text()
    assert "Round 1: verb vote is asked for in clear" in notes and "do not trust this server" in notes
    assert [reply["records"] for reply in fleet.ask("tell", fleet.sites)] == list(SIZES)
    assert vote(fleet).sites == fleet.sites  # what was refused has cost no answer


@pytest.mark.usefixtures("each_graph")
def test_the_owner_is_told_what_was_refused_and_what_was_clipped(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path)
    site = fleet.engine.host.sites["site-0"]
    [answer] = answers(fleet, Ask("advertise_keys", 1, {"sum": "x", "verb": "vote", "sites": 2}, run="run"))
    assert answer.why == "SecureSumError" and answer.error.where == "site site-0, round 1"
    notes = (site.kept.folder / "notes.txt").read_text()
    assert "Round 1: a sum over 2 sites, where the experiment has 5 or more take part" in notes
    site.records *= 100  # a loss of 25
    vote(fleet)
    notes = (site.kept.folder / "notes.txt").read_text()
    assert "Round 1: 1 numbers of 'loss' were clipped to ±16; the server was not told." in notes


def test_nothing_but_numbers_of_examples_weighs(runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(Voting, "weights", lambda method, name: {"votes": "loss"})
    with pytest.raises(SecureSumError, match="'loss' is no number of examples"):
        vote(make_fleet(runtime, tmp_path))


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"votes": torch.zeros(3, dtype=torch.int64)}, "'loss' has no place in the secure sum"),
        (LIKE | {"loss": 0}, "'loss' is not what the secure sum that was asked for has a place for"),
        (LIKE | {"votes": torch.zeros(3)}, "'votes' is not what"),
        (LIKE | {"records": 0}, "'records' is to be summed, which verb vote does not send"),
    ],
)
def test_a_layout_that_is_not_that_of_a_reply_is_refused_and_told(runtime, tmp_path, changed, why):
    fleet = make_fleet(runtime, tmp_path)
    with pytest.raises(SecureSumError, match=why):
        vote(fleet, like=changed)
    notes = (fleet.engine.host.sites["site-0"].kept.folder / "notes.txt").read_text()
    assert f"Round 1: {why}" in notes and "do not trust this server" in notes


def test_a_number_of_examples_is_summed_as_whole(runtime, tmp_path, monkeypatch):
    monkeypatch.setattr(Voting, "releases", lambda method, name: {"votes": Votes("votes"), "loss": Count()})
    with pytest.raises(SecureSumError, match="'loss' is to be summed as if it were not whole"):
        vote(make_fleet(runtime, tmp_path))


@pytest.mark.usefixtures("each_graph")
def test_a_round_that_is_done_again_is_told_to_owners(runtime, tmp_path):
    gone = {}
    fleet = make_fleet(runtime, tmp_path, gone=gone)
    vote(fleet)
    fleet.stores.rewind(0)
    assert vote(fleet)["votes"].tolist() == [150, 50, -150]
    notes = (fleet.engine.host.sites["site-0"].kept.folder / "notes.txt").read_text()
    assert "Round 1: a secure sum of this round is made again" in notes
    fleet.stores.rewind(0)
    gone["vote"] = ["site-1"]
    with pytest.raises(SecureSumError, match="round 1 is summed again over other sites than before"):
        vote(fleet)


def test_a_site_without_a_part_in_secure_sums_says_so(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path)
    fleet.engine.host.sites["site-0"].masking = None
    with pytest.raises(RunError, match="the site takes part in no secure sums"):
        vote(fleet)


@pytest.mark.usefixtures("each_graph")
def test_sites_that_are_asked_different_things_reveal_nothing(runtime, tmp_path, monkeypatch):
    """As by a server that has all sites but one answer with what it knows."""
    fleet = make_fleet(runtime, tmp_path)
    answer = Host.answer

    def lying(host, ask, sites, since=None):
        for site in sites:
            own = ask.narrowed([site])
            if ask.verb == "vote" and site != "site-1":
                own = Ask(ask.verb, ask.round, {**ask.shared, "times": 0}, {}, ask.run, None, ask.masked)
            yield from answer(host, own, [site], since)

    monkeypatch.setattr(Host, "answer", lying)
    with pytest.raises(SecureSumError, match="or it has signed something else"):
        vote(fleet)


@pytest.mark.usefixtures("each_graph")
def test_a_masked_vector_of_another_form_is_left_out(runtime, tmp_path, monkeypatch):
    fleet = make_fleet(runtime, tmp_path)
    masked = Host._masked

    def shortened(host, ask, terms, shared, reply):
        found = masked(host, ask, terms, shared, reply)
        return Reply(found.site, {**found.fields, MASKED: found[MASKED][found.site == "site-1" :]})

    monkeypatch.setattr(Host, "_masked", shortened)
    assert vote(fleet)["votes"].tolist() == [130, 40, -130]
    assert fleet.events == [
        "the answer of site site-1 to 'vote' is left out: it is no masked vector of 6 words of 64 bits"
    ]


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize("more", [{"vouched": "x"}, {"vouched": {"a": [1]}}, {"more": 1}])
def test_a_masked_reply_with_a_field_of_the_site_s_own_is_left_out(runtime, tmp_path, monkeypatch, more):
    fleet, honest = make_fleet(runtime, tmp_path), Host._masked

    def lying(host, ask, terms, shared, reply):
        found = honest(host, ask, terms, shared, reply)
        return Reply(found.site, {**found.fields, **more}) if found.site == "site-1" else found

    monkeypatch.setattr(Host, "_masked", lying)
    assert vote(fleet).sites == ["site-0", "site-2", "site-3", "site-4"]
    [event] = fleet.events
    assert event.startswith("the answer of site site-1 to 'vote' is left out: ")


@pytest.mark.usefixtures("each_graph")
@pytest.mark.parametrize(
    ("word", "false", "why"),
    [
        (0, -4, "'votes' is said to be in none of"),
        (0, 2, "in 6 of the 5 replies"),
        (4, -5, "'loss' is said to be in -1"),
    ],
)
def test_a_sum_says_of_no_field_that_it_is_in_more_or_fewer_replies_than_can_be(
    runtime, tmp_path, monkeypatch, word, false, why
):
    """Each vector has a word that says whether a field is there, and a site can write any number into it."""
    made = Layout.vector

    def lying(layout, reply):
        vector, told = made(layout, reply)
        if reply["votes"][0] == 20:  # of site-1
            vector[word] = np.array(false).astype(vector.dtype)
        return vector, told

    fleet = make_fleet(runtime, tmp_path)
    monkeypatch.setattr(Layout, "vector", lying)
    with pytest.raises(RunError, match=why) as error:
        vote(fleet)
    assert error.value.where == "round 1, verb vote" and "A site has sent a false part" in error.value.fix


def test_the_method_has_to_say_what_a_reply_is_like(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path)
    with pytest.raises(RunError, match="what a reply is like is not known"):
        vote(fleet, like=None)
    with pytest.raises(RunError, match="or not all sites are asked alike"):
        vote(fleet, each={"site-0": {"times": 1}})
    with pytest.raises(RunError, match="replies to 'vote' leave sites in secure sums alone"):
        next(fleet.ask("vote", fleet.sites))
    with pytest.raises(RunError, match="'loss' has no place in the secure sum"):
        vote(fleet, like={"votes": LIKE["votes"]})


def test_a_sites_journal_has_the_masked_vector_as_it_left_and_what_is_in_it(runtime, tmp_path):
    fleet = make_fleet(runtime, tmp_path)
    host = fleet.engine.host
    for site in host.sites.values():
        site.released = ReleaseJournal(site.kept.released)
    seen = []
    entered = host._entered
    host._entered = lambda ask, answer: seen.append((ask.verb, answer)) or entered(ask, answer)
    fleet.begin(1)
    fleet.sum("vote", fleet.sites, like=LIKE, times=1, **{"break": ""})
    found = list(released(host.sites["site-0"].kept.folder))
    assert [line["verb"] for line in found] == ["advertise_keys", "share_keys", "vote", "check_consistency", "unmask"]
    [field] = found[2]["fields"]
    vector = next(answer for verb, answer in seen if verb == "vote" and answer.site == "site-0")
    assert field["sha256"] == digest(vector.fields).hex() and field["bytes"] == vector[MASKED].nbytes
    assert field["protection"]["type"] == "secure sum"
    assert [(one["field"], one["kind"], one["protection"]) for one in field["holds"]] == [
        ("votes", "votes", None),
        ("loss", "metric", None),
    ]
