import hashlib
import json
from pathlib import Path

import datasets
import numpy as np
import pytest

from murmura.data.records import Instruction
from murmura.data.texts import text_hash
from murmura.errors import DataError, ModelError
from murmura.retrieval.build import Origin, SourceOptions, build
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.pool import Pool
from murmura.runs.card import is_made_here
from tests.conftest import make_encoder
from tests.experiment.small import record, write_lines
from tests.retrieval.pools import Counting


class Tiny(Counting):
    name = "tiny"


@pytest.fixture
def make(tmp_path):
    """Builds a pool, with an encoder that counts and a cache of its own."""

    def made(*sources, encoder=None, overwrite=False, **reading):
        origins = [Origin.of(str(one)) for one in sources]
        out = tmp_path / "pool"
        cache = tmp_path / "cache"
        return build(origins, out, encoder or Tiny(), SourceOptions(**reading), overwrite=overwrite, cache=cache)

    return made


def lines(path, domain, numbers):
    return write_lines(path, [record(domain, number) for number in numbers])


def test_records_of_several_domains_become_a_pool(make, tmp_path):
    code, math = lines(tmp_path / "code.jsonl", "code", range(3)), lines(tmp_path / "b.jsonl", "math", range(2))
    encoder = Tiny()
    pool = make(code, f"math={math}", encoder=encoder)
    texts = [Instruction(**record(*one)).question for one in [("code", 0), ("code", 1), ("code", 2), ("math", 0)]]
    assert len(pool) == 5 and pool.domains == ("code", "math") and pool.domain.tolist() == [0, 0, 0, 1, 1]
    assert [one.question for one in pool.records([0, 1, 2, 3])] == texts
    assert np.array_equal(pool.vectors[:4], encoder.vectors(texts))
    assert pool.hashes[3].tobytes() == text_hash(texts[3])
    assert (pool.encoder.name, pool.encoder.fingerprint, pool.dimension) == ("tiny", "f" * 64, 3)
    first, second = pool.manifest.sources
    assert (first.source, first.domain, first.records) == (str(code), "code", 3)
    assert (second.domain, second.sha256) == ("math", hashlib.sha256(math.read_bytes()).hexdigest())
    pool.verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.jsonl", "cache", "code.jsonl", "pool"]


@pytest.mark.parametrize(
    ("text", "source", "domain"),
    [
        ("some/code.jsonl", "some/code.jsonl", "code"),
        ("code=some/a.jsonl", "some/a.jsonl", "code"),
        ("owner/name:part", "owner/name:part", "name"),
        ("code=owner/name", "owner/name", "code"),
    ],
)
def test_a_domain_is_named_or_called_like_its_file(text, source, domain):
    assert Origin.of(text) == Origin(source, domain)


def test_a_path_with_an_equals_sign_is_a_path(tmp_path):
    path = lines(tmp_path / "a=b.jsonl", "code", range(1))
    assert Origin.of(str(path)) == Origin(str(path), "a=b")


@pytest.mark.parametrize("text", ["=a.jsonl", "code="])
def test_half_a_source_is_refused(text):
    with pytest.raises(DataError, match="neither FILE nor DOMAIN=FILE"):
        Origin.of(text)


def test_a_text_is_kept_once_and_others_are_counted(make, tmp_path):
    """Also with another answer, and with other whitespace."""
    again = record("code", 0) | {"instruction": "explain  the code result 0 ", "output": "something else"}
    a = write_lines(tmp_path / "a.jsonl", [record("code", 0), record("code", 1), again])
    b = write_lines(tmp_path / "b.jsonl", [record("code", 1), record("math", 0)])
    pool = make(a, b)
    assert [(one.records, one.repeated) for one in pool.manifest.sources] == [(2, 1), (1, 1)]
    assert pool.records([0])[0].output == record("code", 0)["output"]
    assert pool.domain.tolist() == [0, 0, 1]


