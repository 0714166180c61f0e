"""The data-protection officer's sheet: the report's own parts, who could see what, and a place to sign."""

import hashlib
import json
from dataclasses import replace

import pytest

from murmura.augment.config import AugmentConfig
from murmura.augment.strategies import strategy
from murmura.federation.wire.releases import DifferentialPrivacy, SecureSum, Verbs, Weights, disclosed, verb
from murmura.privacy.samplers import PoissonSampling
from murmura.report.content import Listing
from murmura.report.page import render
from murmura.report.sections.disclosure import disclosure
from murmura.report.sections.guarantee import guarantee
from murmura.report.sheet import sheet, write_sheet
from murmura.runs import RunFolder, read
from murmura.runs.audit import Audit
from murmura.runs.names import AUDIT, AUGMENT
from murmura.runs.schema import SiteReport
from murmura.units import bound
from tests.privacy.folders import leave_ledgers
from tests.privacy.plans import RECORDS, of_group
from tests.report.blocks import blocks, said, tables
from tests.report.outline import Outline
from tests.report.runs import MODEL, NOISED, PLAIN, PROMISE, metrics, real, rows_of, write_run
from tests.runs.outcomes import SELECTION


class Masking(Verbs):
    """A verb whose update has noise and leaves in a secure sum."""

    def secure(self, name):
        return SecureSum("masks")

    @verb(releases={"update": Weights("change", DifferentialPrivacy("site", "server", "Gaussian"), "It is trusted.")})
    def train(self, cohort, ask):
        """Nothing."""


SUMMED = {"type": "secure sum", "mechanism": "masks"}
MASKED = disclosed(Masking(), "train")["update"].note
BY_SERVER = {"type": "differential privacy", "unit": "site", "added_by": "server", "mechanism": "Gaussian"}


PARTS = [
    "What left the sites",
    "Who could see it",
    "What is guaranteed",
    "What an attacker found",
    "What is not covered",
]


def parts(folder, **options):
    [row] = rows_of(write_run(folder, **options))
    return {section.title: section for section in sheet(row)}


def items(section):
    return " ".join(item for block in blocks(section, Listing) for item in block.items)


def test_its_parts_are_those_of_the_report(tmp_path):
    path = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, **PROMISE)], disclosure=NOISED)
    [row] = rows_of(path)
    found = {section.title: section for section in sheet(row)}
    assert list(found) == PARTS
    assert tables(found["What left the sites"]) == tables(disclosure([row])) != []
    assert tables(found["What is guaranteed"]) == tables(guarantee([row])) != []
    assert found["What is guaranteed"].lead == guarantee([row]).lead
    assert said(found["What is guaranteed"]).startswith("ε = 7.500 at δ = 1e-05, for one record (zero-out)")


def test_it_refers_to_no_mark_nor_section_that_is_not_there(tmp_path):
    path = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, **PROMISE)])
    found = {section.title: section for section in sheet(rows_of(path)[0])}
    assert "what the report marks “outside ε” (Leakage (AUC), " in found["What is guaranteed"].lead
    assert "on this page" not in found["What is guaranteed"].lead
    attacked = said(found["What an attacker found"])
    assert attacked.endswith("The report has every figure (“Results”).") and "“Audit”" not in attacked
    (path / "private").mkdir()
    RunFolder(path).write(AUDIT, Audit("0.1", "2026-01-01T00:00:00+00:00", (MODEL,), ()))
    assert said(sheet(rows_of(path)[0])[3]).endswith("(“Results” and “Audit”).")


def test_without_a_guarantee_it_says_so_and_names_no_epsilon(tmp_path):
    found = parts(tmp_path / "a")
    assert said(found["What is guaranteed"]).startswith("Nothing") and tables(found["What is guaranteed"]) == []
    assert "Any attack that was not tried" in items(found["What is not covered"])


@pytest.mark.parametrize(
    ("protection", "says"),
    [
        (None, "“adapter” of each site, as sent."),
        (NOISED[0]["protection"], "with noise that was added there"),
        (BY_SERVER, "of each site without noise, which the server adds itself"),
        (SUMMED, "as the sum over the sites asked, and of no single site."),
        ((BY_SERVER, MASKED), "as the sum over the sites asked, and of no single site, without noise"),
        ((NOISED[0]["protection"], MASKED), "as the sum over the sites asked, and of no single site, with noise that"),
    ],
)
def test_who_sees_a_field_follows_from_how_it_was_protected(tmp_path, protection, says):
    protection, note = protection if isinstance(protection, tuple) else (protection, "")
    found = parts(tmp_path / "a", disclosure=[dict(PLAIN[0], protection=protection, note=note)])
    [line] = [line for line in blocks(found["Who could see it"], Listing)[0].items if line.startswith("The server")]
    assert says in line


