"""DP-LoRA without noise and at several ε, beside FFA-LoRA at the same ε.

    python studies/dplora.py --data FOLDER --out runs/dplora          # writes runs/dplora/dplora.toml and its records
    murmura compare runs/dplora/dplora.toml --jobs 2 --out runs/dplora

FOLDER holds ``medical_icliniq.jsonl``, questions of patients and answers. Five sites share them evenly; others are held
out, and attacks compare members with them.

Sites train by SGD, as the paper's formulas do, so that the clipping norm counts and noise averages out. (AdamW that
begins afresh in a round of a single step moves every weight by the rate, whatever its gradient.) Every arm has a rate
of its own. ``--more`` writes runs/dplora/more.toml instead, with T-FedAvg, CMFL and other ranks. ``--full`` writes the
comparison for a large machine.
"""

from __future__ import annotations

from typing import Any

import runs
from runs import short_questions

SITES = 5
RANK = 4


SMALL, FULL = runs.scales(
    words=(24, 400),  # at most, of a question and of an answer
    records=(110, 170),  # of a site
    heldout=(130, 150),
    rounds=(10, 50),
    steps=(2, 4),  # of a round
    batch=(16, 16),
    layers=("last 4", "all"),
    rates=([0.3, 1.0, 3.0], [0.1, 0.3, 1.0, 3.0]),
    rates_of_b=([3.0, 10.0, 30.0], [1.0, 3.0, 10.0, 30.0]),  # where A stays as it is, which changes the model less
    epsilons=([8.0, 2.0], [8.0, 4.0, 2.0]),
    seeds=(3, 8),
    sample=(4, 16),  # held-out questions that are answered in full
    max_length=(128, 1024),
    attacked=(130, 150),
)


def main() -> None:
    """Write the comparison and its records."""
    parser = runs.parser(__doc__)
    parser.add_argument(
        "--more", action="store_true", help="T-FedAvg, CMFL and other ranks, in a comparison of their own"
    )
    options = runs.parse(parser)
    scale = FULL if options.full else SMALL
    short_questions(options.data, options.out, scale.words, SITES * scale.records + scale.heldout)
    written = comparison(options.model, options.dtype, scale)
    if options.more:
        runs.save(more(written), options.out / "more.toml", options.out / "more")
    else:
        runs.save(written, options.out / "dplora.toml")


def comparison(model: str, dtype: str, scale: runs.Scale) -> dict[str, Any]:
    """The comparison's file."""
    return {
        "compare": {
            "name": "dplora",
            "seeds": scale.seeds,
            "rates": scale.rates,
            "arms": [
                {"name": "no noise", "method": {"noise_multiplier": 0.0}},
                {"name": "DP-LoRA", "grid": {"method.epsilon": scale.epsilons}},
                {"name": "FFA-LoRA", "aggregation": {"rule": "ffa"}, "grid": {"method.epsilon": scale.epsilons}}
                | {"rates": scale.rates_of_b},
            ],
        },
        **runs.of_questions(model, dtype, scale, SITES, RANK),
        "training": {
            "optimizer": "sgd",
            "schedule": "constant",
            "batch_size": scale.batch,
            "max_steps": scale.steps,
            "clip": 1.0,
            "tokens_per_pass": 512,
        },
        "method": {"name": "dplora", "rounds": scale.rounds},
        "evaluation": {"every": scale.rounds, "sample": scale.sample, "uploads": 0}
        | {"attacks": True, "attack_records": scale.attacked},
    }


def more(written: dict[str, Any]) -> dict[str, Any]:
    """What sends less without noise, and DP-LoRA at ε = 8 with fewer and more weights, on which noise lies: one seed,
    and for all the rate that DP-LoRA takes with ε = 8."""
    arms = [
        {"name": "no noise", "method": {"noise_multiplier": 0.0}},
        {"name": "T-FedAvg", "method": {"name": "tfedavg"}},
        {"name": "CMFL", "method": {"name": "cmfl"}},
        *(
            {"name": f"rank {rank}, ε=8", "lora": {"rank": rank, "alpha": 2.0 * rank}, "method": {"epsilon": 8.0}}
            for rank in (1, RANK, 16)
        ),
    ]
    return written | {"compare": {"name": "more", "seeds": 1, "rates": [1.0], "arms": arms}}


if __name__ == "__main__":
    main()
