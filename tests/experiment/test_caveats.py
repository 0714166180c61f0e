"""An ε that a server could undo by making up an adapter is not told without that."""

import pytest

from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run

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
