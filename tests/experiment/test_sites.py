"""From files to sites: who gets which records, and who none."""

import gzip
from collections import Counter
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from murmura.data.config import DataConfig
from murmura.data.layout import Place
from murmura.data.records import Instruction, Labelled, Preference
from murmura.data.templates import template
from murmura.errors import ConfigError, DataError
from murmura.experiment.exclusions import Placed, Unused, tell, tell_asked
from murmura.experiment.sites import gather
from murmura.federation.site.cohort import Cohort
from murmura.federation.site.site import Site
from murmura.federation.wire.messages import Ask
from murmura.methods.lpfl.config import LPFLConfig
from murmura.methods.lpfl.method import LPFL
from murmura.streams import Stream
from murmura.tasks.instruction import InstructionReading
from tests.experiment.small import SIZES, record, write_data, write_lines

STREAM = Stream(0) / "data"


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path)
    rows = [record("heart", n) | {"owner": f"clinic {n % 3}", "topic": "abcd"[n % 4]} for n in range(24)]
    write_lines(tmp_path / "all.jsonl", rows)


def unused(texts):
    pytest.fail("texts were embedded for nothing")


def gathered(embed=unused, stream=STREAM, pooled=False, **options):
    config = DataConfig.parse({"heldout": "heldout.jsonl"} | options, "test")
    return bare(gather(config, stream, embed, kind="instruction", pooled=pooled))


def bare(people):
    """Who has which records, and where those stand that nobody uses."""
    groups = {site.name: site.records for site in people.sites}
    unused = [f"{one.where}: {one.cause}" for one in people.unused]
    return SimpleNamespace(groups=groups, heldout=people.heldout, nonmembers=people.nonmembers, unused=unused)


partitioned = partial(gathered, train="all.jsonl")


def sizes(found):
    return {name: len(records) for name, records in found.groups.items()}


def everything(found):
    return [r for records in found.groups.values() for r in records]


def test_one_file_a_site():
    found = gathered(train="sites")
    assert sizes(found) == SIZES
    assert [r.instruction for r in found.groups["skin"]] == [f"explain the skin result {n}" for n in range(3)]
    assert (len(found.heldout), found.nonmembers, found.unused) == (4, [], [])


def test_a_site_whose_file_cannot_be_read_is_not_left_out_without_a_word(tmp_path, capsys):
    (tmp_path / "sites" / "west.ods").write_bytes(b"")
    with pytest.raises(DataError, match=r"west\.ods"):
        gathered(train="sites", skip_bad=True)
    assert sizes(gathered(train="sites", sites={"ignore": ["*.ods"]})) == SIZES
    assert "west.ods" in capsys.readouterr().err
    packed = gzip.compress((tmp_path / "sites" / "skin.jsonl").read_bytes().replace(b"skin", b"west"))
    (tmp_path / "sites" / "west.ods").rename(tmp_path / "sites" / "west.jsonl.gz").write_bytes(packed)
    assert sizes(gathered(train="sites")) == SIZES | {"west": 3}


def test_a_site_whose_columns_have_other_names(tmp_path):
    before = gathered(train="sites").groups
    file = tmp_path / "sites" / "skin.jsonl"
    file.write_text(file.read_text(encoding="utf-8").replace('"instruction":', '"Frage":'), encoding="utf-8")
    with pytest.raises(DataError, match=r"sites\.fields"):
        gathered(train="sites")
    columns = {"skin": {"instruction": "Frage"}}
    assert gathered(train="sites", sites={"fields": columns}).groups == before
    for options in ({"sites": {"by": "column", "column": "owner"}, "train": "all.jsonl"}, {}):
        with pytest.raises(ConfigError, match="'fields' does nothing"):
            gathered(**{**options, "sites": {**options.get("sites", {}), "fields": columns}})


def test_a_column_that_names_the_owner():
    found = partitioned(sites={"by": "column", "column": "owner"})
    assert sizes(found) == {"clinic 0": 8, "clinic 1": 8, "clinic 2": 8}


