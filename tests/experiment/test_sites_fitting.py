"""What cannot be used is left out first: what is held out, chosen and shared out is all of use."""

import json
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from murmura.audit.subject import subject
from murmura.data.config import DataConfig
from murmura.data.layout import Place
from murmura.data.records import digest
from murmura.data.templates import template
from murmura.errors import DataError
from murmura.experiment.exclusions import Placed
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.view import figures
from murmura.experiment.prepare import prepare
from murmura.experiment.run import run
from murmura.experiment.sharing import bounded
from murmura.experiment.simulation import share_out
from murmura.experiment.site_file import SiteFile
from murmura.experiment.site_side import records_of
from murmura.experiment.sites import gather
from murmura.runs import read
from murmura.runs.names import FEDERATION, HELDOUT_DIGESTS
from murmura.streams import Stream
from murmura.tasks import LABELLED
from murmura.tasks.instruction import InstructionReading
from tests.experiment import small
from tests.experiment.small import record, write_lines

STREAM = Stream(0) / "data"
LONG = "please call the clinic " * 60
BY_COLUMN = {"by": "column", "column": "owner"}
PARTITION = {"by": "partition", "count": 2}
PATTERNS = SimpleNamespace(
    patterns=("{text} it was {blank}",),
    verbaliser={"bad": ("bad",), "good": ("good",)},
    reduction="mean",
    several_tokens="average",
    sample_pattern=True,
)


def endless(site, number):
    return record(site, number) | {"output": LONG}


def mixed(site, count):
    """Records of which the first of each three fits, the second has a question that is shortened, and the third does
    not fit."""
    every = (record, lambda site, n: record(site, n) | {"input": f"{LONG} {n}"}, endless)
    return [every[n % 3](site, n) | {"owner": f"clinic {n % 2}", "topic": "ab"[n // 3 % 2]} for n in range(count)]


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for site, count in (("heart", 30), ("skin", 15)):
        write_lines(tmp_path / "sites" / f"{site}.jsonl", mixed(site, count))
    write_lines(tmp_path / "all.jsonl", mixed("heart", 60))
    write_lines(tmp_path / "heldout.jsonl", mixed("kidney", 30))


@pytest.fixture
def gathered(tokenizer):
    """The population that options make, with the reading of a model."""

    def build(embed=None, **options):
        config = DataConfig.parse({"heldout": "heldout.jsonl", "max_length": 128} | options, "test")
        reading = InstructionReading(template("alpaca"), tokenizer, config.max_length)
        return gather(config, STREAM, embed, kind="instruction", pooled=False, reading=reading)

    return build


def fits(one):
    return LONG.strip() not in one.output


def everything(people):
    return [one for site in people.sites for one in site.records]


def sizes(people):
    return {site.name: len(site.records) for site in people.sites}


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"train": "sites"}, 30),
        ({"train": "all.jsonl", "sites": BY_COLUMN}, 40),
        ({"train": "all.jsonl", "sites": PARTITION}, 40),
    ],
    ids=["file", "column", "partition"],
)
@pytest.mark.parametrize("taken", [{"heldout": None, "heldout_records": 12}, {"nonmember_records": 12}])
def test_as_many_are_taken_out_as_are_asked_for(gathered, options, left, taken):
    people = gathered(**options, **taken)
    apart = people.nonmembers or people.heldout
    assert len(apart) == 12 and len(everything(people)) == left - 12
    assert all(map(fits, [*apart, *everything(people)]))
    with pytest.raises(DataError, match=r"that can be used|cannot be set apart such that"):
        gathered(**options, **{name: left if value else value for name, value in taken.items()})


def test_as_many_are_drawn_of_a_file_of_held_out_records(gathered):
    assert len(gathered(train="sites").heldout) == 20
    people = gathered(train="sites", heldout_records=15)
    assert len(people.heldout) == 15 and all(map(fits, people.heldout))
    assert people.exclusions.heldout == 10 and people.exclusions.train == 0


def test_held_out_records_that_fit_two_models_are_in_the_same_order_for_both(gathered):
    """So that runs with different tokenizers are measured on nearly the same ones."""
    some, more = (gathered(train="sites", max_length=length).heldout for length in (128, 2000))
    assert len(more) == 30 and [one for one in more if fits(one)] == some


