"""Runs that are killed while sites vote or while texts are written, and runs in worker processes, end as others do."""

import json
import os
import signal

import pytest

from murmura.errors import ConfigError
from murmura.experiment.run import run
from murmura.methods.pretext import popri
from murmura.methods.pretext.evolution import Evolution
from murmura.synthesis.answers import Answers
from murmura.training.adapter import load_peft
from tests.experiment.small import method_with
from tests.methods.pretext.world import POPRI, left

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("no_page")]


def ended(folder):
    """All that a run without noise has left."""
    adapter, _ = load_peft(folder / "adapter")
    texts = (folder / "outcomes" / "dataset" / "train.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figures = [
        {name: row.get(name) for name in ("heldout_loss", "population_distance", "survivors", "bytes_up")}
        for row in rows
    ]
    return left(folder, "evolution.json"), texts, figures, {name: tensor.tolist() for name, tensor in adapter.items()}


def dying_at(patch, owner, name, call):
    """A process that begins or resumes the run is killed when a function was called so often."""

    def arm():
        real, calls = getattr(owner, name), []

        def dying(*args, **options):
            calls.append(1)
            found = real(*args, **options)
            if len(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        patch.setattr(owner, name, dying)

    return arm


def killed(asked, arm, *, resume):
    process = os.fork()
    if not process:
        try:
            arm()
            run(asked, resume=resume)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL


@pytest.fixture
def options(llama_folder):
    return {"noise_multiplier": 0, "rounds": 3, "samples": 20, "sample_tokens": 16, "generator": str(llama_folder)}


def test_a_run_that_was_killed_in_a_vote_and_in_an_expansion_ends_as_one_that_was_not(
    make, options, tmp_path, monkeypatch
):
    few = {"decode_rows": 1}  # so that texts are written a few at a time
    whole = run(make(options, run={"folder": str(tmp_path / "whole"), **few})).folder
    asked = make(options, run={"folder": str(tmp_path / "killed"), **few})
    killed(asked, dying_at(monkeypatch, Evolution, "votes", 2), resume=False)
    killed(asked, dying_at(monkeypatch, Answers, "add", 2), resume=True)
    answered = (asked.run.path / "expanded.jsonl").read_bytes()
    assert run(asked, resume=True).folder == asked.run.path
    assert ended(asked.run.path) == ended(whole)
    both = (asked.run.path / "expanded.jsonl").read_bytes()
    assert both.startswith(answered) and sorted(both.splitlines()) == sorted(
        (whole / "expanded.jsonl").read_bytes().splitlines()
    )


def test_a_generator_that_is_tuned_by_votes_comes_to_the_same_when_the_run_is_killed(
    make, options, tmp_path, monkeypatch
):
    options |= POPRI | {"rounds": 2}
    whole = run(make(options, run={"folder": str(tmp_path / "whole")})).folder
    asked = make(options, run={"folder": str(tmp_path / "killed")})
    killed(asked, dying_at(monkeypatch, popri, "tuned", 2), resume=False)
    assert run(asked, resume=True).folder == asked.run.path
    assert ended(asked.run.path) == ended(whole)
    assert (asked.run.path / "expanded.jsonl").read_bytes() == (whole / "expanded.jsonl").read_bytes()


@pytest.mark.parametrize("votes", ["nearest", "cosine"])
def test_a_secure_sum_gives_the_same_votes(make, options, tmp_path, votes):
    options |= {"samples": 0, "votes": votes, "distance": False, "rounds": 2}
    found = [
        run(make(options, run={"folder": str(tmp_path / str(secure))}, aggregation={"secure": secure})).folder
        for secure in (False, True)
    ]
    clear, masked = (left(folder, "evolution.json") for folder in found)
    if votes == "nearest":
        assert clear == masked
    else:  # in fixed point
        for one, other in zip(clear, masked, strict=True):
            assert one["candidates"] == other["candidates"] and one["votes"] == pytest.approx(other["votes"], abs=1e-4)
    rows = json.loads((found[1] / "disclosure.json").read_text())
    [told] = [row for row in rows if row["verb"] == "vote"]
    assert told["protection"]["type"] == "secure sum"


def test_under_a_secure_sum_sites_add_the_noise_in_shares(make, options, tmp_path):
    options |= {"samples": 0, "noise_multiplier": 4.0, "noise": "skellam", "rounds": 2}
    result = run(make(options, aggregation={"secure": True}))
    assert result.rows[-1]["epsilon"] and not result.rows[-1]["privacy"]["refused"]
    rows = json.loads((result.folder / "disclosure.json").read_text())
    [told] = [row for row in rows if row["verb"] == "vote"]
    assert (
        told["protection"]["added_by"] == "site"
        and "secure sum" in told["note"]
        and "without noise" not in told["note"]
    )
    card = (result.folder / "outcomes" / "dataset" / "README.md").read_text(encoding="utf-8")
    assert "everybody, the server too, as long as they know no site's share of the noise" in card
    assert "A server that lies gets no more sums: each site votes once for each round" in card
    assert "and once more each time that its owner has it vote again" in card
    votes = [vote for one in left(result.folder, "evolution.json") for vote in one["votes"]]
    assert len(set(votes)) > 12 and all(vote == round(vote) for vote in votes)
    with pytest.raises(ConfigError, match=r"each site adds a share .*method.noise = 'skellam'"):
        method_with(make(options | {"noise": "gaussian"}).method.model_dump(), secure=True)


def test_worker_processes_give_the_same(make, options, tmp_path, forked_workers):
    folders = [
        run(make(options, run={"folder": str(tmp_path / engine), "engine": engine})).folder
        for engine in ("local", "processes")
    ]
    assert ended(folders[0]) == ended(folders[1])
