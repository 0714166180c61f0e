"""Which method for patients' questions? The methods of this house, compared on the same records.

    python studies/medical.py --data FOLDER --out runs/medical          # writes runs/medical/medical.toml and its files
    murmura compare runs/medical/medical.toml --jobs 2 --out runs/medical
    python studies/medical.py --out runs/medical --show                 # losses round by round, drafts, every two arms

FOLDER holds ``medical_icliniq.jsonl`` (private: questions of patients, which share one instruction, so the question
itself is taken as the instruction), and ``medical_medinstruct_test.jsonl``, ``code_codealpaca.jsonl`` and
``general_seed_tasks.jsonl`` (public: the pool of FedDCA, and the texts that PrE-Text begins with).

Five sites get 20 records each of one file, and others of it are held out: they are measured on, and attacks compare
members with them after every round. ``--more`` writes another comparison, more.toml: all records in one place and no
exchange, SCAFFOLD, FedOPT and FewFedWeight, other scorers, and public records in place of drafts.
``--full`` writes the comparison for a large machine. ``--dtype bfloat16`` halves the time where a processor multiplies
in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

import runs
from murmura.runs import RunRecord
from murmura.units import DASH, decimal
from runs import build_pool, last_losses, pairs, pipes, read_rows, run_records, shorten, write_rows

FILES = ("medical_icliniq", "medical_medinstruct_test", "code_codealpaca", "general_seed_tasks")
SMALL, FULL = runs.scales(
    question_words=(38, 400),  # at most, of a record
    answer_words=(30, 400),
    public=(1500, 10_000),  # records of the pool that are no medical ones
    layers=("last 8", "all"),
    rounds=(3, 10),
    epochs=(2, 1),
    batch=(2, 4),
    rates=([1.25e-3, 2.5e-3, 5e-3, 1e-2], [1e-4, 3e-4, 1e-3, 2e-3]),
    like_words=((39, 55), (401, 600)),  # of a question that is like the private ones and none of them
    noisy_rates=([1e-3, 3e-3, 1e-2, 3e-2],) * 2,  # of DP-LoRA, whose steps are mostly noise
    seeds=(3, 8),
    written=(
        {"keep": 4, "instructions_shown": 3, "examples_shown": 2, "instruction_attempts": 3, "example_attempts": 1}
        | {"instruction_tokens": 40, "example_tokens": 56},
        {"keep": 16},  # and the rest as in the paper
    ),
    kept=({"keep": 4}, {"keep": 16}),  # public records in place of drafts
    answered=({"answer_tokens": 56}, {}),
    fetched=(20, 200),
    heldout=(95, 200),
    max_length=(192, 1024),
    population=(64, 1024),
    samples=(64, 2048),
)


def main() -> None:
    """Write the comparison and its files, or show what its runs came to."""
    parser = runs.parser(__doc__)
    parser.add_argument("--show", action="store_true", help="show what finished runs came to, and write nothing")
    parser.add_argument("--from", dest="references", nargs="+", default=[], help="arms that --show tells others from")
    parser.add_argument("--more", action="store_true", help="write more.toml instead")
    options = runs.parse(parser, reading="show")
    if options.show:
        print(shown(options.out, options.references), end="")
        return
    scale = FULL if options.full else SMALL
    prepare(options.data, options.out, scale)
    sources = (f"{name}={options.out / f'{name}.jsonl'}" for name in ("medical", "other"))
    build_pool(options.out / "pool", sources)  # of FedDCA: medical records among others
    written = (more if options.more else comparison)(options.model, options.dtype, scale)
    place = options.out / "more" if options.more else options.out
    runs.save(written, options.out / f"{written['compare']['name']}.toml", place)


def prepare(data: Path, out: Path, scale: runs.Scale) -> None:
    """Write the records as the study uses them: whole sentences up to the scale's number of words, none twice."""
    out.mkdir(parents=True, exist_ok=True)
    private, medical, *others = (read_rows(data / f"{name}.jsonl") for name in FILES)
    private = [row | {"instruction": row["input"], "input": ""} for row in private]
    own = _short(private, scale)
    write_rows(out / "private.jsonl", own)
    write_rows(out / "like.jsonl", _short(private, scale, scale.like_words))
    write_rows(out / "medical.jsonl", near := _short(medical, scale))
    write_rows(out / "other.jsonl", _short([row for rows in others for row in rows], scale)[: scale.public])
    write_rows(out / "public.jsonl", [{"text": row["output"]} for row in near])
    print(f"private: {len(own)} of {len(private)} records are short enough; public medical ones: {len(near)}")


