"""FedAvg against FewFedPIT on real medical questions: utility and leakage over β and seeds.

    python studies/fewfedpit_medical.py --data FOLDER --out runs/medical                 # two CPU cores, two hours
    python studies/fewfedpit_medical.py --data FOLDER --out runs/medical --scale full    # for a GPU

FOLDER holds ``medical_icliniq.jsonl`` (private; questions of patients, which share one instruction, so the question
itself is taken as the instruction) and ``medical_medinstruct_test.jsonl`` (held out). Ten sites get 20 records each:
100 k-means clusters, up to 3 records of each, shared out with Dirichlet(1.0) in FedNLP's equal-size form, 20 kept by
each site. Runs that are finished are kept, unfinished ones are resumed, so the command may be stopped and given again.
It ends with the table.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import runs
from runs import read_rows, shorten, show, work, write_rows

ARMS: dict[str, dict[str, object]] = {
    "fedavg": {"name": "fedit"},
    "beta-0.5": {"name": "fewfedpit", "beta": 0.5},
    "beta-0": {"name": "fewfedpit", "beta": 0.0},
    "beta-1": {"name": "fewfedpit", "beta": 1.0},
}


SMALL, FULL = runs.scales(
    question_words=(50, 400),  # at most, of a record
    answer_words=(36, 400),
    rounds=(2, 10),
    epochs=(1, 1),
    batch_size=(2, 8),
    keep=(4, 16),
    heldout=(40, 216),
    sample=(16, 100),
    uploads=(1, 10),
    max_length=(200, 1024),
    instruction_tokens=(40, 128),
    example_tokens=(64, 384),
)
SCALES = {"small": SMALL, "full": FULL}


def main() -> None:
    """Run what is missing and print the table after every run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the two JSONL files")
    parser.add_argument("--out", type=Path, required=True, help="where runs are kept")
    parser.add_argument("--scale", choices=SCALES, default="small")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", choices=ARMS, nargs="+", default=list(ARMS))
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--table", type=Path, help="also write the table as Markdown")
    options = parser.parse_args()
    scale = SCALES[options.scale]
    prepare(options.data, options.out, scale)
    folders = []
    for seed in options.seeds:
        for arm in options.arms:
            folder = options.out / f"{arm}-seed{seed}"
            work(folder, experiment(options.out, folder, arm, seed, options.model, scale))
            folders.append(folder)
            show(folders, ("heldout_loss", "heldout_rouge", "upload_auc"), options.table)


def prepare(data: Path, out: Path, scale: runs.Scale) -> None:
    """Write the records as the study uses them: whole sentences up to the scale's number of words."""
    out.mkdir(parents=True, exist_ok=True)
    for source, name in (("medical_icliniq", "private"), ("medical_medinstruct_test", "heldout")):
        rows = read_rows(data / f"{source}.jsonl")
        kept = []
        for row in rows:
            question = row["input"] if name == "private" else f"{row['instruction']} {row['input'] or ''}"
            question, answer = " ".join(question.split()), shorten(row["output"], scale.answer_words)
            if answer and len(question.split()) <= scale.question_words:
                kept.append({"instruction": question, "input": "", "output": answer})
        print(f"{name}: {len(kept)} of {len(rows)} records have a question of at most {scale.question_words} words")
        write_rows(out / f"{name}.jsonl", kept)


def experiment(
    out: Path, folder: Path, arm: str, seed: int, model: str, scale: runs.Scale
) -> dict[str, dict[str, object]]:
    """The experiment file of one run."""
    method = {**ARMS[arm], "rounds": scale.rounds}
    if method["name"] == "fewfedpit" and method["beta"] != 1.0:
        method |= {name: getattr(scale, name) for name in ("keep", "instruction_tokens", "example_tokens")}
    every = scale.rounds if scale.rounds < 5 else 1
    return {
        "run": {"name": folder.name, "folder": str(folder), "seed": seed, "slots": 10, "decode_rows": 64},
        "model": {"name": model},
        "data": {
            "train": str((out / "private.jsonl").resolve()),
            "heldout": str((out / "heldout.jsonl").resolve()),
            "heldout_records": scale.heldout,
            "nonmember_records": scale.sample,
            "template": "chat",
            "max_length": scale.max_length,
            "few_shot": {"clusters": 100, "per_cluster": 3},
            "sites": {"by": "partition", "count": 10, "scheme": "dirichlet-equal", "alpha": 1.0, "records": 20},
        },
        "training": {"lr": 2e-3, "batch_size": scale.batch_size, "epochs": scale.epochs, "tokens_per_pass": 2048},
        "method": method,
        "evaluation": {"every": every, "sample": scale.sample, "uploads": scale.uploads},
    }


if __name__ == "__main__":
    main()
