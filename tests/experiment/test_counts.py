"""How many records a site has: told by a run that promises nothing, and by no run that promises an ε."""

import json
import re

import pytest

from murmura import methods
from murmura.errors import DataError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.experiment.verbs import verbs_of
from murmura.federation.wire.releases import owner
from murmura.runs import read
from murmura.runs.names import EXCLUSIONS, NOT_FOR_PUBLICATION, RECORDS
from tests.experiment.small import experiment, heldout, record, write_lines
from tests.pages import ROOT

PRIVATE = {
    "sites": {"name": "dpfedavg", "noise_multiplier": 1.0, "rounds": 1},
    "records": {"name": "dplora", "noise_multiplier": 1.0, "rounds": 1},
}
OWN = {"private", "checkpoint"}


@pytest.fixture(params=PRIVATE)
def private(request):
    return PRIVATE[request.param]


def published(folder):
    return {
        path.name: path.read_text(encoding="utf-8", errors="replace")
        for path in folder.rglob("*")
        if path.is_file() and not OWN.intersection(path.relative_to(folder).parts)
    }


def of_public(result):
    """What was measured on public records before training."""
    return {key: value for key, value in result.rows[0].items() if "rouge" in key or "loss" in key}


@pytest.mark.parametrize(
    ("method", "where", "named"),
    [({"rounds": 1}, EXCLUSIONS, ["bad", "overlap"]), (PRIVATE["records"], RECORDS, ["bad"])],
)
def test_what_is_left_out_is_named_as_the_page_says_and_where(make, tmp_path, no_page, method, where, named):
    write_lines(tmp_path / "sites" / "heart.jsonl", [*(record("heart", k) for k in range(4)), {"instruction": "bad"}])
    write_lines(tmp_path / "heldout.jsonl", [record("heart", 0), *map(heldout, range(4))])
    folder = run(make(method=method, data={"skip_bad": True})).folder
    found = {name: re.findall(r'"cause": "(\w+)"', told(folder / name)) for name in (EXCLUSIONS, RECORDS)}
    assert found == {EXCLUSIONS: [], RECORDS: [], where: named}
    page = told(ROOT / "docs" / "methods" / "records.md")
    assert all(f"*{cause}*" in page for cause in named) and f"`{where}`" in page


def told(path):
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_no_file_for_others_has_the_numbers(make, private):
    seen = published(folder := run(make(method=private)).folder)
    none = dict.fromkeys(("records", "used", "truncated", "dropped")) | {"canaries": 0}
    assert json.loads(seen["sites.json"]) == [{"site": "heart", **none}, {"site": "skin", **none}]
    assert json.loads(seen["data.json"]) == {
        "bad": None,
        "overlap": None,
        "heldout": 0,
        "train": None,
        "person_at": None,
        "asked": None,
    }
    assert json.loads(seen["exclusions.json"]) == []
    assert "<p>heart and skin.</p>" in seen["report.html"]
    assert "How many records they have is not told" in seen["report.html"]
    head, sites, exclusions = map(json.loads, (folder / "private/@run/records.jsonl").read_text().splitlines())
    assert head == {"private": NOT_FOR_PUBLICATION}
    assert [one["records"] for one in sites["sites"]] == [6, 3] and exclusions["exclusions"]["bad"] == 0


@pytest.mark.parametrize(("method", "told"), [(PRIVATE["sites"], None), (PRIVATE["records"], 3)])
def test_at_how_many_sites_a_person_is_found_is_told_where_an_epsilon_counts_on_it_alone(
    tmp_path, llama_folder, no_page, method, told
):
    """One record could change it, and of whole sites no ε is about it."""
    for site in ("heart", "lung", "skin"):
        records = [record(site, k) | {"who": "ann" if k == 0 else f"{site}{k}"} for k in range(4)]
        write_lines(tmp_path / "sites" / f"{site}.jsonl", records)
    write_lines(tmp_path / "heldout.jsonl", map(heldout, range(4)))
    folder = run(experiment(tmp_path, llama_folder, method, data={"user": "who", "records_per_user": 2})).folder
    assert json.loads((folder / "data.json").read_text())["person_at"] == told


def test_times_of_a_run_that_guarantees_something_are_for_the_owner(make, private):
    """They grow with the records, sampled or not; those of the whole run too."""
    folder = run(make(method=private | {"rounds": 2})).folder
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 3 and not any({"wall", "seconds", "at_sites", "peak_memory"} & row.keys() for row in rows)
    lines = (folder / "private/@run/figures.jsonl").read_text(encoding="utf-8").splitlines()
    head, *kept, _ = map(json.loads, lines)
    assert head == {"private": NOT_FOR_PUBLICATION}
    assert all(row["wall"] > 0 and row["peak_memory"] > 0 and row["seconds"] for row in kept)
    assert not {"wall", "peak_memory", "at_sites"} & read(folder).totals.keys()
    seen = published(folder)
    assert not any(word in text for text in seen.values() for word in ('"wall": 0', '"wall": 1', '"peak_memory": 1'))


def test_a_run_that_promises_nothing_tells_them(make):
    seen = published(run(make(method={"rounds": 1})).folder)
    assert [one["records"] for one in json.loads(seen["sites.json"])] == [6, 3]
    assert '<th scope="col" class="n">Shortened</th>' in seen["report.html"]


def test_sites_that_join_a_private_run_do_not_tell_them(make, private):
    experiment = make(method=private)
    verbs = verbs_of(experiment, methods.build(experiment.method, experiment.aggregation))
    assert "records" not in owner(verbs, "join").releases("join")
    other = make(method={"name": "fedit"})
    verbs = verbs_of(other, methods.build(other.method, other.aggregation))
    assert "records" in owner(verbs, "join").releases("join")


def test_a_dry_run_says_for_whom_the_numbers_are(make, private):
    assert any("Do not publish" in note for note in dry_run(make(method=private)).notes)
    assert not any("Do not publish" in note for note in dry_run(make()).notes)


def test_what_is_skipped_does_not_tell_which_public_records_a_site_has(make, private, tmp_path, capsys):
    """Two runs that differ in whether a site has public records too show the same, down to the records measured on."""
    data = {"skip_bad": True}
    apart = run(make(method=private, data=data))
    alone, said = published(apart.folder), capsys.readouterr().err
    own = [record("skin", number) for number in range(3)]
    write_lines(tmp_path / "sites" / "skin.jsonl", [*own, heldout(0), heldout(1)])
    again = run(make(method=private, data=data, run={"name": "small", "folder": str(tmp_path / "again")}))
    seen = published(again.folder)
    for name in ("sites.json", "data.json", "exclusions.json", "measured.json"):
        assert seen[name] == alone[name]
    assert of_public(apart) == of_public(again)  # of the same public records, by the same untrained model
    assert "public" not in said + capsys.readouterr().err
    _, sites, *_ = map(json.loads, (again.folder / "private/@run/records.jsonl").read_text().splitlines())
    has = [(one["records"], one["used"]) for one in sites["sites"]]
    assert has == [(6, 6), (5, 3)]  # the site has left out its own copies


def test_public_records_that_a_site_has_are_still_refused_by_default(make, private, tmp_path):
    write_lines(tmp_path / "sites" / "skin.jsonl", [heldout(0), record("skin", 1), record("skin", 2)])
    with pytest.raises(DataError, match="also a private one"):
        run(make(method=private))