def _short(rows: list[dict[str, Any]], scale: runs.Scale, words: tuple[int, int] | None = None) -> list[dict[str, str]]:
    """Rows whose questions have so many words; if not given, at most the scale's."""
    found, (fewest, most) = {}, words or (0, scale.question_words)
    for row in rows:
        question = " ".join(f"{row['instruction']} {row.get('input') or ''}".split())
        answer = shorten(row["output"], scale.answer_words)
        if answer and fewest <= len(question.split()) <= most:
            found.setdefault(question, {"instruction": question, "input": "", "output": answer})
    return list(found.values())


def more(model: str, dtype: str, scale: runs.Scale) -> dict[str, Any]:
    """The other comparison's file: arms that take the drafts, or the federation, away from FewFedPIT with β = 0.5, and
    others beside FedAvg."""
    fewfedpit = {"name": "fewfedpit", "beta": 0.5}
    substitutes = {"OOD": "other.jsonl", "SIMD": "medical.jsonl", "IDEAL": "like.jsonl"}
    arms = [
        {"name": "FedAvg"},
        {"name": "All in one place", "method": {"name": "centralised"}},
        {"name": "LocIT", "method": {"name": "local"}},
        {"name": "SCAFFOLD", "aggregation": {"local": "scaffold"}},
        {"name": "FedOPT", "aggregation": {"server": "fedadam"}},
        *(
            {"name": f"+{label}", "method": fewfedpit | scale.kept | {"substitute": file, "substitute_label": label}}
            for label, file in substitutes.items()
        ),
        {"name": "LocIT+SG", "method": {"name": "locit-sg", **scale.written}},
        *(
            {"name": f"FewFedPIT by {label}", "method": fewfedpit | scale.written | {"scorer": scorer}}
            for label, scorer in {"IFS": "ifs", "IFD": "ifd", "chance": "random", "PPL": "ppl"}.items()
        ),
        {"name": "FewFedWeight", "method": {"name": "fewfedweight", **scale.answered}},
    ]
    written = comparison(model, dtype, scale)
    return written | {"compare": written["compare"] | {"name": "more", "arms": arms}}


def comparison(model: str, dtype: str, scale: runs.Scale) -> dict[str, Any]:
    """The comparison's file."""
    documents = {"kind": "document", "fields": {"text": "output"}, "template": "alpaca"}
    pretext = {"name": "pretext", "public": "public.jsonl", "variation": "continue", "variation_model": model}
    pretext |= {"generator": model, "population": scale.population, "samples": scale.samples, "text_tokens": 48}
    pretext |= {"rounds": 2, "sample_tokens": 64, "temperature": 0.7, "top_p": 0.95, "texts_per_site": 20}
    untouched = {"name": "fewfedpit", "untouched": True}
    return {
        "compare": {
            "name": "medical",
            "seeds": scale.seeds,
            "rates": scale.rates,
            "arms": [
                {"name": "FedAvg"},
                {"name": "FedProx", "aggregation": {"local": {"kind": "fedprox", "mu": 0.1}}},
                {"name": "FedMIT", "method": {"name": "fedmit", **scale.written}},
                {"method": {"name": "fewfedpit", **scale.written}, "grid": {"method.beta": [0.0, 0.3, 0.5, 0.7]}},
                {"method": untouched},
                {"name": "FewFedPIT untouched, rate of β=0.5", "method": untouched, "rate_of": "FewFedPIT β=0.5"},
                {"method": {"name": "dplora"}, "grid": {"method.epsilon": [2.0, 8.0]}, "rates": scale.noisy_rates},
                {
                    "name": "FedDCA",
                    "augment": {"strategy": "feddca", "pool": "pool", "records": scale.fetched, "domain": "medical"},
                },
                {"name": "PrE-Text ε=7.58", "method": pretext, "data": documents, "training": {"schedule": "constant"}},
            ],
        },
        "run": {"slots": 5, "decode_rows": 40},
        "model": {"name": model, "dtype": dtype},
        "lora": {"rank": 16, "alpha": 32.0, "targets": ["q_proj", "v_proj"], "layers": scale.layers},
        "data": {
            "train": "private.jsonl",
            "heldout_records": scale.heldout,
            "template": "chat",
            "max_length": scale.max_length,
            "sites": {"by": "partition", "count": 5, "records": 20},
        },
        "training": {"batch_size": scale.batch, "epochs": scale.epochs},
        "method": {"name": "fedit", "rounds": scale.rounds},
        "evaluation": {"every": 1, "attacks": True, "attack_records": 100, "uploads": 0},
    }