def test_what_somebody_holds_is_left_out_and_counted(make, tmp_path):
    public = lines(tmp_path / "code.jsonl", "code", range(5))
    own = lines(tmp_path / "own" / "site.jsonl", "code", [1])
    heldout = write_lines(tmp_path / "heldout.jsonl", [record("code", 3) | {"output": "another answer"}])
    pool = make(public, without=[str(own.parent), str(heldout)])
    assert [one.instruction for one in pool.records(range(3))] == [f"explain the code result {n}" for n in (0, 2, 4)]
    assert pool.manifest.sources[0].exclusions == 2
    assert "heldout" not in (pool.folder / "pool.json").read_text()


def test_of_private_records_a_pool_says_that_they_are_left_out_and_no_more(make, tmp_path):
    public = lines(tmp_path / "code.jsonl", "code", range(5))
    own = lines(tmp_path / "ward.jsonl", "code", [1, 3])
    pool = make(public, without_private=[str(own)])
    assert [one.instruction for one in pool.records(range(3))] == [f"explain the code result {n}" for n in (0, 2, 4)]
    [source] = pool.manifest.sources
    assert (source.records, source.repeated, source.exclusions, source.bad) == (3, 0, 0, 0)
    assert pool.manifest.without_private and "ward" not in (pool.folder / "pool.json").read_text()


def test_a_text_that_cannot_be_read_may_be_in_the_pool(make, tmp_path):
    public = lines(tmp_path / "code.jsonl", "code", range(2))
    own = write_lines(tmp_path / "own.jsonl", [record("code", 0), {"instruction": "what"}])
    with pytest.raises(DataError, match=r"own.jsonl:2: .*the pool may hold its text.*no record is skipped"):
        make(public, without=[str(own)], skip_bad=True)
    assert not (tmp_path / "pool").exists()


def test_a_pool_of_nothing_is_refused(make, tmp_path):
    public = lines(tmp_path / "code.jsonl", "code", range(2))
    with pytest.raises(DataError, match=r"no record is left.*file to leave out"):
        make(public, without=[str(public)])
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty.jsonl: holds no records"):
        make(public, tmp_path / "empty.jsonl")


def test_bad_records_of_all_files_are_told_together_before_anything_is_computed(make, tmp_path):
    a = write_lines(tmp_path / "a.jsonl", [record("code", 0), {"instruction": "what"}])
    b = write_lines(tmp_path / "b.jsonl", [{"output": "this"}, record("math", 0)])
    encoder = Tiny()
    with pytest.raises(DataError, match=r"(?s)2 of 4 records cannot be used:.*a.jsonl:2: .*b.jsonl:1: .*--skip-bad"):
        make(a, b, encoder=encoder)
    assert encoder.given == []
    pool = make(a, b, skip_bad=True)
    assert [(one.records, one.bad) for one in pool.manifest.sources] == [(1, 1), (1, 1)]


def test_columns_have_other_names(make, tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [{"question": "why", "answer": "because"}])
    with pytest.raises(DataError, match=r"--field instruction=COLUMN"):
        make(path)
    pool = make(path, fields={"instruction": "question", "output": "answer"})
    assert pool.records([0]) == [Instruction("why", "", "because")]


def test_columns_have_other_names_in_one_domain(make, tmp_path):
    row = {"instruction": "Answer this truthfully", "input": "why", "output": "because"}
    code, cards = (write_lines(tmp_path / f"{name}.jsonl", [row]) for name in ("code", "cards"))
    pool = make(code, cards, fields={"cards.instruction": "input"})
    assert pool.records([0, 1]) == [Instruction(*row.values()), Instruction("why", "", "because")]
    with pytest.raises(DataError, match=r"--field card\.output: there is no domain 'card'.*'cards'"):
        make(code, cards, fields={"card.output": "input"}, overwrite=True)


