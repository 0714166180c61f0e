"""Finished runs of tiny models, to be audited, and scores as attacks give them."""

import numpy as np
import pytest

from murmura.audit.attack_scores import AttackScores
from murmura.experiment.run import run
from tests.experiment import small

SIZES = {"heart": 16, "skin": 12}


def one_model(members, others):
    """The scores of an attack on one model."""
    return AttackScores(np.asarray(members, float), np.asarray([others], float), np.zeros(len(members), dtype=int))


@pytest.fixture(scope="package")
def finished(tmp_path_factory, llama_folder):
    """A run that knows its 28 records by heart; tests must leave it as it is."""
    folder = tmp_path_factory.mktemp("audited")
    small.write_data(folder, SIZES)
    small.write_lines(folder / "heldout.jsonl", [small.record("kidney", number) for number in range(24)])
    experiment = small.experiment(
        folder,
        llama_folder,
        {"rounds": 1},
        model={"trainable": "all"},
        training={"lr": 1e-2, "epochs": 6, "batch_size": 7},
        evaluation={"attacks": False, "sample": 1},
    )
    return run(experiment).folder
