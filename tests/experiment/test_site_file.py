"""A site's folder: what its owner allows, and what a simulation puts there."""

import json
import re
import stat
import tomllib
from pathlib import Path

import pytest
import tomli_w

from murmura import atomic
from murmura.augment.verbs import Augmenting
from murmura.data.loading import load_records
from murmura.data.records import KINDS, Document, Instruction, Labelled, digest
from murmura.errors import CheckpointError, ConfigError, DataError, RefusedError, RunError
from murmura.experiment import site_side
from murmura.experiment.config import Experiment
from murmura.experiment.forecast.terms import terms
from murmura.experiment.run import run
from murmura.experiment.simulation import bytes_of, share_out
from murmura.experiment.site_file import Allow, AskedOf, SiteFile
from murmura.experiment.site_side import open_sites
from murmura.experiment.validate import method_of
from murmura.experiment.verbs import fingerprint, verbs_of
from murmura.federation.engines import processes
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.site.identity import write_roster
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.frames import unframe
from murmura.federation.wire.messages import Ask
from murmura.measure.verbs import Measuring
from murmura.methods.pretext.method import Pretext
from murmura.personal.verbs import Personalising
from murmura.privacy.budget import Budget
from murmura.runs import locks
from murmura.runs.names import FEDERATION, HELDOUT_DIGESTS, ROSTER
from murmura.streams import Stream
from tests.experiment import small
from tests.experiment.small import measured_by_default
from tests.federation.engines.wired import Wired
from tests.federation.world import instructions

ODD = [" two  spaces ", "line\nbreak\u2028\r\n", "\ttab", "\u00e9 e\u0301 \U0001f600", '"quoted", {json}', "NaN", "0"]


@pytest.fixture
def make(make):
    """What an owner allows is held against all that a run asks, and so against what it measures."""
    return measured_by_default(make)


@pytest.fixture
def shared(make, tmp_path):
    """Share records out to sites in ``tmp_path``; returns the experiment and the folders."""

    def done(records=None, **sections):
        experiment = make(**sections)
        records = records or {"heart": instructions(3, seed=1), "skin": instructions(2, seed=2)}
        folders = {name: tmp_path / "private" / name for name in records}
        (tmp_path / "private").mkdir(exist_ok=True)
        share_out(experiment, records, folders, tmp_path / "results", ["cpu"])
        atomic.write(tmp_path / "private" / FEDERATION / HELDOUT_DIGESTS, b"[]", private=True)
        if experiment.aggregation.secure:
            write_roster(tmp_path / "private" / FEDERATION / ROSTER, folders)
        return experiment, folders

    return done


def edit(folder, **changes):
    path = folder / "site.toml"
    path.write_text(tomli_w.dumps(tomllib.loads(path.read_text()) | changes))


def answers(host, experiment, verb="join", site="heart", run="a", **fields):
    joining = {"resumed": False, "experiment": fingerprint(experiment)} if verb == "join" else fields
    [answer] = host.answer(Ask(verb, int(verb == "train"), joining, run=run), [site])
    return getattr(answer, "why", None)


@pytest.mark.parametrize("text", ["3", "{}", "[[1]]", "[1]", "null", "[" * 3000 + "]" * 3000], ids=len)
def test_what_is_no_list_of_digests_is_told(tmp_path, text):
    (tmp_path / HELDOUT_DIGESTS).write_text(text)
    with pytest.raises(DataError, match="this is not a list of digests"):
        site_side.agreed_on(tmp_path)


