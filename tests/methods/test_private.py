"""What methods that follow a privacy plan have in common: whole runs on a tiny model."""

import pytest

from murmura.errors import PrivacyError
from murmura.federation.server.checkpoint import latest
from tests.federation.world import make_world
from tests.methods.dpfedavg.helpers import run
from tests.methods.dpfedavg.test_method import ADAPTIVE, dpfedavg
from tests.methods.dpftrl.test_method import dpftrl
from tests.methods.dplora.test_method import CLIPPED, dplora

CHANGED = {
    dpfedavg: ({"rounds": 4}, {"noise_multiplier": 0.5}, {"clip_norm": 0.1}, ADAPTIVE),
    dpftrl: ({"rounds": 4}, {"restart_every": 2}, {"honaker": False}),
    dplora: ({"rounds": 4},),
}


@pytest.mark.parametrize(("made", "changed"), [(made, one) for made, every in CHANGED.items() for one in every])
def test_a_run_does_not_go_on_under_another_plan(tokenizer, tmp_path, made, changed):
    run(tokenizer, tmp_path, made(), training=CLIPPED)
    again = make_world(tokenizer, method := made(**changed), tmp_path, training=CLIPPED)
    again.server.restore(latest(tmp_path / "checkpoint"))
    with pytest.raises(PrivacyError, match="begun under another privacy plan"):
        method.lead(again.server, again.fleet)


@pytest.mark.parametrize(("made", "field"), [(dpfedavg, "update"), (dpftrl, "update"), (dplora, "adapter")])
def test_without_noise_no_epsilon_is_told(tokenizer, tmp_path, made, field):
    world = run(tokenizer, tmp_path, made(noise_multiplier=0.0), training=CLIPPED)
    assert not any(row["privacy"] for row in world.server.rows)
    assert [(row["field"], row["protection"]) for row in world.ledger.table()] == [(field, None)]
