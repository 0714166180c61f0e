"""Texts that runs have made, beside the sites' records."""

import json
from collections import Counter

import numpy as np
import pytest

from murmura.audit.published import published
from murmura.audit.run import Options, audit
from murmura.audit.subject import subject
from murmura.audit.synthetic import compared, record_text, synthetic
from murmura.augment import writing
from murmura.data.records import Document, Instruction, Labelled
from murmura.drafting.draft import Drafts
from murmura.experiment.run import run
from murmura.report.page import render
from murmura.runs import read
from murmura.runs.audit import QUANTILES, Audit
from murmura.runs.folder import RunFolder
from murmura.runs.names import AUDIT, AUDIT_SCORES
from murmura.streams import Stream
from tests.experiment import small

OWN = ["take the heart dose daily", "the rash on the skin", "call the clinic"]
OTHERS = ["a letter to nobody", "the kidney dose"]
TEXTS = ["take the heart dose", "the kidney dose daily", "nothing of it"]


def test_nearness_is_the_largest_rouge_with_any_record():
    from rouge_score.rouge_scorer import RougeScorer

    found, near = synthetic("texts", TEXTS, OWN, OTHERS, Stream(0))
    scorer = RougeScorer(["rougeL"])
    each = [[scorer.score(own, text)["rougeL"].fmeasure for own in OWN] for text in TEXTS]
    assert near == pytest.approx([max(row) for row in each])
    assert found.near == pytest.approx(tuple(np.quantile([max(row) for row in each], QUANTILES)))
    assert (found.texts, found.records, found.same, found.counted) == (3, 3, 2, 3)
    others = [max(scorer.score(one, text)["rougeL"].fmeasure for one in OTHERS) for text in TEXTS]
    assert found.others_rouge == pytest.approx(np.mean(others)) and found.rouge <= np.mean(near)
    assert found.distinct == pytest.approx((9 / 11, 8 / 11))
    assert found.records_distinct == pytest.approx((10 / 13, 10 / 13))


def test_a_copied_record_stands_out():
    found, _ = synthetic("texts", [*TEXTS, OWN[1]], OWN, OTHERS, Stream(0))
    assert found.near[-1] == 1.0


def test_a_copied_record_stands_out_in_every_script():
    own, others = ["每日饭后服药", "皮肤上的皮疹"], ["Принимать раз в день", "यह दवा दिन में दो बार लें"]
    for first, second in ((own, others), (others, own)):
        found, near = synthetic("texts", ["nothing of it", first[1]], first, second, Stream(0))
        assert near == [0.0, 1.0] and found.near[-1] == 1.0 and found.others_rouge == 0.0


def test_of_a_record_all_the_wording_counts():
    assert record_text(Instruction("explain", "the letter", "rest")) == "explain the letter\nrest"
    assert record_text(Labelled("rash", "bad")) == record_text(Document("rash")) == "rash"


def test_a_promise_of_epsilon_hides_numbers_of_records():
    lots = [synthetic(kind, TEXTS, OWN, OTHERS, Stream(0))[0] for kind in ("texts", "written")]
    found, (told, kept) = lots[0], published(Audit("0", "now", (), synthetic=tuple(lots))).synthetic
    assert kept.texts is None
    assert (told.texts, told.records, told.same, told.counted) == (3, None, None, None)
    assert told.near == tuple(round(value, 3) for value in found.near) and told.distinct == (0.818, 0.727)


@pytest.fixture
def written(tmp_path, llama_folder, monkeypatch):
    """A run whose sites were written two records each, of which one is a private one word for word."""
    small.write_data(tmp_path)
    heart = small.record("heart", 1)
    records = [Instruction(**heart), Instruction("write a note", "", "rest and drink")]
    monkeypatch.setattr(writing, "draft", lambda runtime, orders, config: [Drafts(records, Counter()) for _ in orders])
    evaluation = {"attacks": False, "sample": 1}
    options = {"strategy": "self-instruct", "records": 2}
    asked = small.experiment(tmp_path, llama_folder, {"rounds": 1}, augment=options, evaluation=evaluation)
    return run(asked).folder


def test_an_audit_compares_what_was_written_at_the_sites(written):
    [found] = audit(written, Options(texts=0)).synthetic
    assert (found.kind, found.texts, found.records, found.near[-1]) == ("written", 2, sum(small.SIZES.values()), 1.0)
    assert read(written).audit.synthetic == (found,)
    _, *lines = [json.loads(line) for line in (written / AUDIT_SCORES).read_text().splitlines()]
    near = [line for line in lines if line.get("target") == "texts, written"]
    assert [line["rouge"] == 1 for line in near] == [True, False]
    assert "rest and drink" not in (written / AUDIT).read_text()
    page = render([read(written)])
    assert "Records that a model wrote at the sites after their own" in page and "distinct-2" in page


def test_the_data_set_of_a_run_is_compared_and_no_more_of_it_than_asked_for(written):
    what, folder = subject(written), RunFolder(written)
    place = written / "outcomes" / "dataset"
    place.mkdir(parents=True)
    (place / "train.jsonl").write_text("".join(json.dumps({"text": f"note {n}"}) + "\n" for n in range(9)))
    found, lines = compared(what, folder, 4, [])
    assert [(one.kind, one.texts) for one in found] == [("written", 2), ("texts", 4)]
    assert len({line["text"] for line in lines if line["target"] == "texts, texts"}) == 4


def test_what_a_site_kept_and_cannot_be_read_is_told(written):
    what, folder, missing = subject(written), RunFolder(written), []
    for path in folder.private_of("heart").glob("round-*"):
        path.unlink()
    found, _ = compared(what, folder, 10, missing)
    assert "What was written at site heart was not compared" in missing[0] and found[0].texts == 2


def test_a_run_that_makes_no_texts_has_none(tmp_path, llama_folder):
    small.write_data(tmp_path)
    folder = run(small.experiment(tmp_path, llama_folder, {"rounds": 1}, evaluation={"attacks": False})).folder
    missing = []
    assert compared(subject(folder), RunFolder(folder), 10, missing) == ([], []) and missing == []
