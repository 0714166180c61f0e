"""An ε that a server could undo by making up an adapter is not told without that."""

import pytest

from murmura import report
from murmura.errors import Interrupted
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.server.rounds import Server
from murmura.federation.server.sending import Sending
from murmura.runs import read_all

pytestmark = pytest.mark.usefixtures("no_page")

PRIVATE = {"name": "dplora", "noise_multiplier": 4.0, "accountant": "rdp", "rounds": 1}
ONE_STEP = {"max_steps": 1, "batch_size": 2}


@pytest.mark.parametrize(("asked", "told"), [(None, False), (1, False), (64, True)])
def test_where_records_share_passes_run_and_dry_run_say_so(make, asked, told):
    passes = {} if asked is None else {"tokens_per_pass": asked}
    experiment = make(method=PRIVATE, training=ONE_STEP | passes, evaluation={"attacks": False})
    assert any("share passes" in note for note in dry_run(experiment).notes) == told
    [*_, row] = run(experiment).rows
    assert ("share passes" in str(row["privacy"])) == told


def test_whole_sites_are_clipped_as_a_whole(make):
    experiment = make(
        method={"name": "dpfedavg", "rounds": 1, "noise_multiplier": 4.0}, training={"tokens_per_pass": 64}
    )
    assert not any("share passes" in note for note in dry_run(experiment).notes)


@pytest.mark.parametrize("begun", ["adapter", "model"])
def test_what_a_run_began_with_is_in_no_guarantee_and_that_stands_beside_it(make, tmp_path, begun):
    """The adapter or the model of a run without any ε, on the same records."""
    before = {"folder": str(tmp_path / "before")}
    quick = {"training": ONE_STEP, "evaluation": {"attacks": False}}
    whole = {"trainable": "all"} if begun == "model" else {}
    left = run(make({"rounds": 1}, run=before, model=whole, **quick)).folder / begun
    start = {"model": {"name" if begun == "model" else "adapter": str(left)}}
    private = make(method=PRIVATE, **start, **quick)
    said = "does not cover what that was trained on"
    assert any(said in note for note in dry_run(private).notes)
    folder = run(private).folder
    told = report.markdown(report.table(read_all([folder])))
    assert f"whatever the attack. The run uses a{'n adapter' if begun == 'adapter' else ' model'}" in told
    assert said in told and said in (folder / "adapter" / "README.md").read_text(encoding="utf-8")
    assert not any(said in note for note in dry_run(make(method=PRIVATE, **quick)).notes)


@pytest.mark.parametrize("before", [[64], [1, 64]], ids=["in a saved round", "in a lost one alone"])
def test_what_was_to_be_said_of_earlier_rounds_is_said_after_it_has_ended(make, monkeypatch, before):
    """An ε counts all rounds, those too in which records shared passes, and those that were sent and not saved."""
    options = {"method": PRIVATE | {"rounds": 2}, "evaluation": {"attacks": False}}
    sending = Sending.fields

    def stopped(self, *arguments, **more):
        if self._fleet.round == 2:
            raise KeyboardInterrupt
        return sending(self, *arguments, **more)

    for part, asked in enumerate(before):
        with monkeypatch.context() as patch, pytest.raises(Interrupted):
            patch.setattr(Sending, "fields", stopped)
            run(make(training=ONE_STEP | {"tokens_per_pass": asked}, **options), resume=part > 0)
    [*_, row] = run(make(training=ONE_STEP, **options), resume=True).rows
    assert row["round"] == 2 and "tokens_per_pass = 64" in row["privacy"]["caveat"]


def test_that_sites_measured_what_leaks_is_said_though_later_rounds_do_not(make, monkeypatch):
    """No ε covers what they told, and the last round has no figure that could be marked."""
    options = {"method": PRIVATE | {"rounds": 2}, "training": ONE_STEP}
    asked, later = (make(**options, evaluation={"attacks": attacks}) for attacks in (True, False))
    saving = Server._close

    def stopped(self, *arguments, **more):
        saving(self, *arguments, **more)
        if self._fleet.round == 1:
            raise KeyboardInterrupt

    said = "measure on their records (evaluation.attacks), and this does not cover"
    assert any(said in note for note in dry_run(asked).notes) and not any(said in note for note in dry_run(later).notes)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(Server, "_close", stopped)
        run(asked)
    [*_, row] = run(later, resume=True).rows
    assert "attack_auc" not in row and said in row["privacy"]["caveat"]


@pytest.mark.parametrize(("sampler", "told"), [("full", True), ("poisson", False)])
def test_figures_of_single_uploads_without_noise_are_in_no_guarantee(make, sampler, told):
    """Those of canaries, too, for which sites are asked to measure nothing."""
    drawn = {"kind": sampler} | ({"sites_per_round": 1} if sampler == "poisson" else {})
    method = {"name": "dpfedavg", "rounds": 1, "noise_multiplier": 4.0, "sampler": drawn}
    [*_, row] = run(make(method=method, training=ONE_STEP, audit={"canaries": 4}, evaluation={"attacks": False})).rows
    assert ("upload_exposure" in row) == told
    assert ("Single uploads are attacked as they arrive" in str(row["privacy"])) == told