def test_a_protection_that_is_not_understood_counts_as_none(tmp_path):
    found = parts(tmp_path / "a", disclosure=[dict(PLAIN[0], protection={"type": "magic"})])
    assert "“adapter” of each site, as sent" in items(found["Who could see it"])


def test_what_was_not_recorded_is_not_called_nothing(tmp_path):
    path = write_run(tmp_path / "a")
    (path / "disclosure.json").unlink()
    [row] = rows_of(path)
    assert "it cannot be told" in items(sheet(row)[1])
    assert "nothing left any site" in items(parts(tmp_path / "b", disclosure=[])["Who could see it"])


def test_a_simulation_is_called_one_and_real_sites_have_a_network(tmp_path):
    path = write_run(tmp_path / "a")
    simulated = items(sheet(rows_of(path)[0])[1])
    assert "was a simulation" in simulated and "network" not in simulated
    assert "`murmura privacy spent RUN...` adds up" in uncovered(path)
    deployed = items(sheet(rows_of(real(path))[0])[1])
    assert "ask each site’s owner: `murmura site log`" in uncovered(path) and "privacy spent" not in uncovered(path)
    assert "simulation" not in deployed and "Who listens on the network" in deployed


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('[tracking]\nto = ["tensorboard", "mlflow"]\nmlflow_uri = "https://m"\n', "(files) and MLflow (https://m)"),
        ('[tracking]\nto = ["wandb"]\n', "Weights & Biases (a server of that company"),
    ],
)
def test_trackers_that_were_told_are_named(tmp_path, more, says):
    assert says in items(parts(tmp_path / "a", more=more)["Who could see it"])


@pytest.mark.parametrize(
    ("seeds", "samples", "says"),
    [
        ("private", 5, "(method.endpoint): texts of the sites, as they are, in prompts"),
        ("voted", 5, "(method.endpoint): the texts that further ones"),
        ("voted", 0, ""),
    ],
)
def test_an_endpoint_that_writes_texts_is_named(tmp_path, seeds, samples, says):
    path = write_run(tmp_path / "a")
    options = f'[method]\nendpoint = "https://e"\nseeds = "{seeds}"\nsamples = {samples}\n'
    (path / "config.toml").write_text((path / "config.toml").read_text().replace("[method]\n", options))
    found = items(sheet(rows_of(path)[0])[1])
    assert ("Whoever runs https://e, where texts are written" in found) == bool(says) and says in found


def test_of_real_sites_it_says_that_they_were_made_known_with_how_many_records_they_have(tmp_path):
    path, told = write_run(tmp_path / "a"), "exactly how many records it takes part with (public.json)"
    assert told not in said(sheet(rows_of(path)[0])[0])
    assert told in said(sheet(rows_of(real(path))[0])[0])


def test_what_is_not_covered_follows_from_the_run(tmp_path):
    promised = {"rows": [metrics(0), metrics(2, **PROMISE)], "disclosure": [*NOISED, dict(PLAIN[0], field="loss")]}
    without = items(parts(tmp_path / "a", **promised)["What is not covered"])
    assert "without noise or secure sum: “loss”." in without and "Persons with several records" in without
    assert "taken out of the private ones" in without
    bounded = items(parts(tmp_path / "b", more="records_per_user = 1\n", **promised)["What is not covered"])
    assert "Persons with several records" not in bounded  # of which one person has one, at a site
    public = items(parts(tmp_path / "d", more='heldout = "public.jsonl"\n', **promised)["What is not covered"])
    assert "taken out" not in public
    more = 'heldout = "public.jsonl"\nnonmember_records = 3\n'
    assert "taken out of the private ones" in items(
        parts(tmp_path / "taken", more=more, **promised)["What is not covered"]
    )
    site = {"epsilon": 7.5, "privacy": {**PROMISE["privacy"], "unit": "site"}}
    whole = items(parts(tmp_path / "e", rows=[metrics(0), metrics(2, **site)])["What is not covered"])
    assert "Persons with records at several sites" in whole and "several records" not in whole
    drafts = [metrics(0), metrics(2, counts={"drafts.kept": 3})]
    assert "written after private records" in items(parts(tmp_path / "c", rows=drafts)["What is not covered"])
    assert "written after" not in bounded
    texts = dict(PLAIN[0], field="texts", kind="text")
    assert "written after" in items(parts(tmp_path / "f", disclosure=[texts])["What is not covered"])
    noised = dict(texts, protection=NOISED[0]["protection"])
    assert "written after" not in items(parts(tmp_path / "g", disclosure=[noised])["What is not covered"])


