"""How long a run will take: how much of what is tried is done, and that what is tried is what the run does."""

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console

from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.timing import timing
from murmura.experiment.forecast.view import figures
from murmura.federation.forecast import Work, few
from murmura.model_runtime import ModelRuntime
from murmura.report.terminal import facts
from murmura.training import loop
from tests.experiment.small import ATTACKED, experiment, write_data
from tests.measure.harness.small import write_tasks


@pytest.fixture
def planned(tmp_path, llama_folder):
    write_data(tmp_path)

    def build(method=None, **sections):
        sections["evaluation"] = ATTACKED | sections.get("evaluation", {})
        return dry_run(experiment(tmp_path, llama_folder, method, **sections))

    return build


def test_what_is_done_is_counted_as_often_as_it_is_done(planned):
    """heart has 6 records and skin 3, in batches of 2: 3 + 2 steps a round. Measured is before training, after round 2
    and after round 3."""
    options = {"every": 2, "attack_records": 4, "uploads": 1}
    found = {one.what: (one.count, one.times) for one in planned({"rounds": 3}, evaluation=options).work}
    assert found["optimiser steps"] == (3 * (3 + 2), 1) and found["tokens to write"] == (0, 3)
    assert found["held-out records to read"] == (4, 3)
    assert found["records to attack"] == (2 * 4 + 2 * 4, 3)  # under the model, and under an upload
    assert found["tokens to measure"][1] == 3
    alone = {one.what: one for one in planned({"rounds": 3, "name": "local"}, evaluation=options).work}
    assert alone["held-out records to read"].total == 3 * 2 * 4


def test_what_is_measured_at_the_end_alone_is_counted_once(planned):
    plain, found = (
        {one.what: one for one in planned({"rounds": 3}, evaluation={"sample": 2, "memorisation": also}).work}
        for also in (False, True)
    )
    assert found["tokens to measure"] == plain["tokens to measure"]
    apart = found["tokens to measure memorisation"]
    assert apart.total == apart.count > 0 == plain["tokens to measure memorisation"].total


def test_what_an_audit_measures_is_counted(planned):
    canaries = {"canaries": 3, "candidates": 4}
    found = {one.what: one for one in planned({"rounds": 2}, audit=canaries).work}
    plain = {one.what: one for one in planned({"rounds": 2}).work}
    assert found["candidates of canaries to read"].count == 2 * 12  # under the model, and under uploads
    unheard = planned({"rounds": 2}, audit=canaries, evaluation={"uploads": 0}).work
    assert [one.count for one in unheard if one.what == "candidates of canaries to read"] == [12]
    assert found["records to attack"].count == plain["records to attack"].count  # which canaries are not


def test_questions_of_tasks_are_told_and_not_tried(planned, tmp_path):
    pytest.importorskip("lm_eval")
    asked = {"tasks": write_tasks(tmp_path), "limit": 2, "only_last": True}
    made = planned({"rounds": 3}, evaluation={"benchmarks": asked})
    [found] = [one for one in made.work if one.what == "questions of tasks"]
    assert (found.count, found.times, found.attempt) == (4, 1, None)
    assert not [one for one in planned({"rounds": 3}).work if one.what == "questions of tasks"]


def test_what_else_is_done_with_texts_is_tried_with_a_few(planned, monkeypatch):
    now, tried = 0.0, []

    def attempt(runtime, records, count):
        nonlocal now
        now += 100.0 * (not tried) + 3.0 * count  # the first one loads a model
        tried.append(count)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    some = [
        Work("texts to embed", "embedding", 70, few(attempt, 70, 8), at_most=True),
        Work("texts to ask for", "writing", 5, None),
    ]
    made = replace(planned({"rounds": 1}), work=some)
    found = timing(made)
    assert tried == [1, 8] and found.of("embedding") == found.total == 70 * 3.0
    console = Console(file=io.StringIO(), width=200)
    console.print(facts(figures(made, found)))
    lines = {" ".join(line.split()) for line in console.file.getvalue().splitlines()}
    assert {"texts to embed at most 70", "texts to ask for 5"} <= lines
    assert "3 min 30 s at most embedding; texts to ask for: not tried" in console.file.getvalue()


def test_steps_tokens_and_records_are_tried(planned, monkeypatch):
    """By a clock that counts a second for each optimiser step, token and record."""
    now, steps = 0.0, 0
    plain, runtime = loop._Update.__call__, ModelRuntime

    def update(self):
        nonlocal now, steps
        now, steps = now + self.weight.shape[0], steps + 1  # a second for each site's step
        plain(self)

    def write(self, adapters, prompts, limits, **options):
        nonlocal now
        found = original_write(self, adapters, prompts, limits, **options)
        now += sum(max(len(text.ids), 1) for text in found)
        return found

    def score(self, adapters, items, **options):
        nonlocal now
        now += len(items)
        return original_score(self, adapters, items, **options)

    original_write, original_score = runtime.write, runtime.token_scores
    monkeypatch.setattr(loop._Update, "__call__", update)
    monkeypatch.setattr(runtime, "write", write)
    monkeypatch.setattr(runtime, "token_scores", score)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    made = planned({"rounds": 2})
    found = timing(made)
    assert steps == 3  # one to warm up, and two
    assert found.of("training") == pytest.approx(2 * (3 + 2))
    assert found.of("writing") == 0
    measured = sum(made.count(what) for what in ("tokens to measure", "held-out records to read", "records to attack"))
    assert found.of("measuring") == pytest.approx(3 * measured)