def test_an_owner_whose_name_is_encoded_in_several_ways_is_one_site(tmp_path):
    owners = ["K\u00f6ln", "Ko\u0308ln", "Bad Aibling", "Bad\u00a0Aibling"]
    write_lines(tmp_path / "all.jsonl", [record("heart", n) | {"owner": owners[n % 4]} for n in range(8)])
    assert sizes(partitioned(sites={"by": "column", "column": "owner"})) == {"Bad Aibling": 4, "K\u00f6ln": 4}


def test_owners_whom_capitals_alone_tell_apart_are_no_sites_of_their_own(tmp_path):
    """A site's name becomes a folder's, so that files of such names are refused, too."""
    owners = ["North", "north", "NORTH ", " north", "south"]
    write_lines(tmp_path / "all.jsonl", [record("heart", n) | {"owner": owners[n % 5]} for n in range(10)])
    by_owner = {"by": "column", "column": "owner"}
    told = r"all\.jsonl: .* 'owner' .*: 'NORTH' \(2 records\), 'North' \(2 records\) and 'north' \(4 records\)"
    for options in ({}, {"pooled": True}, {"skip_bad": True}):
        with pytest.raises(DataError, match=told):
            partitioned(sites=by_owner, **options)
    labels = {"by": "partition", "count": 2, "scheme": "dirichlet", "alpha": 0.5, "label": "owner"}
    assert sum(sizes(partitioned(sites=labels)).values()) == 10


def test_all_records_pooled():
    found = gathered(train="sites", pooled=True)
    assert sizes(found) == {"pooled": 9}


def test_one_file_shared_out_at_random():
    found = partitioned(sites={"by": "partition", "count": 5})
    assert list(found.groups) == [f"site-{k}" for k in range(5)]
    assert sorted(sizes(found).values()) == [4, 5, 5, 5, 5]
    assert len(set(everything(found))) == 24
    again = partitioned(sites={"by": "partition", "count": 5})
    other = partitioned(sites={"by": "partition", "count": 5}, stream=Stream(1) / "data")
    assert found.groups == again.groups != other.groups


def test_a_mix_of_labels_drawn_for_each_site(capsys):
    mixed = {"by": "partition", "count": 3, "scheme": "dirichlet", "alpha": 0.01, "label": "topic"}
    found = partitioned(sites=mixed)
    assert len(set(everything(found))) == 24
    # So small an alpha gives nearly all records of a topic to one site; number % 4 tells the topic.
    for topic in range(4):
        owners = Counter(
            name
            for name, records in found.groups.items()
            for r in records
            if int(r.instruction.split()[-1]) % 4 == topic
        )
        assert max(owners.values()) >= 5
    exclusions = 3 - len(found.groups)
    assert ("are left out" in capsys.readouterr().err) == (exclusions > 0)


def by_number(texts):
    """Vectors that put records with numbers below 12 together, and the others."""
    return np.array([[float(int(text.split()[4]) < 12), 0.0] for text in texts], dtype=np.float32)


def test_few_of_each_cluster():
    few = {"clusters": 2, "per_cluster": 3}
    found = partitioned(by_number, few_shot=few, sites={"by": "partition", "count": 2})
    numbers = sorted(int(r.instruction.split()[-1]) for r in everything(found))
    assert len(numbers) == 6 and sum(number < 12 for number in numbers) == 3


def test_clusters_serve_as_labels():
    sites = {"by": "partition", "count": 2, "scheme": "dirichlet-equal", "alpha": 0.001, "clusters": 2}
    found = partitioned(by_number, sites=sites)
    assert sizes(found) == {"site-0": 12, "site-1": 12}
    for records in found.groups.values():
        assert len({int(r.instruction.split()[-1]) < 12 for r in records}) == 1


