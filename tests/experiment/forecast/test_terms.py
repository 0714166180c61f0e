"""What a run asks of a site, told from the site's folder alone."""

import re
import shutil

import pytest

from murmura.experiment.consent import digest_of
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.terms import terms
from murmura.experiment.run import run
from murmura.experiment.simulation import share_out
from murmura.experiment.site_side import open_sites
from murmura.experiment.skeleton import OutOfReachError
from murmura.federation.site.identity import write_roster
from murmura.federation.wire.releases import VOUCHED, protection_from_json
from murmura.methods import parse_config
from murmura.methods.dplora.guarantee import plan as dplora_plan
from murmura.runs.names import FEDERATION, HELDOUT_DIGESTS, ROSTER
from murmura.runs.record import read
from murmura.training.config import LocalTraining
from murmura.units import bound
from tests.federation.world import instructions
from tests.privacy.plans import of_group

pytestmark = pytest.mark.usefixtures("no_page")

SECURE = {"aggregation": {"secure": True}, "evaluation": {"attacks": False, "uploads": 0}}
PRIVATE = {"method": {"name": "dplora", "rounds": 2, "epsilon": 4.0}, "training": {"batch_size": 2}}
SITES = {"heart": 3, "skin": 3, "lung": 4}


@pytest.fixture
def shared(make, tmp_path):
    def done(sites=SITES, **sections):
        experiment = make(**sections)
        records = {name: instructions(size, seed) for seed, (name, size) in enumerate(sites.items(), start=1)}
        folders = {name: tmp_path / "members" / name for name in records}
        (tmp_path / "members").mkdir()
        share_out(experiment, records, folders, None, ["cpu"], simulated=False)
        (tmp_path / "members" / FEDERATION / HELDOUT_DIGESTS).write_text("[]")
        if experiment.aggregation.secure:
            write_roster(tmp_path / "members" / FEDERATION / ROSTER, folders)
        return experiment, folders

    return done


def test_terms_are_told_where_no_server_and_no_other_site_is(shared, tmp_path):
    experiment, folders = shared()
    shutil.rmtree(tmp_path / "sites")
    shutil.rmtree(folders["skin"])
    found = terms(folders["heart"])
    assert (found.site, found.rounds, found.records, found.reads) == ("heart", 2, 3, 3)
    assert (
        found.experiment == digest_of(experiment, tmp_path / "members" / "@federation")
        and found.secure is None
        and found.guarantee == ()
    )
    assert found.measured == ("attack",) and found.rejection is None


@pytest.mark.parametrize("sections", [{}, SECURE, PRIVATE], ids=["clear", "secure", "private"])
def test_every_field_that_a_site_may_send_is_in_the_terms_and_all_are_of_verbs_that_it_answers(shared, sections):
    _, folders = shared(**sections)
    found = {(one.verb, one.field) for one in terms(folders["heart"]).fields}
    host = open_sites([folders["heart"]])
    verbs = {verb: one for one in reversed(host.verbs) for verb in one.verbs()}
    host.close()
    signed = {(verb, VOUCHED) for verb, one in verbs.items() if one.secure(verb) is not None}
    assert found == {(verb, name) for verb, one in verbs.items() for name in one.releases(verb)} | signed


def test_what_a_run_has_sent_was_in_the_terms_and_no_larger(shared, make):
    _, folders = shared()
    found = terms(folders["heart"])
    record = read(run(make()).folder)
    shown = {(one.verb, one.field): one for one in found.fields}
    assert {(row.verb, row.field) for row in record.disclosure} <= shown.keys()
    assert all(shown[row.verb, row.field].protection == row.protection for row in record.disclosure)
    [adapter] = [row for row in record.disclosure if row.field == "adapter"]
    assert found.bytes_up == adapter.bytes / adapter.messages


def test_where_ranks_differ_an_owner_is_told_what_the_largest_takes(shared, tmp_path):
    """Which one is the site's own hangs on its place among sites that it does not know."""

    def told(**lora):
        _, folders = shared(**lora)
        found = {terms(folder).bytes_up for folder in folders.values()}
        shutil.rmtree(tmp_path / "members")
        return found

    alike, unequal = told(), told(aggregation={"ranks": [1, 2, 1]}, lora={"rank": 2, "alpha": 4})
    assert unequal == told(lora={"rank": 2, "alpha": 4}) and len(alike) == 1


def test_bytes_of_a_secure_sum_are_those_over_all_sites(shared, make, tmp_path):
    _, folders = shared(**SECURE)
    small = terms(folders["heart"]).bytes_up
    shutil.rmtree(tmp_path / "members")
    _, folders = shared({f"site-{k}": 3 for k in range(9)}, **SECURE)
    assert terms(folders["site-0"]).bytes_up > small > terms_in_clear(shared, tmp_path)


def terms_in_clear(shared, tmp_path):
    shutil.rmtree(tmp_path / "members")
    _, folders = shared()
    return terms(folders["heart"]).bytes_up


def test_the_guarantee_is_for_the_sites_own_number_of_records_and_how_it_is_protected_is_told(shared):
    _, folders = shared(**PRIVATE)
    three, four = terms(folders["heart"]), terms(folders["lung"])
    assert three.guarantee[0].startswith("For each of the site's 3 records: ε = ")
    assert four.guarantee[0].startswith("For each of the site's 4 records: ε = ")
    assert any("finds at most" in sentence for sentence in three.guarantee)
    [(adapter, often)] = [
        (one, often) for one, often in zip(three.fields, three.often, strict=True) if one.field == "adapter"
    ]
    assert protection_from_json(adapter.protection).added_by == "site" and often == "2 times at most"


