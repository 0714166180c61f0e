"""Options of DP-LoRA: presets fill what is not given, and what makes no sense is refused with what to change."""

import pytest

from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.methods import parse_config
from murmura.methods.dplora.config import DPLoRAConfig
from murmura.training.config import LocalTraining

FILLED = ("clipping", "groups", "sampler", "noise_on", "epsilon", "noise_multiplier")


def options(**given):
    config = DPLoRAConfig.parse(given, "my.toml")
    return tuple(getattr(config, name) for name in FILLED)


def test_presets():
    assert options() == options(preset="sound") == ("per_example", "flat", "poisson", "gradient", 8, None)
    assert options(preset="paper") == ("batch", "factors", "fixed", "gradient", None, 2)


def test_the_papers_preset_reaches_local_training():
    """One step of SGD a round and C = 10 are half of what makes the method the paper's."""

    def training(method, **given):
        table = {"data": {"train": "x.jsonl", "heldout_records": 2}, "method": {"name": "dplora", **method}}
        return Experiment.of(table | ({"training": given} if given else {})).training

    paper = training({"preset": "paper"})
    assert (paper.optimizer, paper.lr, paper.schedule) == ("sgd", 5e-4, "constant")
    assert (paper.batch_size, paper.max_steps, paper.clip) == (8, 1, 10)
    mixed = training({"preset": "paper"}, clip=1.0, epochs=3)
    assert (mixed.clip, mixed.epochs, mixed.max_steps, mixed.optimizer) == (1, 3, None, "sgd")
    assert training({"preset": "paper"}, optimizer="adamw").optimizer == "adamw"
    assert training({}) == training({"name": "vanilla-fl"}) == LocalTraining()


def test_a_preset_leaves_alone_what_is_given():
    assert options(noise_multiplier=0.5) == ("per_example", "flat", "poisson", "gradient", None, 0.5)
    mixed = options(preset="paper", clipping="per_example", epsilon=2)
    assert mixed == ("per_example", "factors", "fixed", "gradient", 2, None)
    assert options(preset="paper", noise_on="weights")[3] == "weights"
    assert options(epsilon=None, clipping=None) == options()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": "paper", "epsilon": 2}, "set clipping = 'per_example', or give noise_multiplier"),
        ({"clipping": "batch", "epsilon": 2}, "set clipping = 'per_example', or give noise_multiplier"),
        ({"noise_on": "weights"}, "with noise_on = 'weights', give noise_multiplier"),
        ({"preset": "literal"}, "'preset' = 'literal'"),
        ({"preset": ["paper"]}, "'preset' = "),
        ({"relevance": 0.5}, "unknown key 'relevance'"),
        ({"name": "cmfl", "epsilon": 2}, "unknown key 'epsilon'"),
    ],
)
def test_what_makes_no_sense_is_refused(given, message):
    with pytest.raises(ConfigError) as error:
        parse_config({"name": "dplora"} | given, "my.toml")
    assert message in str(error.value)