def shown(out: Path, references: Sequence[str] = ()) -> str:
    """Of each arm, in Markdown: losses after each round, all of which are measured, and the least of each seed, and how
    many drafts it kept, of how many it could choose from, in all runs; below it, how arms differ in the last loss, and
    in the least, and in what each attack finds, but for those about another kind of record than most.

    Raises:
        SystemExit: there is no finished run, or none of a reference.
    """
    found = {arm: own for arm, every in run_records(out).items() if (own := _trained(every))}
    if not found:
        raise SystemExit(f"{out}: no finished run")
    kinds = {arm: next(iter(own.values())).kind for arm, own in found.items()}
    (kind, _), *_ = Counter(kinds.values()).most_common()
    alike = {arm: own for arm, own in found.items() if kinds[arm] == kind}
    if missing := [arm for arm in references if arm not in alike]:
        raise SystemExit(f"{out}: no finished run of {missing[0]}; there are {', '.join(alike)}")
    losses = {arm: {seed: _losses(one) for seed, one in own.items()} for arm, own in found.items()}
    least = {arm: {seed: min(each[1:]) for seed, each in own.items()} for arm, own in losses.items()}
    rounds = max(len(each) for own in losses.values() for each in own.values())
    head, lines = ["arm", "seeds", *(f"round {k}" for k in range(rounds)), "least", "drafts kept"], []
    for arm, own in losses.items():
        after = zip_longest(*own.values())
        means = [decimal(fmean(known)) if (known := [x for x in each if x is not None]) else DASH for each in after]
        means += [DASH] * (rounds - len(means))
        lines.append([arm, str(len(own)), *means, decimal(fmean(least[arm].values())), _kept(found[arm])])
    told = f"{pipes(head, lines)}\nAfter the last round:\n\n{pairs(last_losses(alike), references)}"
    best = pairs({arm: least[arm] for arm in alike}, references)
    aucs = _aucs(alike).items()
    leaks = "".join(f"\nAUC of {attack} on the last model:\n\n{pairs(own, references)}" for attack, own in aucs)
    return f"{told}\nAt the least of each seed:\n\n{best}{leaks}"


def _aucs(found: Mapping[str, Mapping[int, RunRecord]]) -> dict[str, dict[str, dict[int, float]]]:
    """What each attack on the last model comes to, by arm and seed."""
    aucs: dict[str, dict[str, dict[int, float]]] = {}
    for arm, own in found.items():
        for seed, run in own.items():
            told = run.last.attacks.get("attack")
            for attack, (auc, *_) in told.each.items() if told else ():
                aucs.setdefault(attack, {name: {} for name in found})[arm][seed] = auc
    return aucs


def _trained(found: Mapping[int, RunRecord]) -> dict[int, RunRecord]:
    """Those runs that were measured after a round, too."""
    return {seed: run for seed, run in found.items() if len(_losses(run)) > 1}


def _losses(run: RunRecord) -> list[float]:
    return [one.values["heldout_loss"] for one in run.rounds if "heldout_loss" in one.values]


def _kept(found: Mapping[int, RunRecord]) -> str:
    """``178 of 310``: drafts that sites kept, of those that they could choose from."""
    totals = sum((Counter(one.counts) for run in found.values() for one in run.rounds), Counter())
    kept, outranked = totals["drafts.kept"], totals["drafts.outranked"]
    return f"{kept} of {kept + outranked}" if kept + outranked else DASH


if __name__ == "__main__":
    main()