def test_held_out_records_taken_out_of_the_sites_own():
    for options in (
        {"train": "sites"},
        {"train": "all.jsonl", "sites": {"by": "column", "column": "owner"}},
        {"train": "all.jsonl", "sites": {"by": "partition", "count": 3}},
    ):
        found = gathered(heldout=None, heldout_records=4, **options)
        total = 9 if options["train"] == "sites" else 24
        assert (len(found.heldout), len(everything(found)), found.nonmembers) == (4, total - 4, [])
        assert not set(found.heldout) & set(everything(found))


def test_more_held_out_records_than_there_are_is_refused():
    with pytest.raises(DataError, match=r"9 records asked of 9 that can be used\. Lower data\.heldout_records"):
        gathered(train="sites", heldout=None, heldout_records=9)


@pytest.mark.parametrize("seed", range(20))
def test_each_site_gives_its_share_to_what_is_held_out_and_keeps_the_rest(tmp_path, seed, capsys):
    """Of three hospitals with ten records each one was left without any, where twenty were held out at random."""
    for site, count in (("north", 10), ("south", 10), ("west", 10), ("tiny", 1)):
        write_lines(tmp_path / "hospitals" / f"{site}.jsonl", [record(site, n) for n in range(count)])
    for options in ({"heldout": None, "heldout_records": 20}, {"nonmember_records": 20}):
        found = gathered(stream=Stream(seed) / "data", train="hospitals", **options)
        left = sizes(found)
        assert left.pop("tiny") == 1
        assert set(left) == {"north", "south", "west"} and set(left.values()) == {3, 4}
        assert len(found.nonmembers or found.heldout) == 20
        assert not set(found.nonmembers or found.heldout) & set(everything(found))
        assert "20 of the sites' own 31 records are set apart" in capsys.readouterr().err


def test_where_no_site_could_keep_a_record_nothing_is_held_out(tmp_path):
    assert sizes(gathered(train="sites", heldout=None, heldout_records=7)) == {"heart": 1, "skin": 1}
    limited = {"train": "sites", "heldout": None, "sites": {"records": 2}}
    assert sizes(gathered(**limited, heldout_records=7)) == {"heart": 1, "skin": 1}
    for options in ({"train": "sites", "heldout": None}, limited):
        with pytest.raises(DataError, match=r"8 of 9 records of 2 sites .* Lower data\.heldout_records to 7 or less"):
            gathered(**options, heldout_records=8)
    for site in ("a", "b"):
        write_lines(tmp_path / "single" / f"{site}.jsonl", [record(site, 0)])
    with pytest.raises(DataError, match=r"Instead, name a file"):
        gathered(train="single", nonmember_records=1)


def test_which_records_are_sites_own_is_known_where_they_are_held_out():
    owned = {"by": "column", "column": "owner"}
    for options, expected in (
        ({"train": "sites", "heldout_records": 4}, True),
        ({"train": "sites", "heldout": "h.jsonl"}, False),
        ({"train": "sites", "heldout": "h.jsonl", "nonmember_records": 2}, True),
        ({"train": "all.jsonl", "heldout_records": 4, "sites": owned}, True),
        ({"train": "all.jsonl", "heldout_records": 4, "sites": {"by": "partition", "count": 3}}, False),
    ):
        assert DataConfig.parse(options, "test").takes_from_sites is expected


def test_non_members_are_of_the_sites_kind():
    found = gathered(train="sites", nonmember_records=2)
    assert all("kidney" in r.instruction for r in found.heldout)
    assert len(found.nonmembers) == 2 and not any("kidney" in r.instruction for r in found.nonmembers)
    assert not set(found.nonmembers) & set(everything(found))


def test_held_out_columns_of_their_own_and_fewer_records(tmp_path):
    rows = [{"instruction": f"reply {n}", "answer": f"come back on day {n}"} for n in range(6)]
    write_lines(tmp_path / "public.jsonl", rows)
    found = gathered(train="sites", heldout="public.jsonl", heldout_fields={"output": "answer"}, heldout_records=3)
    assert len(found.heldout) == 3 and all(r.output.startswith("come back") for r in found.heldout)


