"""Does annotating help? LP-FL beside training on the labels alone, both with as many passes over each label.

    python studies/lpfl.py --data FOLDER --out runs/lpfl             # writes a comparison for each number of sites
    murmura compare runs/lpfl/movie-5.toml --jobs 2 --out runs/lpfl/movie-5      # and so on
    python studies/lpfl.py --data FOLDER --out runs/lpfl --table     # accuracy by the number of sites

FOLDER holds ``sentiment_movie_rt.jsonl`` (sentences of film reviews, good or bad) and ``finance_phrasebank.jsonl``
(three sentiments). The model is causal, so the blank is last in each pattern. Sites share the texts evenly; 1 site is
LP-CT. With a seed the same texts keep their labels whatever the number of sites, and the same are held out.

Sites train for so many epochs, as in the paper, so that LP-FL reads each true label as often as labels alone do, and
the texts that it has annotated besides: it takes more steps. With a fixed number of steps, which this study had before,
true labels were read a third as often beside annotated ones as alone. ``labels alone, as many steps`` trains for so
many more epochs that it takes about as many steps as LP-FL. A gain of LP-FL is one if it beats both.

``LP-FL, surest first`` annotates those texts first of whose label it
is surest. A linear model stands below the arms of each comparison. ``--more`` adds LP-FL with fewer labels, and arms
that train all parameters (FP-FL, and with one site FP-CT).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean, stdev
from typing import Any

import runs
from murmura.units import DASH, signed
from runs import pipes, read_rows, run_records, write_rows

TASKS: dict[str, dict[str, Any]] = {
    "movie": {
        "file": "sentiment_movie_rt.jsonl",
        "patterns": ["{text} All in all, it was {blank}", "{text} In summary, the movie is {blank}"],
        "verbaliser": {
            "0": ["boring", "disappointing", "terrible", "dull", "awful"],
            "1": ["good", "great", "excellent", "funny", "amazing"],
        },
    },
    "finance": {
        "file": "finance_phrasebank.jsonl",
        "patterns": ["{text} For investors this news is {blank}", "{text} In short, the news is {blank}"],
        "verbaliser": {
            "negative": ["bad", "negative", "terrible"],
            "neutral": ["neutral", "normal", "usual"],
            "positive": ["good", "positive", "great"],
        },
    },
}


ARMS = ("labels alone", "labels alone, as many steps", "LP-FL", "LP-FL, surest first")
SMALL, FULL = runs.scales(
    texts=(500, 9000),
    words=({"movie": 12, "finance": 18}, {"movie": 100, "finance": 100}),
    heldout=(900, 1600),
    validation=(100, 500),  # of the held-out texts; no accuracy in the tables is measured on these
    share=(0.1, 0.05),  # of the texts that keep their label
    fewer=(0.02, 0.01),
    sites=((1, 5), (1, 2, 5, 10)),
    rounds=(4, 5),
    epochs=(2, 5),
    longer=(10, 50),  # epochs of labels alone that make about as many steps as LP-FL's
    batch=(4, 8),
    rates=([1e-3, 3e-3], [3e-4, 1e-3, 3e-3]),
    rates_of_all=([2e-5, 5e-5], [1e-5, 2e-5, 5e-5]),  # where all parameters are trained
    layers=("last 8", "all"),
    max_length=(56, 128),
    sample_pattern=(True, False),
    seeds=(10, 10),
)


def main() -> None:
    """Write the comparisons and their files, or read what they have left."""
    parser = runs.parser(__doc__)
    parser.add_argument("--more", action="store_true", help="fewer labels, and all parameters, too")
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=["movie"])
    parser.add_argument("--table", action="store_true", help="write nothing, but say how accuracy goes with the sites")
    options = runs.parse(parser, reading="table")
    scale = FULL if options.full else SMALL
    for name in options.tasks:
        if options.table:
            print(by_sites(options.out, name, scale.sites))
            continue
        prepare(name, options.data, options.out, scale)
        for sites in scale.sites:
            written = comparison(name, sites, options.model, options.dtype, scale)
            if options.more:
                written["compare"]["arms"] += more(scale)
            runs.save(written, options.out / f"{name}-{sites}.toml", options.out / f"{name}-{sites}")


def prepare(name: str, data: Path, out: Path, scale: runs.Scale) -> None:
    """Write the texts as the study uses them, those for the sites and those that are held out; no text twice."""
    out.mkdir(parents=True, exist_ok=True)
    rows = {row["text"].strip(): str(row["label"]) for row in read_rows(data / TASKS[name]["file"])}
    kept = [{"text": text, "label": label} for text, label in rows.items() if len(text.split()) <= scale.words[name]]
    Random(0).shuffle(kept)
    wanted = scale.texts + scale.heldout
    used = min(len(kept), wanted)
    print(f"{name}: {len(kept)} of {len(rows)} texts have at most {scale.words[name]} words, {used} are used")
    write_rows(out / f"{name}.jsonl", kept[:wanted])


def comparison(name: str, sites: int, model: str, dtype: str, scale: runs.Scale) -> dict[str, Any]:
    """The file of one comparison."""
    task = TASKS[name]
    method = {"name": "lpfl", "rounds": scale.rounds, "labelled_share": scale.share, "patterns": task["patterns"]}
    method |= {"verbaliser": task["verbaliser"], "sample_pattern": scale.sample_pattern}
    alone, longer, plain, surest = ARMS
    return {
        "compare": {
            "name": f"{name}-{sites}",
            "seeds": scale.seeds,
            "rates": scale.rates,
            "arms": [
                {"name": alone, "method": {"annotate": False}},
                {"name": longer, "method": {"annotate": False}, "training": {"epochs": scale.longer}},
                {"name": plain},
                {"name": surest, "method": {"select": "confidence"}},
            ],
        },
        "run": {"slots": sites},
        "model": {"name": model, "dtype": dtype},
        "lora": {"rank": 8, "alpha": 16.0, "targets": list(runs.ATTENTION), "layers": scale.layers},
        "data": {
            "train": f"{name}.jsonl",
            "heldout_records": scale.heldout,
            "max_length": scale.max_length,
            "sites": {"by": "partition", "count": sites, "scheme": "iid"},
        },
        "training": {"epochs": scale.epochs, "batch_size": scale.batch, "weight_decay": 0.01},
        "method": method | {"validation_records": scale.validation},
        "evaluation": {"every": scale.rounds, "attacks": False, "uploads": 0},
    }


def more(scale: runs.Scale) -> list[dict[str, Any]]:
    """LP-FL with fewer labels, and arms that train all parameters."""
    model = {"trainable": "all", "dtype": "float32"}
    return [
        {"name": f"{ARMS[2]}, fewer labels", "method": {"labelled_share": scale.fewer}},
        *(
            {"name": f"{arm}, all parameters", "model": model, "method": method, "rates": scale.rates_of_all}
            for arm, method in ((ARMS[0], {"annotate": False}), (ARMS[2], {}))
        ),
    ]


def by_sites(out: Path, name: str, counts: tuple[int, ...]) -> str:
    """Accuracy by the number of sites, means over the seeds, and by how much it is above that with the fewest, with the
    standard error of differences between runs of one seed; as Markdown."""
    left = {sites: run_records(out / f"{name}-{sites}") for sites in counts}
    found = {
        (arm, sites): {seed: run.last.values["accuracy"] for seed, run in own.items()}
        for arm, sites in product(ARMS, counts)
        if (own := left[sites].get(arm.replace(",", "").replace(" ", "-")))
    }
    lines = []
    for arm in ARMS:
        first, cells = found.get((arm, counts[0]), {}), []
        for sites in counts:
            own = found.get((arm, sites), {})
            far = f" ({_apart(own, first)})" if sites != counts[0] and own else ""
            cells.append(f"{fmean(own.values()):.3f}{far}" if own else DASH)
        lines.append([arm, *cells])
    return pipes(["accuracy by the number of sites", *map(str, counts)], lines)


def _apart(one: Mapping[int, float], other: Mapping[int, float]) -> str:
    """By how much the first is larger with the same seed, in the mean and with its standard error; a dash for less than
    two seeds."""
    by_seed = [one[seed] - other[seed] for seed in one if seed in other]
    return f"{signed(fmean(by_seed))} ± {stdev(by_seed) / len(by_seed) ** 0.5:.3f}" if len(by_seed) > 1 else DASH


if __name__ == "__main__":
    main()