WRITTEN, GIVEN = "Texts that were written after private records", "Which public records a site was given"


@pytest.mark.parametrize(
    ("name", "told"), [("feddca", {GIVEN}), ("less", {GIVEN}), ("random", set()), ("self-instruct", {WRITTEN})]
)
def test_what_sites_trained_on_besides_is_told_where_it_tells_of_their_records(tmp_path, name, told):
    path = write_run(tmp_path / "a", more=f'[augment]\nstrategy = "{name}"\n')
    if name != "self-instruct":  # which gives no public records
        given = strategy(AugmentConfig(pool="pool", strategy=name))
        RunFolder(path).write(AUGMENT, [replace(SELECTION, private=given.private)])
    found = uncovered(path)
    assert {line for line in (WRITTEN, GIVEN) if line in found} == told
    assert ("(“Public records for the sites” in the report)" in found) == (GIVEN in told)


def test_a_person_with_several_records_is_told_of_where_no_epsilon_of_theirs_is(tmp_path):
    """Of a deployed run no ledger is here, nor of one that was published: ε is that of a record alone."""
    everybody = replace(RECORDS, sampler=PoissonSampling(1.0))  # of a sample the bound takes many seconds
    more = 'user = "patient"\nrecords_per_user = 4\n'
    path = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, **PROMISE)], more=more)
    line = "A person may have 4 records at a site (data.records_per_user), and ε is for one of them."
    assert line in uncovered(path)
    leave_ledgers(path, {"a": "record a"}, {"a": everybody})
    assert line not in uncovered(path)
    assert f"ε is {bound(of_group(everybody, 4).value)}" in said(sheet(rows_of(path)[0])[2])


@pytest.mark.parametrize(("at", "told"), [(None, True), (1, False), (2, True)])
def test_persons_at_several_sites_are_told_of_unless_it_is_known_that_there_are_none(tmp_path, at, told):
    path = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, **PROMISE)], more="records_per_user = 1\n")
    counts = json.loads((path / "data.json").read_text())
    (path / "data.json").write_text(json.dumps(counts | {"person_at": at}))
    assert ("Persons with records at several sites: ε is for one record" in uncovered(path)) == told


def uncovered(path):
    return items(sheet(rows_of(path)[0])[-1])


def test_what_nobody_attacked_is_no_bound_and_what_an_audit_contradicts_is_said(tmp_path):
    none = [metrics(0), metrics(2, attack_auc=None, upload_auc=None)]
    found = said(parts(tmp_path / "a", rows=none)["What an attacker found"])
    assert found == "Not measured: no attack was carried out."
    audit = {"audit_epsilon": 8.0, "audit_right": 9, "audit_guesses": 9, "audit_coins": 9, "audit_most": 9.0}
    broken = parts(tmp_path / "b", rows=[metrics(0), metrics(2, **PROMISE, **audit)])
    assert "Do not rely on it" in said(broken["What is guaranteed"])


def test_it_says_against_whom_an_epsilon_does_not_hold(tmp_path):
    sent = [dict(PLAIN[0], protection=BY_SERVER)]
    found = parts(tmp_path / "a", rows=[metrics(0), metrics(2, **PROMISE)], disclosure=sent)
    assert "does not hold against the server" in said(found["What is guaranteed"])


def test_it_is_one_page_whole_in_itself_with_a_place_to_sign(tmp_path):
    run = read(write_run(tmp_path / "a", method="<script>", sites=[SiteReport("x", 3, 3, 0, 0, 1)], finished=False))
    page = write_sheet(run, tmp_path / "new" / "sheet.html").read_text()
    outline = Outline()
    outline.feed(page)
    outline.close()
    assert outline.open == [] and not outline.tags & {"script", "link", "img", "svg"} and "://" not in page
    for line in (
        "Name and function",
        "Date",
        "Signature",
        "not approved",
        hashlib.sha256(run.config.encode()).hexdigest(),
    ):
        assert line in page
    assert "size: A4" in page and page.index("size: A4") > page.index("@page { margin: 14mm; }")
    for warning in ("Unfinished:", "Not for release:"):
        assert warning in page and warning in render([run])