@pytest.mark.parametrize("sites", [{}, BY_COLUMN, PARTITION])
def test_records_of_a_site_are_counted_among_those_that_can_be_used(gathered, sites):
    people = gathered(train="all.jsonl" if sites else "sites", sites=sites | {"records": 9})
    assert set(sizes(people).values()) == {9} and all(map(fits, everything(people)))


def test_few_of_each_cluster_are_chosen_of_those_that_can_be_used(gathered):
    seen = []

    def by_number(texts):
        seen.extend(texts)
        return np.array([[float(int(text.split()[4]) < 30), 0.0] for text in texts], dtype=np.float32)

    few = {"clusters": 2, "per_cluster": 8}
    people = gathered(embed=by_number, train="all.jsonl", few_shot=few, sites=PARTITION)
    numbers = [int(one.instruction.split()[-1]) for one in everything(people)]
    assert Counter(number < 30 for number in numbers) == {True: 8, False: 8}
    assert len(seen) == 40 and all(map(fits, everything(people)))


def test_labels_stay_with_their_records(gathered):
    shares = PARTITION | {"count": 2, "scheme": "dirichlet-equal", "alpha": 1e-6, "label": "topic"}
    for site in gathered(train="all.jsonl", sites=shares).sites:
        assert len({int(one.instruction.split()[-1]) // 3 % 2 for one in site.records}) == 1


def test_each_record_is_tokenised_once(gathered, tokenizer, monkeypatch):
    seen, fit = [], InstructionReading.fit
    monkeypatch.setattr(InstructionReading, "fit", lambda self, some: seen.append(list(some)) or fit(self, some))
    gathered(train="sites", nonmember_records=3, sites={"records": 4})
    assert len(seen) == 1 and len(seen[0]) == 30 + 15 + 30


# ---- what is told ----------------------------------------------------------------------------------------------------


def rows(people):
    return [(one.site, one.records, one.used, one.truncated, one.dropped) for one in people.reports]


def test_sites_with_records_of_their_own_are_told_apart(gathered, capsys):
    people = gathered(train="sites")
    assert rows(people) == [("heart", 30, 20, 10, 10), ("skin", 15, 10, 5, 5)]
    assert "25 records do not fit 128 tokens (data.max_length) and are left out: heldout.jsonl:3" in (
        capsys.readouterr().err
    )
    few = gathered(train="sites", sites={"records": 4})
    assert [(one.records, one.used, one.dropped) for one in few.reports] == [(30, 4, 10), (15, 4, 5)]
    assert len(people.unused) == len(few.unused) == 25
    assert rows(gathered(train="all.jsonl", sites=BY_COLUMN)) == [
        ("clinic 0", 30, 20, 10, 10),
        ("clinic 1", 30, 20, 10, 10),
    ]


def test_what_one_file_loses_is_told_for_the_whole(gathered):
    people = gathered(train="all.jsonl", sites=PARTITION)
    assert [(one.records, one.used, one.dropped) for one in people.reports] == [(20, 20, 0)] * 2
    assert sum(one.truncated for one in people.reports) == 20
    assert (people.exclusions.train, people.exclusions.heldout) == (20, 10)
    assert {one.where.number % 3 for one in people.unused} == {0} and len(people.unused) == 30


def test_of_records_brought_together_the_one_site_is_told(tokenizer):
    config = DataConfig.parse({"train": "sites", "heldout": "heldout.jsonl", "max_length": 128}, "test")
    reading = InstructionReading(template("alpaca"), tokenizer, 128)
    people = gather(config, STREAM, kind="instruction", pooled=True, reading=reading)
    assert rows(people) == [("pooled", 45, 30, 15, 15)]


def test_nobody_is_left(gathered, tmp_path, capsys):
    with pytest.raises(DataError, match=r"all\.jsonl: no site has a usable record\. Raise data\.max_length"):
        gathered(train="all.jsonl", sites=PARTITION, heldout=None, heldout_records=5, max_length=16)
    assert "60 records do not fit 16 tokens (data.max_length) and are left out" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"sites: no site has a usable record\. Raise data\.max_length"):
        gathered(train="sites", heldout=None, heldout_records=5, max_length=16)
    write_lines(tmp_path / "heldout.jsonl", [endless("kidney", n) for n in range(3)])
    with pytest.raises(DataError, match=r"heldout\.jsonl: no held-out record fits 128 tokens\. Raise data\.max_length"):
        gathered(train="sites")


def test_where_the_model_is_out_of_reach_all_records_count(make, tmp_path):
    reached = dry_run(make(data={"train": "sites", "heldout_records": 15}))
    assert "10 too long for data.max_length" not in dict(figures(reached))["records"]
    assert "25 too long for data.max_length" in dict(figures(reached))["records"]
    found = dry_run(make(model={"name": "nobody/nothing"}, data={"heldout_records": 15}))
    assert [(one.records, one.used, one.dropped) for one in found.sites] == [(30, None, None), (15, None, None)]
    assert len(found.heldout) == 15 and found.unused("long") == 0
    assert "too long" not in dict(figures(found))["records"]


def test_a_dry_run_tells_that_none_fits_of_a_data_set_of_the_hub(make, monkeypatch):
    """What is there and cannot be used is no data set that cannot be reached."""
    import datasets

    hub = SimpleNamespace(column_names=["instruction", "output"])
    hub.select_columns = lambda names: [{"instruction": "explain", "output": LONG}]
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: hub)
    with pytest.raises(DataError, match="owner/name: no site has a usable record"):
        dry_run(make(data={"train": "owner/name", "sites": PARTITION}))