def test_a_column_that_the_held_out_file_lacks_is_one_of_its_own_option(tmp_path):
    write_lines(tmp_path / "public.jsonl", [{"instruction": "reply", "answer": "come back"}])
    with pytest.raises(DataError, match=r"no column 'output'.*: heldout_fields = \{output = 'COLUMN'\}"):
        gathered(train="sites", heldout="public.jsonl")


def test_a_label_to_share_out_by_that_is_nowhere_is_called_what_it_is():
    sites = {"by": "partition", "count": 2, "scheme": "dirichlet", "label": "topc"}
    with pytest.raises(DataError, match=r"no column 'topc'.*or of the labels that they are drawn by"):
        partitioned(sites=sites)


@pytest.mark.parametrize("options", [{"user": ""}, {"sites": {"by": "partition", "count": 2, "label": ""}}])
def test_no_column_is_called_nothing(options):
    """With user = "" all records would be those of one person."""
    with pytest.raises(ConfigError, match="must not be empty"):
        gathered(train="sites", **options)


def test_at_most_so_many_records_a_site():
    assert sizes(gathered(train="sites", sites={"records": 4})) == {"heart": 4, "skin": 3}


def test_records_that_are_public_and_private_are_refused(tmp_path):
    write_lines(tmp_path / "heldout.jsonl", [record("heart", 1), record("kidney", 1)])
    with pytest.raises(DataError, match=r"heldout\.jsonl: 1 public record is also a private one, so it would"):
        gathered(train="sites")


def test_a_record_that_programs_have_written_otherwise_is_the_same_one(tmp_path):
    """Excel ends lines within a cell by CR LF and keeps outer blanks, and macOS writes accents apart."""
    cells = 'cough,"Rest.\r\nDrink tea."\nfever ,Drink  tea.\ne\u0301ruption,Wait.\n'
    (tmp_path / "sites" / "ward.csv").write_bytes(f"instruction,output\n{cells}".encode())
    rows = [("cough", "Rest.\nDrink tea."), ("fever", "Drink tea."), ("\u00e9ruption", "Wait.")]
    write_lines(tmp_path / "heldout.jsonl", [{"instruction": asked, "output": said} for asked, said in rows])
    with pytest.raises(DataError, match=r"heldout\.jsonl: 3 public records are also private ones") as error:
        gathered(train="sites")
    assert "heldout.jsonl:1: the same as sites/ward.csv:" in str(error.value)


