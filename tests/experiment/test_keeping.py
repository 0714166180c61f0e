"""``audit.keep``: what a run keeps for an audit, and where it is refused."""

import pytest

from murmura.errors import ConfigError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.server.transcript import kept_rounds
from murmura.runs.folder import RunFolder
from murmura.training.adapter import is_same, load_peft

pytestmark = pytest.mark.usefixtures("no_page")

QUIET = {"evaluation": {"attacks": False, "sample": 1}, "training": {"max_steps": 1}}


def test_every_round_is_kept_and_changes_nothing_else(make, tmp_path):
    plain = run(make(run={"folder": str(tmp_path / "plain")}, **QUIET))
    told = run(make(audit={"keep": True}, **QUIET))
    assert [row["heldout_loss"] for row in told.rows] == pytest.approx([row["heldout_loss"] for row in plain.rows])
    one, two = kept_rounds(RunFolder(told.folder).transcript)
    assert one.sites == two.sites == ["heart", "skin"]
    assert is_same(two.model(), load_peft(told.folder / "adapter")[0])
    assert not is_same(one.upload("heart"), one.upload("skin"))
    assert not RunFolder(plain.folder).transcript.exists()


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ({"name": "local"}, "no server sees what could be kept"),
        ({"name": "dpfedavg", "noise_multiplier": 1.0, "delta": 1e-3}, "single uploads have no noise"),
    ],
)
def test_it_is_refused_where_it_would_tell_nothing_or_too_much(make, method, reason):
    for start in (run, dry_run):
        experiment = make({"rounds": 1} | method, audit={"keep": True}, evaluation={"sample": 1})
        with pytest.raises(ConfigError, match=reason):
            start(experiment)
    assert not experiment.run.path.exists()


def test_a_dry_run_tells_and_counts_the_bytes(make):
    plain, told = dry_run(make(**QUIET)), dry_run(make(audit={"keep": True}, **QUIET))
    assert any("private/@run/rounds" in note for note in told.notes)
    assert not any("private/@run/rounds" in note for note in plain.notes)
    adapter = told.disk - plain.disk
    assert adapter > 0 and adapter % (2 * 3) == 0  # two rounds of a model and two uploads