# ---- labels ----------------------------------------------------------------------------------------------------------


def test_records_of_an_unknown_label_are_refused_or_left_out_before_any_is_drawn(tokenizer, tmp_path):
    notes = [{"text": f"note {n}", "label": ("good", "bad", "odd")[n % 3]} for n in range(30)]
    write_lines(tmp_path / "notes.jsonl", notes)
    options = {"train": "notes.jsonl", "max_length": 64, "heldout_records": 10, "sites": PARTITION | {"records": 4}}

    def people(**more):
        config = DataConfig.parse(options | more, "test")
        reading = LABELLED.reading(PATTERNS, config, tokenizer, masked=False)
        return gather(config, STREAM, kind="labelled", pooled=False, reading=reading)

    with pytest.raises(DataError, match=r"labels of 10 of 30 records:\n  notes\.jsonl:3: 'odd'"):
        people()
    found = people(skip_bad=True)
    assert len(found.heldout) == 10 and sizes(found) == {"site-0": 4, "site-1": 4}
    assert {one.label for one in [*found.heldout, *everything(found)]} == {"good", "bad"}
    assert (found.exclusions.bad, found.exclusions.train) == (10, 0)
    with pytest.raises(DataError, match=r"20 of 20 labelled records are held out|asked of 20 that can be used"):
        people(skip_bad=True, heldout_records=20)


# ---- persons ---------------------------------------------------------------------------------------------------------


def test_a_person_keeps_as_many_records_as_a_site_may_have_of_those_that_fit(gathered, tmp_path):
    own = [(endless if n < 8 else record)("one", n) | {"patient": "p" if n < 12 else n} for n in range(20)]
    write_lines(tmp_path / "persons" / "one.jsonl", own)
    people = gathered(train="persons", user="patient", records_per_user=3)
    numbers = [int(one.instruction.split()[-1]) for one in everything(people)]
    assert sum(number < 12 for number in numbers) == 3 and min(numbers) >= 8
    assert Counter(one.cause for one in people.unused if "persons" in one.where.file) == {"long": 8, "user": 1}