def test_paths_of_a_site_may_be_links_that_lead_to_themselves(tmp_path):
    """They are told where they are read."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "site.toml").write_text('name = "a"\nrecords = "loop"\nfederation = "."\n[budget]\nfolder = "loop"\n')
    found = SiteFile.load(tmp_path)
    assert found.records == found.budget.folder == str(tmp_path / "loop")


def test_without_the_list_of_what_is_measured_on_a_real_site_takes_no_part(shared):
    """It would train on held-out records."""
    _, folders = shared()
    (folders["heart"].parent / FEDERATION / HELDOUT_DIGESTS).unlink()
    open_sites([folders["heart"]]).close()  # as long as a simulation plays it
    edit(folders["heart"], simulated=False)
    with pytest.raises(DataError, match=r"heldout\.json: the list .* cannot be read .* whoever made the federation"):
        open_sites([folders["heart"]])


def test_what_a_federation_hands_round_is_to_be_had_from_whoever_made_it(shared, tmp_path):
    _, folders = shared()
    edit(folders["heart"], federation="../not-here")
    for opened in (lambda folder: open_sites([folder]), terms):
        with pytest.raises(ConfigError, match="Get the folder @federation from whoever made the federation"):
            opened(folders["heart"])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (None, r"there is no such file\. Expected a file\.$"),
        ([{"instruction": "a", "output": "b"}, {"output": "b"}], r"Or take them out of the file\.$"),
    ],
)
def test_remedies_for_a_sites_records_are_those_that_it_has(shared, lines, told):
    _, folders = shared()
    edit(folders["heart"], records="letters.jsonl", simulated=False)
    if lines:
        small.write_lines(folders["heart"] / "letters.jsonl", lines)
    with pytest.raises(DataError, match=told):
        open_sites([folders["heart"]])


def test_nobody_else_may_look_into_a_simulated_site(shared):
    _, folders = shared()
    for folder in (*folders.values(), folders["heart"].parent / "@federation"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


@pytest.mark.parametrize(
    "records",
    [
        [Instruction(text, text, text) for text in ODD],
        [Document(text) for text in ODD],
        [Labelled(text, label) for text, label in zip(ODD, [" a ", "1", "", "b", "c", "d", "e"], strict=True)],
    ],
    ids=["instruction", "document", "labelled"],
)
def test_records_are_at_the_site_what_they_were(shared, tmp_path, records):
    kind = {Instruction: "instruction", Document: "document", Labelled: "labelled"}[type(records[0])]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({name: getattr(one, name) for name in one.__slots__}) + "\n" for one in records))
    read = load_records(path, KINDS[kind]).records
    _, folders = shared({"heart": read})
    file = SiteFile.load(folders["heart"])
    again = load_records(file.records, KINDS[kind], fields=file.fields).records
    assert again == read and digest(again) == digest(read)
    assert bytes_of({"heart": read}) == (folders["heart"] / "records.jsonl").stat().st_size


LIMITS = {
    "the run's method is 'fedit'": {"methods": ["dplora", "lpfl"]},
    "the run has 2 rounds": {"rounds": 1},
    "a round uses 3 of the site's 3 records": {"records": 2},
    "the run promises no ε": {"epsilon": 8.0, "measuring": True},
    "the run measures on private records (attack)": {"measuring": False},
    "measures on private records": {"measuring": ["memorise"]},
    "the run's sums are not secure": {"clear": False},
    "has not consented to this experiment": {},
}
"""Of an owner, by the reason that they give."""
QUIET = {"evaluation": {"attacks": False, "uploads": 0}}


@pytest.mark.parametrize("limit", LIMITS)
def test_what_an_owner_does_not_allow_is_refused_and_both_sides_are_told(shared, limit):
    experiment, folders = shared(**(QUIET if "promises" in limit else {}))
    edit(folders["heart"], allow=LIMITS[limit], simulated="consented" not in limit)
    host = open_sites(list(folders.values()))
    for verb in ("join", "commit", "train"):
        assert answers(host, experiment, verb) == "RefusedError"
    assert answers(host, experiment, site="skin") is None  # which allows what a simulation does
    notes = (folders["heart"] / "notes.txt").read_text()
    assert limit in notes and "site.toml" in notes and "do not trust this server" not in notes
    host.close()
    assert not (folders["skin"] / "notes.txt").exists()


@pytest.mark.parametrize("limit", LIMITS)
def test_a_server_learns_which_site_refuses_and_nothing_of_why(shared, limit):
    experiment, folders = shared()
    edit(folders["heart"], allow=LIMITS[limit], simulated="consented" not in limit)
    host = open_sites(list(folders.values()))
    engine = Wired(host)
    fleet = Fleet(engine, host.verbs, Ledger(), Stream(0), run="a")
    each = {site: {"resumed": False} for site in fleet.sites}
    joined = [reply.site for reply in fleet.ask("join", fleet.sites, each, experiment=fingerprint(experiment))]
    assert joined == ["skin"] and fleet.events == ["site heart did not answer 'join': RefusedError"]
    engine.close()


PRIVATE = {"method": {"name": "dplora", "rounds": 2, "epsilon": 4.0}, "training": {"batch_size": 2}}


@pytest.mark.parametrize(
    ("allow", "measured", "why"),
    [
        ({"epsilon": 4.0}, False, None),
        ({"epsilon": 3.9}, False, "promises ε = "),
        ({"epsilon": 4.0, "delta": 1e-6}, False, "the run's δ is 1e-05"),
        ({"epsilon": 4.0}, True, "no ε covers what the run measures on private records (attack)"),
    ],
)
def test_the_epsilon_that_a_run_promises_a_site_is_held_to_its_owners(shared, allow, measured, why):
    _, folders = shared(**PRIVATE, **({"evaluation": {"attacks": True}} if measured else {}))
    edit(folders["heart"], allow=allow)
    host = open_sites([folders["heart"]])
    assert (host.sites["heart"].rejection is None) == (why is None)
    assert why is None or why in host.sites["heart"].rejection
    host.close()


SAMPLED = {
    **{kind: {"name": "dpfedavg", "sampler": {"kind": kind, "sites_per_round": 2}} for kind in ("poisson", "fixed")},
    "trees": {"name": "dpftrl", "sites_per_round": 2},
    "banded": {"name": "dpftrl", "sites_per_round": 2, "noise": "banded"},
}


@pytest.mark.parametrize("method", SAMPLED.values(), ids=SAMPLED)
def test_where_a_site_does_not_know_how_many_there_are_epsilon_is_never_too_small(make, method):
    experiment = make(method={"rounds": 6, "noise_multiplier": 1.0, **method})
    built = method_of(experiment)
    unknown, *known = (
        AskedOf(experiment, built, (), 5, sites).guarantee.spent.value for sites in (None, 2, 4, 20, 100)
    )
    assert unknown >= max(known) > min(known)


def test_where_epsilon_is_not_known_without_the_number_of_sites_the_run_is_not_allowed(make):
    tree = {"kind": "tree", "restart_every": 2}
    experiment = make(
        method={"name": "dpftrl", "rounds": 4, "noise_multiplier": 9.0, "sites_per_round": 2, "noise": tree}
    )
    built = method_of(experiment)
    unknown, known = (AskedOf(experiment, built, (), 5, sites) for sites in (None, 8))
    limit = Allow(epsilon=50.0)
    assert limit.rejection_reason(known) is None
    assert "the ε that the run promises this site is not known here" in limit.rejection_reason(unknown)


def test_where_all_sites_are_in_every_round_epsilon_does_not_depend_on_their_number(make):
    experiment = make(method={"name": "dpfedavg", "rounds": 2, "noise_multiplier": 1.0})
    built = method_of(experiment)
    found = {AskedOf(experiment, built, (), 5, sites).guarantee.spent.value for sites in (None, 2, 50)}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("sections", "reads"),
    [
        ({}, 6),
        ({"training": {"batch_size": 2, "max_steps": 1}, "evaluation": {"attacks": False, "uploads": 0}}, 2),
        ({"training": {"batch_size": 2, "max_steps": 9}, "evaluation": {"attacks": False, "uploads": 0}}, 6),
        ({"training": {"batch_size": 2, "max_steps": 1}, "evaluation": {"attack_records": 1, "uploads": 0}}, 2 + 1),
        ({"training": {"batch_size": 2, "max_steps": 1}, "method": {"name": "fewfedpit"}}, 6),
        ({"training": {"batch_size": 2, "max_steps": 1}, **QUIET, "augment": {"strategy": "self-instruct"}}, 6),
        ({"training": {"batch_size": 2, "max_steps": 1}, **QUIET, "aggregation": {"rule": "fedsa"}}, 2),
        ({"method": {"name": "dplora", "epsilon": 4.0}, "training": {"batch_size": 1, "max_steps": 2}}, 6),
    ],
    ids=["all", "few steps", "many steps", "measured", "drafts after all", "writes after all", "personal", "Poisson"],
)
def test_how_many_records_a_round_uses_is_known_before(make, sections, reads):
    experiment = make(**sections)
    built = method_of(experiment)
    assert AskedOf(experiment, built, verbs_of(experiment, built), 6).reads == reads


def test_what_is_allowed_is_answered(shared):
    secure = {"aggregation": {"secure": True}, **QUIET}
    records = {name: instructions(2, seed) for seed, name in enumerate(("heart", "skin", "lung"), start=1)}
    experiment, folders = shared(records, **secure)
    edit(folders["heart"], allow={"methods": ["fedit"], "rounds": 2, "records": 2, "measuring": [], "clear": False})
    host = open_sites(list(folders.values()))
    assert answers(host, experiment) is None
    host.close()


VOTED = {"name": "pretext", "rounds": 2, "public": "public.jsonl", "noise": "skellam"}
IN_CLEAR = {
    "'tally' of verb attack (evaluation.attacks)": {"evaluation": {"uploads": 0, "attacks": True}},
    "'rouge' of verb memorise (evaluation.memorisation)": {"evaluation": {"uploads": 0, "memorisation": True}},
    "'figures' of verb assess": {"aggregation": {"secure": True, "rule": "fedsa"}},
    "'centres' of verb centres (augment.strategy)": {"augment": {"pool": "pool", "strategy": "feddca"}},
    "'features' of verb features (augment.strategy)": {"augment": {"pool": "pool", "strategy": "less"}},
    "'sizes' of verb centres (augment.strategy)": {
        "augment": {"pool": "pool", "strategy": "feddca", "noise_multiplier": 2.0}
    },
    "'losses' of verb personalise (personal.heldout)": {"personal": {}},
    "'distance' of verb report_distance (method.distance)": {"method": {**VOTED, "distance": True}},
}
"""What leaves a site by itself though sums are secure."""
SUMS_ALONE = {
    "FedIT": {},
    "nothing measured here": {"personal": {"heldout": 0.0}},
    "noise at the site, and its epsilon": PRIVATE,
    "public records": {"augment": {"pool": "pool", "strategy": "random"}},
    "votes": {"method": {**VOTED, "distance": False}},
}


def in_secure_sums(sections):
    base = {"run": {"name": "secure"}, "model": {"name": "smollm2-135m"}, "data": {"heldout": "heldout.jsonl"}}
    plain = {"method": {"name": "fedit"}, "aggregation": {"secure": True}, **QUIET}
    experiment = Experiment.of({**base, **plain, **sections})
    built = method_of(experiment)
    return AskedOf(experiment, built, verbs_of(experiment, built), 100, 5)


@pytest.mark.parametrize("what", IN_CLEAR)
def test_an_owner_who_takes_part_in_secure_sums_only_has_nothing_read_outside_of_them(what):
    run = in_secure_sums(IN_CLEAR[what])
    assert what in Allow(clear=False).rejection_reason(run)
    assert Allow().rejection_reason(run) is None


def test_the_page_for_owners_has_every_option_of_their_file():
    page = (Path(__file__).parents[2] / "docs" / "sites.md").read_text(encoding="utf-8")
    options = re.findall(r"`\[?(\w+)", " ".join(re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)))
    assert {*SiteFile.model_fields, *Allow.model_fields} <= set(options)


def test_pages_say_that_the_server_reads_what_each_site_sends_though_its_program_adds_it_up():
    attacked = in_secure_sums(IN_CLEAR["'tally' of verb attack (evaluation.attacks)"])
    assert attacked.clear == ["'tally' of verb attack (evaluation.attacks)"]
    assert not in_secure_sums({}).clear and in_secure_sums({"aggregation": {"secure": False}}).clear
    methods = Path(__file__).parents[2] / "docs" / "methods"
    attacks, aggregation = (" ".join((methods / name).read_text().split()) for name in ("attacks.md", "aggregation.md"))
    assert "Whoever operates a real server can read each site's, with secure sums too." in attacks
    only = "Only with `aggregation.secure = true` can whoever operates the server read no more than that."
    assert only in aggregation


def test_the_page_of_secure_sums_names_whatever_leaves_by_itself_beside_them():
    docs = Path(__file__).parents[2] / "docs"
    section = (docs / "secure_sum.md").read_text().split("## What leaves in clear\n")[1].split("\n## ")[0]
    kinds = (Augmenting, Measuring, Personalising, Pretext)
    verbs = [getattr(getattr(kind, name), "declaration", None) for kind in kinds for name in dir(kind)]
    options = {one.option for one in verbs if one is not None and one.option}
    found = " ".join(what for sections in IN_CLEAR.values() for what in in_secure_sums(sections).clear)
    assert options == set(re.findall(r"\((.*?)\)", found))  # of each there is a run above
    assert {one for one in {*options, "fedsa"} if f"`{one}`" not in section} == set()


@pytest.mark.parametrize("sections", SUMS_ALONE.values(), ids=SUMS_ALONE)
def test_a_run_that_reads_nothing_but_secure_sums_is_allowed(sections):
    assert Allow(clear=False).rejection_reason(in_secure_sums(sections)) is None


def test_how_often_a_site_was_measured_outlives_its_process(shared):
    _, folders = shared()
    edit(folders["heart"], simulated=False, allow={"ask": False})

    def measured(**options):
        host = open_sites([folders["heart"]], **options)
        try:
            host.sites["heart"].measured.enter("memorise", 1, 1, "a")
        except RefusedError:
            return False
        finally:
            host.close()
        return True

    assert [measured(), measured(), measured(again=True), measured()] == [True, False, True, False]
    assert not (folders["skin"] / "measured.journal").exists()


def test_more_sites_than_a_process_can_hold_are_refused_unless_the_process_has_the_whole_run(shared, monkeypatch):
    experiment, folders = shared()
    monkeypatch.setattr(site_side, "allow_open_files", lambda count: False)
    monkeypatch.setattr(locks, "_PATIENCE", 0.01)
    with pytest.raises(RunError, match="cannot hold the locks of 2 sites") as error:
        open_sites(list(folders.values()))
    assert "ulimit -n" in error.value.fix
    context = small.context(experiment)
    host = open_sites(list(folders.values()), (context, method_of(experiment)))
    held = SiteStore.held(folders["heart"], "heart")  # the lock is free
    with pytest.raises(CheckpointError, match="another process"):
        open_sites(list(folders.values()), (context, method_of(experiment)))
    held.release()
    host.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"allow": {"methods": ["fedavg"]}},
        {"allow": {"measuring": ["train"]}},
        {"allow": {"delta": 1e-6}},
        {"allow": {"round": 1}},
        {"owner": "me"},
    ],
)
def test_what_is_wrong_in_a_sites_file_is_told(shared, wrong):
    _, folders = shared()
    edit(folders["heart"], **wrong)
    with pytest.raises(ConfigError) as error:
        SiteFile.load(folders["heart"])
    assert error.value.where.endswith("site.toml")


def test_a_simulated_site_keeps_no_journal_of_what_leaves_and_any_other_does(shared):
    experiment, folders = shared()
    edit(folders["heart"], simulated=False, allow={"ask": False})
    host = open_sites(list(folders.values()))
    assert [answers(host, experiment, site=site) for site in folders] == [None, None]
    host.close()
    assert [(folder / "released.journal").exists() for folder in folders.values()] == [True, False]


def test_records_may_lie_elsewhere_under_other_names(shared, tmp_path):
    _, folders = shared()
    (tmp_path / "letters.csv").write_text("question,answer\nWhy?,Because.\n")
    fields = {"instruction": "question", "output": "answer"}
    edit(folders["heart"], records="../../letters.csv", fields=fields)
    host = open_sites([folders["heart"]])
    assert host.sites["heart"].records == [Instruction("Why?", "", "Because.")]
    host.close()


def test_budget_and_device_are_those_of_the_sites_file(shared, tmp_path):
    _, folders = shared(budget={"folder": str(tmp_path / "accounts")})
    edit(folders["heart"], budget={"folder": "own", "epsilon": 3.0})
    host = open_sites(list(folders.values()))
    own, usual = (host.sites[name].budget for name in ("heart", "skin"))
    assert isinstance(own, Budget) and (own.accounts, own.epsilon) == (folders["heart"] / "own", 3.0)
    assert (usual.accounts, usual.epsilon) == (tmp_path / "accounts", None)
    host.close()


def test_sites_of_two_federations_share_no_process(shared):
    _, folders = shared()
    edit(folders["skin"], federation="elsewhere")
    with pytest.raises(ConfigError) as error:
        open_sites(list(folders.values()))
    assert error.value.where == "site skin"


def test_server_and_sites_agree_on_an_experiment_wherever_its_files_lie(make, tmp_path):
    one = make(training={"lr": 0.02})
    there = one.model_copy(update={"data": one.data.model_copy(update={"train": "elsewhere"})})
    assert fingerprint(one) == fingerprint(there) != fingerprint(make(training={"lr": 0.03}))
    assert fingerprint(one) == fingerprint(make(training={"lr": 0.02}, budget={"folder": str(tmp_path)}))


@pytest.mark.usefixtures("no_page")
@pytest.mark.parametrize("engine", ["local", "processes"])
def test_no_record_and_no_limit_is_in_a_message_to_a_worker_and_no_copy_is_left(
    make, tmp_path, forked_workers, monkeypatch, engine
):
    sent = []
    send = processes._Line.send
    monkeypatch.setattr(
        processes._Line, "send", lambda line, number, message: sent.append(message) or send(line, number, message)
    )
    workers = {} if engine == "local" else {"workers": 1}
    result = run(make(run={"engine": engine, **workers}, budget={"folder": str(tmp_path / "accounts")}))
    private = [json.loads(line) for file in (tmp_path / "sites").iterdir() for line in file.read_text().splitlines()]
    assert not any(str(one["output"]).encode() in message for one in private for message in sent)
    assert not any(b"accounts" in message for message in sent)
    told = [{"folders", "number"}] if engine == "processes" else []
    assert [unframe(message)[0].keys() for message in sent[:1]] == told
    assert not list((result.folder / "private").glob("*/records.jsonl"))
    assert not list((result.folder / "private").glob("*/site.toml"))


def test_an_owner_who_writes_nothing_allows_what_a_simulation_does():
    limits = dict.fromkeys(("methods", "rounds", "records", "epsilon"))
    assert Allow() == Allow(**limits, ask=True, measuring=True, clear=True)


def test_real_sites_whose_records_were_shared_out_have_an_account_each(make, tmp_path):
    """A run's id is the server's, so that accounts in one folder would be added up."""
    experiment = make(budget={"folder": str(tmp_path / "account")}, method={"name": "dplora", "noise_multiplier": 1.0})
    folders = {name: tmp_path / "members" / name for name in ("heart", "skin")}
    (tmp_path / "members").mkdir()
    share_out(experiment, {name: [] for name in folders}, folders, None, ["cpu"], simulated=False)
    assert [SiteFile.load(one).budget.folder for one in folders.values()] == [
        str(tmp_path / "account" / name) for name in folders
    ]


@pytest.fixture
def persons(make, tmp_path):
    """A real site in whose file a person has six records, and five have one each; its run lets them have two."""
    experiment = make(data={"user": "patient", "records_per_user": 2})
    folder = tmp_path / "members" / "heart"
    folder.parent.mkdir()
    share_out(experiment, {"heart": []}, {"heart": folder}, None, ["cpu"], simulated=False)
    (folder.parent / FEDERATION / HELDOUT_DIGESTS).write_text("[]")
    rows = [small.record("heart", n) | {"patient": "p" if n < 6 else n} for n in range(11)]
    small.write_lines(folder / "records.jsonl", rows)

    def done(**changes):
        edit(folder, records="records.jsonl", **changes)
        return [record.instruction for record in site_side.records_of(SiteFile.load(folder), experiment, None)]

    return done


def test_a_site_takes_part_with_no_more_records_of_a_person_than_the_run_allows(persons):
    own, all_of_them = persons(user="patient"), persons(user="")
    assert len(own) == 2 + 5 and len(all_of_them) == 11 and set(own) < set(all_of_them)
    assert persons(user="patient") == own  # when it is opened again, too


def test_a_site_that_does_not_say_whose_its_records_are_takes_no_part_in_a_run_that_bounds_them(persons, tmp_path):
    file = tmp_path / "members" / "heart" / "site.toml"
    persons(user="")
    file.write_text(file.read_text().replace('user = ""\n', ""))
    with pytest.raises(ConfigError, match="lets a person have 2 of a site's records, and nothing says whose they are"):
        persons()
