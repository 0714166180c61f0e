"""What is guaranteed: ε as it was accounted, for whom it holds and what it is held against."""

import json
from dataclasses import replace
from math import log

import pytest

from murmura.privacy.curve import Curve
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.samplers import PoissonSampling
from murmura.report.card import run_card
from murmura.report.content import Pictures
from murmura.report.guarantee import guarantees
from murmura.report.in_short import PROMISED, in_short
from murmura.report.sections.guarantee import curves, guarantee, held_against
from murmura.report.sheet import sheet
from murmura.runs.names import CONFIG
from murmura.units import bound
from tests.privacy.folders import leave_ledgers
from tests.privacy.plans import RECORDS, of_group, of_records
from tests.report.blocks import blocks, pictures, said, small, tables
from tests.report.runs import metrics, rows_of, write_run

PRIVACY = {"unit": "record", "adjacency": "zero-out", "delta": 1e-5, "accountant": "pld", "plan": "Poisson sampling"}


def private(epsilon, more=(), **figures):
    privacy = PRIVACY | {"epsilon": epsilon} | dict(more)
    return [metrics(0), metrics(1), metrics(2, epsilon=epsilon, privacy=privacy, **figures)]


def section(*folders):
    return guarantee(rows_of(*folders))


def with_ledgers(folder, plans, epsilon=None, **options):
    """A run of two sites, whose ledgers say that these plans were followed."""
    epsilon = plans[0].epsilon().value if epsilon is None else epsilon
    write_run(folder, rows=private(epsilon, {"accountant": "exact"}), **options)
    sites = dict(zip("ab", plans, strict=False))
    return leave_ledgers(folder, {site: f"records of {site}" for site in sites}, sites)


def test_a_guarantee_is_told_with_its_unit_and_what_the_paper_claims(tmp_path):
    found = section(write_run(tmp_path / "a", rows=private(17.24, {"accountant": "rdp", "claimed_per_step": 2.0})))
    assert tables(found) == [[["a", "17.240", "1e-05", "one record, zero-out", "rdp", "Poisson sampling"]]]
    [claim] = small(found)
    assert claim.endswith(": 2.000")
    assert "“zero-out”" in found.lead and "“rdp”" in found.lead
    assert "replace-one" not in found.lead and "“pld”" not in found.lead
    assert section(write_run(tmp_path / "b")) is None


@pytest.mark.parametrize(
    ("units", "says"), [("rr", "one record"), ("ss", "one site"), ("rs", "one record or one site")]
)
def test_it_is_about_the_units_that_runs_protect(tmp_path, units, says):
    units = [{"r": "record", "s": "site"}[unit] for unit in units]
    rows = [private(place + 1.0, {"unit": unit}) for place, unit in enumerate(units)]
    folders = [write_run(tmp_path / str(place), rows=one) for place, one in enumerate(rows)]
    assert f"learn about {says} from what was sent" in section(*folders).lead


def test_a_refused_epsilon_is_told_with_its_reason(tmp_path):
    found = section(write_run(tmp_path / "a", rows=private(None, {"refused": "a step too many"})))
    assert tables(found)[0][0][1] == "refused" and small(found) == ["a step too many"]


def test_what_a_guarantee_allows_an_attack_is_said_and_its_curve_drawn(tmp_path):
    milder = replace(RECORDS, noise=GaussianNoise(4.0))
    published = write_run(tmp_path / "published", rows=private(RECORDS.epsilon().value))
    assert said(section(published)) == "" and pictures(section(published)) == []  # it has no ledgers
    folder = with_ledgers(tmp_path / "a", [milder, RECORDS], RECORDS.epsilon().value)
    found = section(folder)
    assert said(found) == " ".join(Curve.of(RECORDS.event(), RECORDS.adjacency).words())
    [picture] = pictures(found)
    assert picture.title == "ε at every δ" and 'aria-label="log₁₀ δ"' in picture.svg
    [drawn] = blocks(section(folder, write_run(tmp_path / "b", method="Without")), Pictures)
    assert [entry.text for entry in drawn.legend] == ["FedAvg"]  # the other has no line there
    ledger = folder / "private" / "a" / "privacy.journal"
    ledger.write_bytes(ledger.read_bytes().replace(b"4.0", b"2.0"))
    assert said(section(folder)) == ""  # of a ledger that was edited nothing is known


def test_what_a_target_allows_is_said_though_the_run_tells_no_plan(tmp_path):
    """From the plan would follow how many records a site has; of those that kept ledgers the weakest counts."""
    weaker, stronger = (of_records(sampler=PoissonSampling(1.0), noise=GaussianNoise(std)) for std in (2.0, 4.0))
    found = section(with_ledgers(tmp_path / "a", [stronger, weaker], 50.0))
    assert said(found) == " ".join(Curve.of(weaker.event(), weaker.adjacency).words())


def test_what_a_person_with_several_records_has_is_said(tmp_path):
    everybody = replace(RECORDS, sampler=PoissonSampling(1.0))  # of a sample the bound takes many seconds
    folder = with_ledgers(tmp_path / "a", [everybody] * 2)
    assert "person" not in said(section(folder))
    with (folder / "config.toml").open("a") as config:  # its last table is [data]
        config.write('user = "patient"\nrecords_per_user = 2\n')
    told = said(section(folder))
    assert "at most 2 records at a site" in told and "at several sites" not in told
    assert f"ε is {bound(of_group(everybody, 2).value)} at the same δ" in told
    assert any(sentence in told for sentence in in_short(rows_of(folder)).answers[PROMISED] if "A person" in sentence)
    counts = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps(counts | {"person_at": 2}))
    four = bound(of_group(replace(everybody, steps=2 * everybody.steps), 2).value)  # two, at two sites
    assert said(section(folder)).endswith(f"it is {four}.")


