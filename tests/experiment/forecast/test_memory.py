"""What a dry run counts of the states that are kept."""

import pytest

from murmura.experiment.forecast.memory import peak, states
from murmura.experiment.model_spec import model_spec
from tests.experiment import small
from tests.experiment.small import METHODS

RECORDS = 5
TWICE = METHODS["lpfl"] | {"patterns": ["{text} it was {blank}", "{blank}: {text}"]}


def test_dora_keeps_the_outputs_of_adapted_layers(tmp_path, llama_folder):
    def counted(**lora):
        less = {"training": {"tokens_per_pass": 128}, "run": {"decode_rows": 1}}  # else writing takes more
        experiment = small.experiment(tmp_path, llama_folder, lora=lora, **less)
        seen = model_spec(experiment, fetch=False)
        return peak(experiment, seen, 1).passing, seen

    (lora, seen), (dora, other) = counted(dora=False), counted(dora=True)
    outputs = sum(len(tensor) for name, tensor in seen.state.items() if ".lora_B." in name)
    assert dora - lora == pytest.approx(1.4 * 128 * outputs * 4, abs=1)  # of float32; 1.4 is the allocator's
    assert other.trainable - seen.trainable == outputs


@pytest.mark.parametrize(("method", "patterns"), [(METHODS["fedavg"], 1), (TWICE, 2)])
def test_hidden_states_are_counted_as_often_as_records_are_read(tmp_path, deep_folder, method, patterns):
    def counted(most, layers="last 1"):
        experiment = small.experiment(
            tmp_path,
            deep_folder,
            method,
            lora={"layers": layers},
            run={"cache_bytes": most},
            evaluation={"sample": 16, "uploads": 2},
        )
        seen = model_spec(experiment, fetch=False)
        return states(experiment, seen, RECORDS), peak(experiment, seen, 2, (), RECORDS).states, seen.config

    whole, held, config = counted(2**30)
    assert whole == held == patterns * RECORDS * 128 * config.hidden_size * 4
    assert counted(1000)[:2] == (whole, 1000)
    assert counted(0)[:2] == (0, 0)
    assert counted(2**30, "all")[:2] == (0, 0)