def test_columns_of_domains_one_of_which_is_called_like_another_and_more(make, tmp_path):
    row = {"instruction": "why", "output": "because", "answer": "for this reason"}
    files = [write_lines(tmp_path / f"alpaca{more}.jsonl", [row | {"input": more}]) for more in ("", ".v2")]
    pool = make(*files, fields={"alpaca.v2.output": "answer"})
    assert [one.output for one in pool.records([0, 1])] == ["because", "for this reason"]


def test_a_split_is_of_data_sets_of_the_hub_and_files_beside_them_have_none(make, tmp_path, monkeypatch):
    def load_dataset(name, config=None, *, split):
        return datasets.Dataset.from_list([record(split, number) for number in range(2)])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    public, own = lines(tmp_path / "code.jsonl", "code", range(3)), lines(tmp_path / "own.jsonl", "code", [1])
    pool = make(public, "some/set", without=[str(own)], split="validation")
    names = [("code", 0), ("code", 2), ("validation", 0), ("validation", 1)]
    told = [f"explain the {what} result {n}" for what, n in names]
    assert [one.instruction for one in pool.records(range(4))] == told and len(pool) == 4
    pool = make("some/set", without=[str(own.parent / "code.jsonl")], split="test", overwrite=True)
    assert len(pool) == 2
    with pytest.raises(DataError, match=r"--split validation: none of the sources has a split"):
        make(public, without=[str(own)], split="validation", overwrite=True)


def test_a_build_that_was_stopped_goes_on_where_it_was(make, tmp_path):
    public = lines(tmp_path / "code.jsonl", "code", range(6))
    with pytest.raises(KeyboardInterrupt):
        make(public, encoder=Tiny(stops_after=4))
    assert not (tmp_path / "pool").exists()
    encoder = Tiny()
    pool = make(public, encoder=encoder)
    assert len(encoder.given) == 2
    assert np.array_equal(pool.vectors, encoder.vectors([one.question for one in pool.records(range(6))]))


def test_what_a_killed_build_left_is_removed(make, tmp_path):
    (tmp_path / ".pool.123.partial").mkdir()
    (tmp_path / ".pool.lock").write_text("")
    make(lines(tmp_path / "code.jsonl", "code", range(2)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "code.jsonl", "pool"]


def test_a_pool_is_replaced_only_if_asked_and_only_by_a_whole_one(make, tmp_path):
    first = lines(tmp_path / "code.jsonl", "code", range(2))
    second = lines(tmp_path / "math.jsonl", "math", range(4))
    make(first)
    with pytest.raises(DataError, match=r"there is a pool here.*--overwrite"):
        make(second)
    with pytest.raises(KeyboardInterrupt):
        make(second, encoder=Tiny(stops_after=2), overwrite=True)
    assert Pool.open(tmp_path / "pool").domains == ("code",)
    assert make(second, overwrite=True).domains == ("math",)


@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_else_is_replaced(make, tmp_path, overwrite):
    place = tmp_path / "pool" / "letter.txt"
    place.parent.mkdir()
    place.write_text("dear")
    with pytest.raises(DataError, match="something else here"):
        make(lines(tmp_path / "code.jsonl", "code", range(2)), overwrite=overwrite)
    assert place.read_text() == "dear"


def test_a_pool_is_not_replaced_with_what_somebody_has_put_beside_it(make, tmp_path):
    """A note may be called as a pool's own card, which one of public records has none of."""
    public, pool = lines(tmp_path / "code.jsonl", "code", range(2)), tmp_path / "pool"
    make(public)
    (pool / ".approximate.faiss.7.partial").write_text("left behind")
    for name in ("letter.txt", "README.md"):
        (pool / name).write_text("dear")
        with pytest.raises(DataError, match=f"--overwrite would remove {name}, which no pool has"):
            make(public, overwrite=True)
        assert (pool / name).read_text() == "dear"
        (pool / name).unlink()
    (pool / "pool.json").write_text("{")  # damaged: that it is to be built again, its error says
    assert len(make(public, overwrite=True)) == 2


def test_a_file_of_a_pools_name_makes_no_pool(make, tmp_path):
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "pool.json").write_text("{}")
    with pytest.raises(DataError, match="something else here"):
        make(lines(tmp_path / "code.jsonl", "code", range(2)), overwrite=True)
    assert (tmp_path / "pool" / "pool.json").read_text() == "{}"


