"""What a dry run counts of the states that are kept."""

import pytest

from murmura.experiment.forecast.memory import peak, states
from murmura.experiment.model_spec import model_spec
from tests.experiment import small
from tests.experiment.test_simulation import METHODS

RECORDS = 5
TWICE = METHODS["lpfl"] | {"patterns": ["{text} it was {blank}", "{blank}: {text}"]}


@pytest.mark.parametrize(("method", "patterns"), [(METHODS["fedavg"], 1), (TWICE, 2)])
def test_hidden_states_are_counted_as_often_as_records_are_read(tmp_path, llama_folder, method, patterns):
    def counted(most, layers="last 1"):
        experiment = small.experiment(
            tmp_path,
            llama_folder,
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
