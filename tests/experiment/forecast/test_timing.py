"""How long a run will take: the arithmetic, and that what is tried is what the run does."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from murmura.data.records import Choice
from murmura.experiment.forecast import timing as timing_module
from murmura.experiment.forecast.augmentation import ForeseenAugmentation
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.timing import Rates, estimate, timing
from murmura.experiment.forecast.view import figures
from murmura.experiment.questions import Asked
from murmura.federation.forecast import Work
from murmura.training import loop
from tests.experiment.small import experiment, write_data


@pytest.fixture
def planned(tmp_path, llama_folder):
    write_data(tmp_path)

    def build(method=None, **sections):
        return dry_run(experiment(tmp_path, llama_folder, method, **sections))

    return build


def test_rates_times_what_is_planned(planned):
    made = replace(planned({"rounds": 3}, evaluation={"every": 2}), tokens=100, tokens_measuring=50, scored=10)
    found = estimate(made, Rates(step=2.0, token=0.5, record=0.25), 2, keeps_adapters=False)
    # heart has 6 records and skin 3, in batches of 2: 3 + 2 steps a round
    assert found.training == 3 * (3 + 2) * 2.0
    assert found.writing == 3 * 100 * 0.5
    assert found.measuring == 3 * (50 * 0.5 + (4 + 10) * 0.25)  # before training, after round 2, after round 3
    assert found.total == found.training + found.writing + found.measuring
    asked = replace(made, asked=Asked([Choice("which", "", ("a", "b", "c"), 0)] * 2))
    assert estimate(asked, Rates(2.0, 0.5, 0.25), 2, keeps_adapters=False).measuring == found.measuring + 3 * 6 * 0.25
    longer = replace(made, tokens_benchmarks=7)
    assert estimate(longer, Rates(2.0, 0.5, 0.25), 2, keeps_adapters=False).measuring == found.measuring + 3 * 7 * 0.5
    alone = estimate(made, Rates(2.0, 0.5, 0.25), 2, keeps_adapters=True)
    assert alone.measuring == 3 * (50 * 0.5 + (2 * 4 + 10) * 0.25)


def test_texts_that_are_embedded_gradients_and_what_is_written_at_sites_take_time(planned):
    made = planned({"rounds": 2})
    public = ForeseenAugmentation("x", 100, 5, 2, 0, 0, tokens=30, embedded=40, gradients=70)
    plain, found = (
        estimate(one, Rates(2.0, 0.5, 0.25, text=3.0, gradient=7.0), 2, keeps_adapters=False)
        for one in (made, replace(made, augmentation=public))
    )
    assert plain.choosing == 0 and found.choosing == 40 * 3.0 + 70 * 7.0
    assert found.writing == plain.writing + 2 * 2 * 30 * 0.5  # two times at two sites
    assert found.total == pytest.approx(plain.total + found.choosing + 60.0)


def test_what_else_is_done_with_texts_is_tried_with_a_few(planned, monkeypatch):
    now, tried = 0.0, []

    def attempt(runtime, records, count):
        nonlocal now
        now += 100.0 * (not tried) + 3.0 * count  # the first one loads a model
        tried.append(count)

    monkeypatch.setattr(timing_module.time, "perf_counter", lambda: now)
    some = [Work("to embed", 70, attempt, 8, at_most=True), Work("to ask for", 5, None)]
    made = replace(planned({"rounds": 1}), work=some)
    found = timing(made)
    assert tried == [1, 8] and found.work == {"to embed": 70 * 3.0} and found.total == 210.0
    console = Console(file=io.StringIO(), width=200)
    console.print(figures(made, found))
    assert "at most 70 to embed, 5 to ask for" in console.file.getvalue()
    assert ": at most 3 min 30 s for texts to embed; to ask for: not tried" in console.file.getvalue()


def test_steps_tokens_and_records_are_tried(planned, monkeypatch):
    """By a clock that counts a second for each optimiser step, token and record."""
    now, steps = 0.0, 0
    plain, runtime = loop._Update.__call__, timing_module.ModelRuntime

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
    monkeypatch.setattr(timing_module.time, "perf_counter", lambda: now)
    made = planned({"rounds": 2})
    found = timing(made)
    assert steps == 3  # one to warm up, and two
    assert found.training == pytest.approx(2 * (3 + 2))
    assert found.writing == 0
    assert found.measuring == pytest.approx(3 * (made.tokens_measuring + 4 + made.scored))