def test_records_that_stand_twice_in_what_is_shared_out_are_told_as_such(tmp_path, capsys):
    rows = [record("heart", n // 3) for n in range(12)]  # four records, three times each
    write_lines(tmp_path / "twice.jsonl", rows)
    options = {"train": "twice.jsonl", "sites": {"by": "partition", "count": 2}}
    alone = options | {"heldout": None, "heldout_records": 1}
    with pytest.raises(DataError, match=r"twice\.jsonl: 1 held-out record stands at a site too, so it"):
        gathered(**alone)
    with pytest.raises(DataError, match=r"twice\.jsonl: \d held-out records stand at a site too"):
        gathered(**alone | {"heldout_records": 8})
    with pytest.raises(DataError, match=r"1 held-out record .*:\n  twice\.jsonl:\d+: the same as twice\.jsonl:\d+\n"):
        gathered(**options, nonmember_records=1)
    capsys.readouterr()
    with pytest.raises(DataError, match=r"twice\.jsonl: no non-member is left .* Raise data\.nonmember_records"):
        gathered(**options, nonmember_records=1, skip_bad=True)
    assert "1 held-out record that a site has too is left out: twice.jsonl:" in capsys.readouterr().err


def test_all_bad_records_of_all_files_are_told_together(tmp_path):
    write_lines(tmp_path / "sites" / "skin.jsonl", [record("skin", 0), {"instruction": "explain"}])
    write_lines(tmp_path / "heldout.jsonl", [{"output": "a"}, record("kidney", 0)])
    with pytest.raises(DataError) as error:
        gathered(train="sites")
    first, *lines = str(error.value).splitlines()
    assert first == "2 of 10 records cannot be used:"
    assert [line.split(": ")[0] for line in lines[:2]] == ["  sites/skin.jsonl:2", "  heldout.jsonl:1"]
    found = gathered(train="sites", skip_bad=True)
    assert found.unused == ["sites/skin.jsonl:2: bad", "heldout.jsonl:1: bad"]


def test_a_site_without_a_record_is_left_out_if_told_to(tmp_path, capsys):
    write_lines(tmp_path / "sites" / "bone.jsonl", [])
    write_lines(tmp_path / "sites" / "eye.jsonl", [{"instruction": "explain", "output": ""}])
    with pytest.raises(DataError, match=r"eye\.jsonl:1"):
        gathered(train="sites")
    found = gathered(train="sites", skip_bad=True)
    assert sizes(found) == SIZES
    assert "sites without a record in their files, 2 in all, are left out: bone, eye" in capsys.readouterr().err
    (tmp_path / "sites" / "eye.jsonl").unlink()
    with pytest.raises(DataError, match=r"bone\.jsonl: holds no records\. .*--skip-bad"):
        gathered(train="sites")


def test_a_record_that_a_site_has_twice_is_told_and_kept(tmp_path, capsys):
    write_lines(tmp_path / "sites" / "skin.jsonl", [record("skin", 0), record("skin", 1), record("skin", 0)])
    assert sizes(gathered(train="sites")) == SIZES
    told = "site skin keeps 1 repeated record: sites/skin.jsonl:3 is the same as sites/skin.jsonl:1"
    assert told in capsys.readouterr().err


def shares(found, group_of):
    """How members and those that they are compared with spread over groups."""
    return [Counter(map(group_of, records)) for records in (everything(found), found.nonmembers or found.heldout)]


def test_members_and_non_members_are_drawn_alike_by_cluster(tmp_path):
    """One question in eight is of the small cluster, and half of the members are."""
    write_lines(tmp_path / "many.jsonl", [record("heart", n) for n in range(96)])
    few, sites = {"clusters": 2, "per_cluster": 6}, {"by": "partition", "count": 2}
    for public in ({"nonmember_records": 6}, {"heldout": None, "heldout_records": 6}):
        for seed in range(3):
            options = public | {"train": "many.jsonl", "few_shot": few, "sites": sites}
            found = gathered(by_number, stream=Stream(seed) / "data", **options)
            ours, theirs = shares(found, lambda r: int(r.instruction.split()[-1]) < 12)
            assert ours == {True: 6, False: 6} and theirs == {True: 3, False: 3}
            assert not set(found.nonmembers or found.heldout) & set(everything(found))


def test_members_and_non_members_are_drawn_alike_where_sites_may_have_so_many_records(tmp_path):
    """One site has ten times the records of the other, and no more members."""
    for site, count in (("large", 100), ("small", 10)):
        write_lines(tmp_path / "uneven" / f"{site}.jsonl", [record(site, n) for n in range(count)])
    found = gathered(train="uneven", nonmember_records=4, sites={"records": 6})
    ours, theirs = shares(found, lambda r: r.instruction.split()[2])
    assert ours == {"large": 6, "small": 6} and theirs == {"large": 2, "small": 2}


def labelled(train, **options):
    config = DataConfig.parse({"train": train, "sites": {"by": "partition", "count": 2}} | options, "test")
    return bare(gather(config, STREAM, unused, kind="labelled", pooled=False))


def test_texts_of_which_none_has_a_label_are_told_with_the_column(tmp_path):
    write_lines(tmp_path / "notes.jsonl", [{"text": f"note {n}", "verdict": "good"} for n in range(6)])
    for options in ({"heldout_records": 2}, {"heldout": "notes.jsonl"}):
        with pytest.raises(DataError, match=r"notes\.jsonl: no record has a label\. .* 'label'; .*data\.fields ="):
            labelled("notes.jsonl", **options)
    found = labelled("notes.jsonl", heldout_records=2, fields={"label": "verdict"})
    assert {r.label for r in [*found.heldout, *everything(found)]} == {"good"}


def test_not_all_labelled_records_may_be_held_out(tmp_path):
    rows = [{"text": f"note {n}", "label": "good" if n < 4 else ""} for n in range(12)]
    write_lines(tmp_path / "notes.jsonl", rows)
    for count in (4, 5):
        with pytest.raises(DataError, match=r"4 of 4 labelled records are held out.* Lower data\.heldout_records"):
            labelled("notes.jsonl", heldout_records=count)
    found = labelled("notes.jsonl", heldout_records=3)
    assert all(r.label for r in found.heldout) and sum(bool(r.label) for r in everything(found)) == 1


def test_a_site_may_have_no_label_beside_others_that_have(tmp_path):
    write_lines(tmp_path / "notes" / "pool.jsonl", [{"text": f"pool {n}"} for n in range(3)])
    write_lines(tmp_path / "notes" / "skin.jsonl", [{"text": f"skin {n}", "label": "good"} for n in range(3)])
    found = labelled("notes", sites={"by": "file"}, heldout_records=1)
    assert sizes(found) == {"pool": 3, "skin": 2}
    assert sizes(labelled("notes", sites={"by": "file"}, heldout_records=2)) == {"pool": 3, "skin": 1}
    with pytest.raises(DataError, match="3 of 3 records of 1 sites"):
        labelled("notes", sites={"by": "file"}, heldout_records=3)


@pytest.mark.parametrize(
    ("every", "used"), [(1, 80), (2, 80), (1, 40)], ids=["all labelled", "half of them labelled", "half of them used"]
)
def test_the_same_texts_keep_their_labels_for_any_number_of_sites(tmp_path, every, used):
    """Two sites are compared with one (LP-CT), which must not be a comparison of draws."""
    rows = [{"text": f"note {n}", "label": "good" if n % every == 0 else ""} for n in range(80)]
    write_lines(tmp_path / "notes.jsonl", rows)
    write_lines(tmp_path / "public.jsonl", [{"text": "a public note", "label": "good"}])
    method = LPFL(LPFLConfig(labelled_share=0.25, verbaliser={"good": ("good",), "bad": ("bad",)}))
    kept, texts = {}, {}
    for count in (1, 2, 5):
        shared = {"by": "partition", "count": count} | ({"records": used // count} if used < 80 else {})
        found = labelled("notes.jsonl", heldout="public.jsonl", sites=shared)
        sites = [Site(name, records) for name, records in found.groups.items()]
        cohort = Cohort(sites, None, Ask("train", 1), Stream(0))
        for site in sites:
            method._begin(cohort, site)
        known = [[site.records[place].text for place in site.store["labelled"]] for site in sites]
        assert [len(own) for own in known] == [used // 4 // count] * count
        assert sorted(sizes(found).values()) == [used // count] * count
        kept[count] = {text for own in known for text in own}
        texts[count] = {record.text for record in everything(found)}
    assert kept[1] == kept[2] == kept[5] and texts[1] == texts[2] == texts[5]
    assert kept[1] != {f"note {n}" for n in range(20)}


def test_what_does_not_fit_is_left_out_and_told_of(tokenizer, tmp_path, capsys):
    endless = record("skin", 0) | {"output": "please call the clinic " * 60}
    write_lines(tmp_path / "sites" / "skin.jsonl", [endless])
    options = DataConfig.parse({"train": "sites", "heldout": "heldout.jsonl", "max_length": 128}, "test")

    def people(options):
        reading = InstructionReading(template("alpaca"), tokenizer, options.max_length)
        return gather(options, STREAM, unused, kind="instruction", pooled=False, reading=reading)

    found = people(options)
    assert [site.name for site in found.sites] == ["heart"]
    assert [(r.site, r.used, r.dropped) for r in found.reports] == [("heart", 6, 0), ("skin", 0, 1)]
    said = capsys.readouterr().err
    assert "site skin has no record that fits 128 tokens" in said
    assert "1 record does not fit 128 tokens (data.max_length) and is left out: sites/skin.jsonl:1" in said
    assert [one.row() for one in found.unused] == [
        {"file": "sites/skin.jsonl", "line": 1, "cause": "long", "reason": "does not fit 128 tokens"}
    ]
    short = options.model_copy(update={"max_length": 16})
    with pytest.raises(DataError, match="no site has a usable record"):
        people(short)


def test_held_out_records_that_ask_what_sites_do_are_counted(capsys):
    """Of questions with other answers, and of pairs of one prompt; of texts nothing is asked."""
    own = {"a": [Instruction("why", "", "x"), Instruction("why", "now", "x")], "b": [Preference("why", "x", "y")]}
    text = Labelled("why", "x")
    public = [Instruction("why ", "now\r\n", "z"), Instruction("how", "", "x"), Preference("why", "y", "x"), text]
    placed = {site: [Placed(one, Place("f", 1), site) for one in records] for site, records in own.items()}
    held = [Placed(one, Place("g", 1), None) for one in public]
    assert tell_asked(placed, held) == 2
    assert "2 of 4 held-out records ask what a site's record asks, with another answer" in capsys.readouterr().err
    assert tell_asked({"a": [Placed(text, Place("f", 1), "a")]}, held) == 0 and not capsys.readouterr().err


# ---- persons with several records ------------------------------------------------------------------------------------


def persons(path, files=("one", "two")):
    """Sites in whose files a person has six records, another three, and five have one each."""
    for name in files:
        rows = [record(name, n) | {"patient": who(n)} for n in range(14)]
        write_lines(path / "persons" / f"{name}.jsonl", rows)
    return {"train": "persons", "user": "patient"}


def who(number):
    return "p" if number < 6 else "q" if number < 9 else number


def numbers(records):
    return [int(one.instruction.split()[-1]) for one in records]


def patient(one):
    return who(*numbers([one]))


@pytest.mark.parametrize("most", [1, 2, 4, 6])
def test_no_site_has_more_records_of_one_person_than_it_may(tmp_path, most):
    (tmp_path / "persons").mkdir()
    found = gathered(**persons(tmp_path), records_per_user=most)
    for name, own in found.groups.items():
        assert Counter(map(patient, own)) == Counter(
            {"p": min(most, 6), "q": min(most, 3)} | dict.fromkeys(range(9, 14), 1)
        )
        left = [one for one in found.unused if one.endswith(": user") and name in one]
        assert len(own) + len(left) == 14
    assert found.groups == gathered(**persons(tmp_path), records_per_user=most).groups


def test_a_person_whose_name_is_encoded_in_several_ways_is_one(tmp_path):
    (tmp_path / "persons").mkdir()
    names = {"one": ["Jos\u00e9", "Jose\u0301"], "two": ["Anna Berg", "Anna\u00a0Berg", "Anna  Berg"]}
    for site, own in names.items():
        rows = [record(site, n) | {"patient": name} for n, name in enumerate(own)]
        write_lines(tmp_path / "persons" / f"{site}.jsonl", rows)
    found = gathered(train="persons", user="patient", records_per_user=1)
    assert sizes(found) == {"one": 1, "two": 1}


def test_those_held_out_are_of_persons_as_often_as_those_that_sites_keep(tmp_path):
    """A person has 60 of a site's 90 records, which a bound leaves 2 of: so 2 of the 32 that are shared out."""
    (tmp_path / "persons").mkdir()
    rows = [record("one", n) | {"patient": "p" if n < 60 else n} for n in range(90)]
    write_lines(tmp_path / "persons" / "one.jsonl", rows)
    data = DataConfig.parse(
        {"train": "persons", "user": "patient", "records_per_user": 2, "heldout_records": 16, "max_length": 256}, "test"
    )
    shares = Counter[str]()
    for seed in range(40):
        found = gather(data, Stream(seed), unused, kind="instruction", pooled=False)
        [own] = (site.records for site in found.sites)
        assert len(found.heldout) == len(own) == 16
        assert [one.cause for one in found.unused] == ["user"] * 58
        shares += Counter(kept=sum(n < 60 for n in numbers(own)), out=sum(n < 60 for n in numbers(found.heldout)))
    assert shares["kept"] + shares["out"] == 80 and 20 <= shares["out"] <= 60


def test_pooled_records_are_just_those_that_sites_would_have_with_a_bound_for_each_person(tmp_path):
    (tmp_path / "persons").mkdir()
    options = persons(tmp_path) | {"records_per_user": 2}
    [pooled], own = (gathered(pooled=one, **options).groups.values() for one in (True, False))
    assert pooled == [record for records in own for record in records]
    assert max(Counter(map(patient, pooled)).values()) == 4  # of a person who is at two sites


def test_it_is_told_at_how_many_sites_a_person_has_records_that_are_used(tmp_path, tokenizer):
    (tmp_path / "persons").mkdir()
    options = persons(tmp_path, ["one", "two", "three"]) | {"records_per_user": 2}
    own = [record("three", n) | {"patient": f"of three {n}"} for n in range(5)]
    write_lines(tmp_path / "persons" / "three.jsonl", own)
    reads = InstructionReading(template("alpaca"), tokenizer, 256)
    for chosen, expected in ((options, 2), ({"train": "sites"}, None)):
        data = DataConfig.parse({"heldout": "heldout.jsonl", "max_length": 256} | chosen, "test")
        found = gather(data, STREAM, unused, kind="instruction", pooled=False, reading=reads)
        assert found.exclusions.person_at == expected


def test_which_records_of_a_person_stay_is_drawn_at_random(tmp_path):
    (tmp_path / "persons").mkdir()
    drawn = {
        tuple(n for n in numbers(gathered(stream=Stream(seed), **options).groups["one"]) if who(n) == "p")
        for options in [persons(tmp_path, ["one"]) | {"records_per_user": 2}]
        for seed in range(8)
    }
    assert len(drawn) > 2 and all(list(places) == sorted(places) for places in drawn)


def test_a_record_without_a_person_and_a_column_that_is_not_there(tmp_path):
    (tmp_path / "persons").mkdir()
    persons(tmp_path, ["one"])
    with pytest.raises(DataError, match="no column 'patients'"):
        gathered(train="persons", user="patients", records_per_user=2)
    write_lines(tmp_path / "persons" / "two.jsonl", [record("two", 0) | {"patient": None}])
    with pytest.raises(DataError, match="record without 'patient'"):
        gathered(train="persons", user="patient", records_per_user=2)


def test_a_column_of_persons_without_a_bound_says_nothing():
    for half in ({"user": "patient"}, {"records_per_user": 2}):
        with pytest.raises(ConfigError, match="go together"):
            DataConfig.parse({"heldout": "heldout.jsonl", "train": "a"} | half, "test")


def test_records_that_nobody_uses_are_named_by_file_and_line(capsys):
    tell([Unused(Place("a.jsonl", number), "long", "") for number in (11, 2, 1)], "64 tokens (data.max_length)")
    said = capsys.readouterr().err
    assert "3 records do not fit 64 tokens (data.max_length) and are left out: a.jsonl:1, a.jsonl:2, a.jsonl:11" in said