def test_what_is_drawn_and_said_holds_for_every_site(tmp_path):
    """Of two sites one is protected least at the run's δ, the other elsewhere."""
    often = replace(RECORDS, sampler=PoissonSampling(1.0), noise=GaussianNoise(9.0), steps=1)
    seldom = replace(RECORDS, noise=GaussianNoise(1.2), steps=1)
    every = [Curve.of(plan.event(), plan.adjacency) for plan in (often, seldom)]
    both = Curve.worst(every)
    assert all(both.table != one.table for one in every)
    assert [bound for _, bound in both.table] == [
        max(one, other) for (_, one), (_, other) in zip(*(curve.table for curve in every), strict=True)
    ]
    assert said(section(with_ledgers(tmp_path / "a", [often, seldom], 2.0))) == " ".join(both.words())


def test_what_is_said_of_several_seeds_holds_for_each(tmp_path):
    """One was interrupted, say, and has spent more; of one without ledgers nothing is known."""
    mild = of_records(sampler=PoissonSampling(1.0), noise=GaussianNoise(9.0))
    weak, bounds = replace(mild, noise=GaussianNoise(3.0)), {"more": "records_per_user = 2\n", "name": "same"}
    first = with_ledgers(tmp_path / "s0", [mild], seed=0, **bounds)
    second = with_ledgers(tmp_path / "s1", [weak], seed=1, **bounds)
    assert len(rows_of(first, second)) == 1
    told = said(section(first, second))
    assert told == said(section(second)) and f"ε is {bound(of_group(weak, 2).value)} at the same δ" in told
    lost = write_run(tmp_path / "s2", rows=private(2.0), seed=2, **bounds)
    left = said(section(first, lost))
    assert "A person may have 2 records" in left and "for all of them together" not in left


def test_a_curve_of_noise_for_a_target_does_not_tell_how_many_records_a_site_has(tmp_path):
    drawn, told = [], []
    for name, records in (("few", 32), ("more", 36)):
        plan = replace(RECORDS, sampler=PoissonSampling(4 / records), steps=20).calibrated(2.0, "rdp")
        folder = with_ledgers(tmp_path / name, [plan], 2.0)
        text = (folder / "config.toml").read_text()
        (folder / "config.toml").write_text(text.replace("[method]", "[method]\nepsilon = 2.0"))
        [one] = guarantees(rows_of(folder))
        drawn.append(curves([one])[0].svg)
        told.append(one.words)
        assert said(section(folder)) == " ".join(one.words)
        assert one.curve.true_positives(0.01) >= Curve.of(plan.event(), plan.adjacency).true_positives(0.01)
        powers = [log(epsilon / 2.0, 1.25) for _, epsilon in one.curve.table if epsilon]
        assert len(powers) > 5 and powers == pytest.approx([round(power) for power in powers])
    assert drawn[0] == drawn[1] and told[0] == told[1]


# ---- claimed, guaranteed and shown -----------------------------------------------------------------------------------


def held(*rows_of_runs, folder):
    runs = [write_run(folder / f"run-{k}", f"M{k}", rows=rows) for k, rows in enumerate(rows_of_runs)]
    return held_against(rows_of(*runs))


def test_bounds_stand_on_one_axis_also_without_an_audit(tmp_path):
    [picture] = held(private(4.2, audit_epsilon=0.8), private(0.3, audit_epsilon=0.9), folder=tmp_path)
    for word in ("guaranteed", "shown", "M0", "M1"):
        assert word in picture.svg
    assert "claimed" not in picture.svg


def test_of_several_seeds_stands_what_holds_for_each(tmp_path):
    rows = [private(epsilon, audit_epsilon=shown) for epsilon, shown in ((2.0, 0.9), (4.0, 0.5))]
    folders = [write_run(tmp_path / f"s{seed}", rows=one, seed=seed, name="same") for seed, one in enumerate(rows)]
    [several], [worst] = held_against(rows_of(*folders)), held(private(4.0, audit_epsilon=0.5), folder=tmp_path)
    assert several.svg == worst.svg


def test_a_papers_claim_is_held_against_what_is_guaranteed(tmp_path):
    [picture] = held(private(4.2, {"claimed_per_step": 1.0}), folder=tmp_path)
    assert "claimed, for a step" in picture.svg and "shown" not in picture.svg


def test_a_guarantee_with_nothing_to_hold_against_it_has_no_picture(tmp_path):
    refused = [metrics(0), metrics(1, privacy={"refused": "because", "delta": 1e-5}, audit_epsilon=0.4)]
    assert held(private(4.2), [metrics(0)], refused, folder=tmp_path) == []


def test_a_person_is_told_of_where_only_the_epsilon_of_a_record_is_known(tmp_path):
    """With other runs that count, or without ledgers; on page, card and sheet alike."""
    everybody = replace(RECORDS, sampler=PoissonSampling(1.0))  # of a sample the bound takes many seconds
    more = 'user = "patient"\nrecords_per_user = 4\n'
    told = "A person may have 4 records at a site (data.records_per_user), and ε is for one of them."
    folder = with_ledgers(tmp_path / "a", [everybody], more=more)
    assert told not in said(section(folder)) and "A person has at most 4 records" in said(section(folder))
    other = with_ledgers(tmp_path / "b", [everybody])
    config = folder / CONFIG
    config.write_text(config.read_text().replace("[run]\n", f'[run]\nchosen_by = ["{other}"]\n', 1))
    published = write_run(tmp_path / "published", rows=private(RECORDS.epsilon().value), more=more)
    for place in (folder, published):
        [row] = rows_of(place)
        for words in (said(section(place)), run_card(row.runs[0], "DP-LoRA"), repr(sheet(row))):
            assert told in words