def test_an_empty_folder_becomes_a_pool(make, tmp_path):
    (tmp_path / "pool").mkdir()
    assert len(make(lines(tmp_path / "code.jsonl", "code", range(2)))) == 2


@pytest.mark.parametrize("holds", [False, True])
def test_the_directory_that_a_build_is_started_from_is_not_replaced(make, tmp_path, monkeypatch, holds):
    public, pool = lines(tmp_path / "code.jsonl", "code", range(2)), tmp_path / "pool"
    if holds:
        make(public)
    (pool / "within").mkdir(parents=True)
    monkeypatch.chdir(pool / "within")
    before = sorted(tmp_path.rglob("*"))
    for out in (".", "..", "../../pool", "../.."):
        with pytest.raises(DataError, match=rf"^{out}: the current directory is in it, and would be replaced\. Start"):
            build([Origin.of(str(public))], out, Tiny(), overwrite=holds)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_pool_goes_where_dots_and_links_lead(make, tmp_path):
    public, link = lines(tmp_path / "code.jsonl", "code", range(2)), tmp_path / "link"
    (tmp_path / "beside").mkdir()
    link.symlink_to(tmp_path / "pool")
    for out, overwrite in ((tmp_path / "beside" / ".." / "pool", False), (link, True)):
        build([Origin.of(str(public))], out, Tiny(), cache=tmp_path / "cache", overwrite=overwrite)
        assert link.is_symlink() and len(Pool.open(tmp_path / "pool")) == 2
    assert sorted(path.name for path in tmp_path.glob(".*")) == []


def test_two_builds_of_one_pool_are_refused(make, tmp_path):
    public = lines(tmp_path / "code.jsonl", "code", range(2))
    encoder = Tiny()
    batches = encoder.batches

    def meanwhile(texts):
        with pytest.raises(DataError, match="another process is building"):
            make(public)
        return batches(texts)

    encoder.batches = meanwhile
    assert len(make(public, encoder=encoder)) == 2


def test_an_encoder_that_is_missing_is_told_and_leaves_nothing(make, tmp_path):
    with pytest.raises(ModelError, match="absent"):
        make(lines(tmp_path / "code.jsonl", "code", range(2)), encoder=Encoder(str(tmp_path / "absent")))
    assert not (tmp_path / "pool").exists()


def test_with_an_encoder_of_sentence_transformers(make, tmp_path, tokenizer):
    folder = tmp_path / "encoder"
    make_encoder(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    encoder = Encoder(str(folder), device="cpu")
    pool = make(lines(tmp_path / "code.jsonl", "code", range(3)), encoder=encoder)
    texts = [one.question for one in pool.records(range(3))]
    assert np.allclose(pool.vectors, encoder.embed(texts), atol=1e-6)
    pool.refuse_other(Encoder(str(folder), device="cpu"))
    assert json.loads((pool.folder / "pool.json").read_text())["encoder"]["fingerprint"] == encoder.fingerprint
    assert Path(pool.encoder.name) == folder


@pytest.mark.parametrize("made", [False, True])
def test_a_pool_of_what_a_run_has_left_says_so_and_so_does_one_of_that(make, tmp_path, made):
    of = lines(tmp_path / "left" / "code.jsonl", "code", range(3))
    if made:
        (of.parent / "README.md").write_text("---\ntags:\n- murmura\n---\n")
    other = lines(tmp_path / "math.jsonl", "math", range(3))
    pool = make(other, of)
    pool.verify()
    assert is_made_here(pool.folder) == made
    again = pool.folder.rename(tmp_path / "first")
    assert is_made_here(make(again / "records.jsonl").folder) == made
