"""JSON that is nested thousands deep is damaged, and told as any damage is; Python gives it up in a way of its own."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from murmura.audit import synthetic
from murmura.compare import jobs, kept
from murmura.errors import CheckpointError, DataError, ModelError, PrivacyError
from murmura.experiment.skeleton import config_and_tokenizer
from murmura.federation.server import checkpoint
from murmura.judge.judging import Transcript
from murmura.privacy import run_ledgers
from murmura.privacy.journal import Journal
from murmura.privacy.plan import PrivacyPlan
from murmura.report.sections import drafts
from murmura.retrieval.pool import Pool
from murmura.synthesis.answers import Answers
from tests.retrieval.pools import make_pool

DEEP = 100_000
NESTED = "[" * DEEP + "]" * DEEP


def write(path, text=NESTED):
    path.write_text(text + "\n")
    return path


def manifest(folder):
    write(make_pool(folder / "pool").folder / "pool.json")
    Pool.open(folder / "pool")


def record_of_a_pool(folder):
    pool = make_pool(folder / "pool")
    size = write(pool.folder / "records.jsonl").stat().st_size
    replace(pool, _starts=np.array([0, size])).records([0])


def journal(folder):
    digest = hashlib.sha256(f" {NESTED}".encode()).hexdigest()
    Journal(write(folder / "privacy.journal", f"{digest} {NESTED}"))


def model(folder):
    config_and_tokenizer(str(write(folder / "config.json").parent))


def saved_round(folder):
    checkpoint.save(folder, checkpoint.Checkpoint(1, {}, {}))
    [place] = folder.iterdir()
    write(place / "run.json")
    files = [path for path in place.iterdir() if path.name != "SHA256SUMS"]
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]
    write(place / "SHA256SUMS", "\n".join(sums))
    checkpoint.latest(folder)


READERS = {
    "a pool's manifest": (manifest, DataError, "the pool is damaged"),
    "a pool's record": (record_of_a_pool, DataError, "record 0 is not the one"),
    "a judge's verdict": (
        lambda folder: Transcript(write(folder / "said.jsonl"), "here"),
        CheckpointError,
        "not a verdict",
    ),
    "a plan": (lambda folder: PrivacyPlan.from_json(NESTED), PrivacyError, "not a privacy plan"),
    "an anchor": (
        lambda folder: run_ledgers._anchor(write(folder / "anchor.jsonl", f"{{}}\n{NESTED}")),
        PrivacyError,
        "is damaged",
    ),
    "a journal": (journal, PrivacyError, "damaged or was edited"),
    "answers": (lambda folder: Answers(write(folder / "expanded.jsonl"), {}, 1), CheckpointError, "line is damaged"),
    "drafts": (lambda folder: drafts._read(write(folder / "drafts.jsonl")), CheckpointError, "not valid JSON"),
    "texts of a run": (lambda folder: synthetic._left(write(folder / "a.jsonl")), CheckpointError, "holds no texts"),
    "a round that was saved": (saved_round, CheckpointError, "checkpoint of round 1 is damaged"),
    "a model": (model, ModelError, "are unavailable"),
}


@pytest.mark.parametrize("reader", READERS)
def test_what_is_nested_without_end_is_damaged(tmp_path, reader):
    read, error, what = READERS[reader]
    with pytest.raises(error, match=what):
        read(tmp_path)


def test_a_folder_with_such_figures_is_no_comparison(tmp_path):
    write(tmp_path / jobs.FIGURES)
    assert not kept._is_comparison(tmp_path)