def test_a_real_site_takes_part_with_what_a_simulation_gives_it(make, tmp_path, tokenizer, capsys):
    """Both leave out what does not fit, then what is public, and then what a person has too many of."""
    own = [(endless if n % 4 == 0 else record)("one", n) | {"patient": f"p{n % 5}"} for n in range(30)]
    write_lines(tmp_path / "persons" / "one.jsonl", own)
    public = [record("one", n) for n in (1, 2, 3, 7)]
    write_lines(tmp_path / "heldout.jsonl", public)
    data = {"train": "persons", "user": "patient", "records_per_user": 2, "skip_bad": True}
    experiment = make({"name": "dplora", "noise_multiplier": 1.0}, data=data)
    reading = InstructionReading(template("alpaca"), tokenizer, experiment.data.max_length)
    people = gather(experiment.data, Stream(0), kind="instruction", pooled=False, promises=True, reading=reading)

    (tmp_path / "members").mkdir()
    folder = tmp_path / "members" / "one"
    share_out(experiment, {"one": []}, {"one": folder}, None, ["cpu"], simulated=False)
    listed = [digest([one.identity]) for one in people.heldout]
    (folder.parent / FEDERATION / HELDOUT_DIGESTS).write_text(json.dumps(listed))
    own_file = {"records": str(tmp_path / "persons" / "one.jsonl"), "user": "patient"}
    site = SiteFile.load(folder).model_copy(update=own_file)
    [simulated] = people.sites
    assert records_of(site, experiment, reading) == simulated.records
    assert len(simulated.records) == 10 and len(listed) == 4
    capsys.readouterr()
    records_of(site, experiment, reading)
    assert capsys.readouterr().err == ""
    records_of(site, experiment, reading, told=True)  # to its owner
    told = capsys.readouterr().err
    for words in (
        "8 records do not fit 128 tokens (data.max_length) and are left out",
        "4 records that the run is measured on are left out",
        "8 records are left out, of persons with more than data.records_per_user",
    ):
        assert words in told
    write_lines(tmp_path / "persons" / "one.jsonl", [record("one", 9) | {"patient": "q"}] * 2)
    records_of(site, experiment, reading, told=True)
    assert "site one keeps 1 repeated record: " in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(5))
def test_which_records_of_a_person_stay_depends_on_nobody_elses(seed):
    """An ε for a person is about whoever else is there: with and without it, all others' are the same."""
    stream, users = Stream(seed), [f"p{n % 7}" for n in range(50)]
    named = [SimpleNamespace(identity=f"record {n}") for n in range(50)]
    own = [Placed(named[n], Place("file", n), "a", user=users[n]) for n in range(50)]
    kept, others = bounded(own, 3, stream)
    assert len(kept) == 21 and {one.where for one in others} == {one.where for one in own if one not in kept}
    for gone in range(50):
        now, _ = bounded(own[:gone] + own[gone + 1 :], 3, stream)
        changed = {one.where.number for one in kept} ^ {one.where.number for one in now}
        assert all(users[place] == users[gone] for place in changed) and len(changed) in (0, 2)


# ---- the whole way ---------------------------------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path, llama_folder):
    return partial(small.experiment, tmp_path, llama_folder)


@pytest.mark.parametrize("sites", [{}, PARTITION | {"records": 6}], ids=["file", "partition"])
def test_a_run_that_goes_on_and_its_audit_have_the_same_records(make, tmp_path, no_page, sites):
    options = {"train": "all.jsonl" if sites else "sites", "heldout": None, "heldout_records": 9, "sites": sites}
    run(make({"rounds": 1}, data=options))
    result = run(make({"rounds": 2}, data=options), resume=True)
    folder = read(result.folder)
    assert folder.last.number == 2 and folder.measured.heldout.count == 9
    again = prepare(make({"rounds": 2}, data=options)).complete[1].planted
    attacked = subject(result.folder)
    assert {name: digest(own) for name, own in attacked.records.items()} == {
        site.name: digest(site.records) for site in again.sites
    }
    assert len(attacked.others) == 9 and all(map(fits, attacked.others))
    assert [one.used for one in folder.sites] == [len(site.records) for site in again.sites]
    assert folder.exclusions.train == (20 if sites else 0)


def test_what_a_private_file_loses_is_not_published_under_a_guarantee(make, no_page):
    private = {"name": "dplora", "noise_multiplier": 1.0, "rounds": 1}
    found = read(run(make(private, data={"train": "all.jsonl", "sites": PARTITION})).folder)
    assert found.exclusions.train is None and found.exclusions.heldout == 10


def test_canaries_are_planted_among_records_that_fit(make):
    found = prepare(make(data={"sites": {"records": 5}}, audit={"canaries": 2})).complete[1]
    assert [(one.used, one.canaries) for one in found.planted.reports] == [(6, 1), (6, 1)]
