"""LP-FL against training on the labelled texts alone: shares of labels, numbers of sites, two tasks.

    python studies/lpfl.py --data FOLDER --out runs/lpfl                 # two CPU cores, some hours
    python studies/lpfl.py --data FOLDER --out runs/lpfl --scale full    # for a GPU

FOLDER holds ``sentiment_movie_rt.jsonl`` (sentences of film reviews, good or bad) and ``finance_phrasebank.jsonl``
(three sentiments; of it one share of labels and one number of sites are run). The model is causal, so the blank is last
in each pattern. Sites share the texts evenly; 1 site is LP-CT. The full scale runs every share with every number of
sites; the small one every share with 1 and 5 sites, and every number of sites with the middle share. There all arms
take as many steps, so that an arm with more texts sees each of them less often. Runs that are finished are kept,
unfinished ones are resumed, so the command may be stopped and given again. It ends with a table for each task.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import runs
from murmura.runs import read
from murmura.units import DASH, signed
from runs import finished, pipes, read_rows, show, small_parser, work, write_rows

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


SITES, SHARES = (1, 2, 5, 10), (0.02, 0.05, 0.1)
GRID = tuple(product(SITES, SHARES))
ARMS = ("labelled", "lpfl", "whole")
SMALL, FULL = runs.scales(
    texts=(1000, 9000),
    words=({"movie": 12, "finance": 18}, {"movie": 100, "finance": 100}),
    heldout=(400, 1600),
    validation=(100, 500),  # of the held-out texts; no accuracy in the tables but its own is measured on these
    rounds=(4, 5),
    steps=(60, None),  # of a round, all sites together; five epochs, as in the paper, if None
    batch=(4, 8),
    lr=(1e-3, 1e-3),
    targets=(runs.above(runs.ATTENTION), runs.ATTENTION),
    max_length=(56, 128),
    sample_pattern=(True, False),
    grid=(tuple(cell for cell in GRID if cell[0] in (1, 5) or cell[1] == 0.05), GRID),  # sites, share of labels
)
SCALES = {"small": SMALL, "full": FULL}
ONE = (5, 0.1)  # the cell of the task that is run in one only
WHOLE = ((1, 0.05), (2, 0.05))  # where all parameters are trained too, if asked for


def main() -> None:
    """Run what is missing and print the tables after every run."""
    parser = small_parser(__doc__, SCALES, seeds=(0, 1))
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=list(TASKS))
    parser.add_argument(
        "--whole", action="store_true", help="also train all parameters with 1 and 2 sites (FP-CT, FP-FL)"
    )
    options = parser.parse_args()
    scale = SCALES[options.scale]
    for name in options.tasks:
        prepare(name, options.data, options.out, scale)
        markdown = options.table / f"lpfl-{name}.table.md" if options.table else None
        grid = scale.grid if name == "movie" else [ONE]
        runs = list(product(options.seeds, grid, ARMS[:2]))
        if options.whole and name == "movie":
            runs += product(options.seeds, WHOLE, ["whole"])
        for seed, (sites, share), arm in runs:
            folder = options.out / f"{cell(name, arm, sites, share)}-seed{seed}"
            work(folder, experiment(name, options.out, folder, arm, sites, share, seed, options.model, scale))
            names = [cell(name, arm, sites, share) for sites, share, arm in product(SITES, SHARES, ARMS)]
            rounds = ("validation_accuracy", "pseudo_accuracy")
            show(finished(options.out, names), ("accuracy",), markdown, rounds, [gains(name, options.out)])


def cell(name: str, arm: str, sites: int, share: float) -> str:
    """What the runs of an arm are called, but for their seed."""
    return f"{name}-{arm}-{sites}sites-{share:g}"


def gains(name: str, out: Path) -> str:
    """What LP-FL's accuracy is above that of training on the labels alone, by seed, as a table in Markdown."""
    found: dict[tuple[int, float], dict[int | None, dict[str, float]]] = {}
    for sites, share, arm in product(SITES, SHARES, ARMS[:2]):
        for run in map(read, finished(out, [cell(name, arm, sites, share)])):
            found.setdefault((sites, share), {}).setdefault(run.seed, {})[arm] = run.last.values["accuracy"]
    seeds = sorted({seed for by_seed in found.values() for seed in by_seed}, key=str)
    lines = [["LP-FL above labelled only", *map(str, seeds)], ["---", *["--:"] * len(seeds)]]
    for (sites, share), by_seed in found.items():
        pairs = [by_seed.get(seed, {}) for seed in seeds]
        told = [signed(pair["lpfl"] - pair["labelled"]) if len(pair) == 2 else DASH for pair in pairs]
        lines.append([f"{sites} site{'s' * (sites > 1)}, {share:.0%} labelled", *told])
    return pipes(lines)


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


def experiment(
    name: str, out: Path, folder: Path, arm: str, sites: int, share: float, seed: int, model: str, scale: runs.Scale
) -> dict[str, dict[str, Any]]:
    """The experiment file of one run."""
    task = TASKS[name]
    pace = {"epochs": 5} if scale.steps is None else {"max_steps": scale.steps // sites}
    sites_table = {"by": "partition", "count": sites, "scheme": "iid"}
    data = {"train": str((out / f"{name}.jsonl").resolve()), "heldout_records": scale.heldout}
    method = {"name": "lpfl", "rounds": scale.rounds, "labelled_share": share, "patterns": task["patterns"]}
    method |= {"verbaliser": task["verbaliser"], "sample_pattern": scale.sample_pattern}
    pace |= {"lr": scale.lr, "batch_size": scale.batch}
    table: dict[str, dict[str, Any]] = runs.begun(folder, seed, model, 8, scale.targets) | {
        "data": data | {"max_length": scale.max_length, "sites": sites_table},
        "training": pace | {"weight_decay": 0.01, "tokens_per_pass": 2048},
        "method": method | {"validation_records": scale.validation},
        "evaluation": {"every": scale.rounds},
    }
    table["run"]["slots"] = sites
    if arm == "labelled":
        table["method"]["annotate"] = False
    if arm == "whole":
        table["model"] |= {"trainable": "all", "dtype": "float32"}
        table["training"] |= {"lr": 2e-5}
    return table


if __name__ == "__main__":
    main()