@pytest.mark.parametrize("most", [None, 1, 2])
def test_what_a_person_with_several_records_is_promised_is_told_to_the_owner(shared, most):
    bounding = {} if most is None else {"data": {"user": "patient", "records_per_user": most}}
    _, folders = shared(**PRIVATE | bounding)
    _, *told = terms(folders["heart"]).guarantee
    plan = dplora_plan(parse_config(PRIVATE["method"], ""), LocalTraining(batch_size=2), 3)
    if most == 1:
        assert not any("person" in sentence for sentence in told)
    elif most is None:
        assert told[0].endswith("and the run does not bound how many one has.")
    else:
        assert f"all of them together ε = {bound(of_group(plan, 2).value)} at the same δ" in told[0]


def test_a_site_is_told_before_it_agrees_what_makes_its_epsilon_worth_less_than_it_looks(shared):
    options = {"training": PRIVATE["training"] | {"tokens_per_pass": 64}}
    _, folders = shared(**PRIVATE | options)
    assert "holds against a server that follows the protocol" in terms(folders["heart"]).guarantee[-1]


@pytest.mark.parametrize(
    ("secure", "cohort", "told"),
    [
        (False, None, "Whether δ = 0.4 is of use cannot be told either"),
        (False, 3, "δ = 0.4 is of no use"),  # there are no fewer sites than a round asks
        (True, None, "δ = 0.4 is of no use"),
    ],
)
def test_a_delta_for_sites_whose_number_is_not_told_is_not_passed_as_one_of_use(shared, secure, cohort, told):
    method = {"name": "dpfedavg", "rounds": 2, "noise_multiplier": 4.0, "delta": 0.4}
    method |= {} if cohort is None else {"sampler": {"kind": "fixed", "sites_per_round": cohort}}
    options = SECURE if secure else {"evaluation": SECURE["evaluation"]}
    _, folders = shared(method=method, **options)
    judged = [
        sentence for sentence in terms(folders["heart"]).guarantee if "of no use" in sentence or "of use" in sentence
    ]
    assert len(judged) == 1 and told in judged[0]


def test_the_digest_is_of_all_that_is_shown(shared):
    _, folders = shared()
    heart, again, lung = (terms(folders[name]).digest for name in ("heart", "heart", "lung"))
    assert heart == again != lung


def test_a_dry_run_tells_the_same_of_what_travels(shared, make):
    _, folders = shared({"heart": 6})
    expected, found = dry_run(make()), terms(folders["heart"])
    assert found.bytes_up == expected.rounds[0].bytes_up / expected.rounds[0].sites
    assert {(one.verb, one.field) for one in found.fields} == {(row.verb, row.field) for row in expected.disclosure}


def test_what_a_run_would_do_to_the_sites_account_is_told_beforehand_and_is_what_happens(shared):
    _, folders = shared(**PRIVATE | {"evaluation": {"attacks": False, "uploads": 0}})
    heart = folders["heart"]
    assert terms(heart).budget is None
    keep_account(heart, "epsilon = 5")
    before = terms(heart).budget
    assert not (heart / "account").exists()  # nothing is written
    answer_both_rounds(heart)
    after = terms(heart).budget
    [spent] = re.findall(r"ε = (\S+) of 5 is spent", after)
    assert before == f"Budget of heart: ε = 0.000 of 5 is spent at δ = 1e-05, and it would be {spent} after this run."
    assert after.endswith("That is too much: 1 of its 2 rounds would be answered.")
    assert terms(folders["lung"]).budget is None


def keep_account(folder, *limits):
    file = folder / "site.toml"
    file.write_text(file.read_text().replace("[budget]", "\n".join(["[budget]", 'folder = "account"', *limits])))


def answer_both_rounds(folder):
    host = open_sites([folder])
    [site] = host.sites.values()
    cost = host.verbs[0].cost("train_private", site.size, host.runtime.training)
    site.budget.reserve("earlier", cost.times(2))
    host.close()


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({}, "No ε at the sites covers what verb train releases and attacks on their records: sites do not answer it"),
        (PRIVATE | {"training": {"batch_size": 4}}, "What the run would spend is not known from here: the data set is"),
    ],
)
def test_a_run_that_a_budget_rules_out_or_whose_cost_is_not_known_is_told(shared, sections, told):
    _, folders = shared(**sections)
    keep_account(folders["heart"], "epsilon = 6")
    assert terms(folders["heart"]).budget.startswith(told)


def test_where_nobody_knows_which_records_fit_no_epsilon_is_told_and_none_is_within_a_limit(shared, monkeypatch):
    """Counted as if all fitted, a site would have more records than it takes part with, and so too small an ε."""
    _, folders = shared(**PRIVATE | {"evaluation": {"attacks": False, "uploads": 0}})

    def out_of_reach(*_, **__):
        raise OutOfReachError("neither here nor at the hub")

    monkeypatch.setattr("murmura.experiment.forecast.terms.model_spec", out_of_reach)
    with (folders["heart"] / "site.toml").open("a") as file:
        file.write("[allow]\nepsilon = 1000\n")
    keep_account(folders["heart"])
    found = terms(folders["heart"])
    assert found.budget == "What the run would spend is not known from here: the model is not on this machine."
    assert not found.fitting and "ε =" not in "".join(found.guarantee)
    assert found.guarantee[0].startswith("What the run promises is not known from here: which records fit takes")
    assert "is not known here" in found.rejection
