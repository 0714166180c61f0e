"""Drafts are shown to whoever asks for them on the machine of a simulation, and never otherwise."""

import pytest

from murmura import report
from murmura.errors import CheckpointError
from murmura.federation.site.store import SiteStore
from murmura.report.sections.drafts import drafts
from murmura.runs import RunFolder, read_all
from murmura.runs.schema import ShownDraft
from tests.report.blocks import tables
from tests.report.runs import PROMISE, metrics, rows_of, write_run

TOLD = [
    ShownDraft(2, "Explain why\nthe <b>knee</b> swells.", True, "among the best: IFS 0.700"),
    ShownDraft(2, "Sorry, I cannot", False, "the model refused"),
]


def kept(folder, **options):
    """A run, one of whose sites has kept two drafts."""
    path = write_run(folder, **options)
    RunFolder(path).private.mkdir()
    store = SiteStore.held(RunFolder(path).private_of("skin"), "skin")
    store.show(TOLD)
    store.release()
    return path


def test_each_draft_is_told_with_what_became_of_it_and_why(tmp_path):
    assert tables(drafts(rows_of(kept(tmp_path / "a")))) == [
        [
            ["skin", "kept", "Explain why the <b>knee</b> swells.", "among the best: IFS 0.700"],
            ["skin", "dropped", "Sorry, I cannot", "the model refused"],
        ]
    ]


def test_they_are_on_no_page_that_did_not_ask_for_them(tmp_path):
    records = read_all([kept(tmp_path / "a")])
    plain = report.write(records, tmp_path / "plain.html").read_text()
    asked = report.write(records, tmp_path / "asked.html", texts=True).read_text()
    assert "swells" not in plain and "refused" not in plain
    assert "&lt;b&gt;knee" in asked and "<b>knee" not in asked
    assert "Not for publication:" in asked and "Not for publication:" not in plain


@pytest.mark.parametrize("place", ["report.html", "adapter/page.html", "x/../report.html"])
def test_they_are_not_written_among_what_is_published_of_a_run(tmp_path, place):
    records = read_all([kept(tmp_path / "a"), write_run(tmp_path / "b")])
    for folder in ("a", "b"):
        with pytest.raises(CheckpointError, match="does not belong among what is published"):
            report.write(records, tmp_path / folder / place, texts=True)
        assert not (tmp_path / folder / place).resolve().exists()
    report.write(records, tmp_path / "b" / "report.html")


def test_a_page_of_them_is_for_its_owner_alone(tmp_path):
    records = read_all([kept(tmp_path / "a")])
    for place in (tmp_path / "page.html", tmp_path / "a" / "private" / "page.html"):
        assert report.write(records, place, texts=True).stat().st_mode & 0o077 == 0
    assert report.write(records, tmp_path / "plain.html").stat().st_mode & 0o044


def test_those_of_a_run_with_an_epsilon_or_of_real_sites_are_shown_to_nobody(tmp_path):
    promised = kept(tmp_path / "a", rows=[metrics(0), metrics(2, **PROMISE)])
    refused = kept(tmp_path / "b", rows=[metrics(0), metrics(2, privacy={**PROMISE["privacy"], "epsilon": None})])
    real = kept(tmp_path / "c")
    text = (real / "config.toml").read_text()
    (real / "config.toml").write_text(text.replace("[run]\n", '[run]\nengine = "flower"\n'))
    plain = kept(tmp_path / "d")
    for path, why in ((promised, "promises an ε"), (refused, "promises an ε"), (real, "not simulated")):
        with pytest.raises(CheckpointError, match=why):
            drafts(rows_of(plain, path))


def test_where_there_are_none_or_they_are_damaged_an_error_says_so(tmp_path):
    with pytest.raises(CheckpointError, match="no site has kept drafts"):
        drafts(rows_of(write_run(tmp_path / "a")))
    path = kept(tmp_path / "b")
    file = RunFolder(path).private_of("skin") / "drafts.jsonl"
    assert "Do not publish this file" in file.read_text().splitlines()[0]
    assert file.stat().st_mode & 0o077 == 0
    file.write_text('{"round": 1}\nnonsense\n')
    with pytest.raises(CheckpointError, match=r"drafts\.jsonl, line 1: 'text' is missing"):
        drafts(rows_of(path))
