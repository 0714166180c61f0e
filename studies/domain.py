"""Training on public records beside a few private ones: none, random ones, direct retrieval, FedDCA and what it is
compared with.

    python studies/domain.py --data FOLDER --out runs/code          # writes runs/code/code.toml, pools and records
    murmura compare runs/code/code.toml --jobs 2 --out runs/code
    murmura audit runs/code/runs/local-seed0                       # and of every other run
    python studies/domain.py --out runs/code --show                 # loss beside coverage, and what audits have found

FOLDER holds ``code_codealpaca.jsonl``, ``math_gsm8k_train.jsonl``, ``medical_icliniq.jsonl`` and
``general_seed_tasks.jsonl`` (instruction, input, output), and ``finance_phrasebank.jsonl`` (text and label).
``--domain`` is what sites have records of, code or math. Some of that file are set apart: from these each seed draws
the sites' own records and those that are measured on. The rest is, with the other files, the pool of every seed.

Every arm takes as many steps of as many records, and has a rate of its own. "Random in the domain" is no strategy: its
sites are given random records of a pool that holds their domain alone, so that there is nothing to find.
``--more`` adds LESS and Self-Instruct. ``--full`` writes the comparison for a large machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from scipy.stats import spearmanr
from site_encoder import shortened

import runs
from murmura.measure.statistics import Estimate
from murmura.runs import RunRecord
from murmura.units import DASH
from runs import apart, as_instructions, build_pool, last_losses, pairs, pipes, read_rows, run_records, write_rows

FILES = {"code": "code_codealpaca", "math": "math_gsm8k_train", "medical": "medical_icliniq"}
FILES |= {"finance": "finance_phrasebank", "general": "general_seed_tasks"}
DOMAINS = ("code", "math")
ENCODER, SITE_LAYERS = "minilm", 3  # of six, in FedDCA*
ATTACK = "error zone"

SMALL, FULL = runs.scales(
    words=({"code": (24, 30), "math": (40, 60)}, dict.fromkeys(DOMAINS, (400, 400))),  # at most: of question, answer
    apart=(600, 1500),  # records of the domain that are not public
    public=(700, 100_000),  # records of each domain in the pool, at most
    sites=(10, 10),
    private=(10, 50),  # records of each site
    fetched=(20, 1000),
    clusters=(5, 10),
    heldout=(150, 1000),
    rounds=(2, 10),
    steps=(8, 20),
    batch=(4, 32),
    layers=("last 8", "all"),
    rates=([3e-3, 1e-2], [1e-4, 3e-4, 1e-3]),
    seeds=(3, 5),
    less=({"less_sample": 600, "less_epochs": 1}, {}),
    written=({"write_tokens": 80}, {}),
    max_length=(192, 1024),
)


def main() -> None:
    """Write the comparison and its files, or show what its runs were given."""
    parser = runs.parser(__doc__)
    parser.add_argument("--domain", choices=DOMAINS, default="code", help="of the sites' records")
    parser.add_argument("--more", action="store_true", help="LESS and Self-Instruct, too")
    parser.add_argument("--show", action="store_true", help="loss beside coverage of finished runs, nothing else")
    options = runs.parse(parser, reading="show")
    if options.show:
        print(shown(options.out))
        return
    scale = FULL if options.full else SMALL
    prepare(options.domain, options.data, options.out, scale)
    shortened(ENCODER, SITE_LAYERS, options.out / "site-encoder")
    written = comparison(options.domain, options.model, options.dtype, scale)
    if options.more:
        written["compare"]["arms"] += more(options.domain, scale)
    runs.save(written, options.out / f"{options.domain}.toml")


def prepare(domain: str, data: Path, out: Path, scale: runs.Scale) -> None:
    """Write the records as the study uses them, none twice, and two pools: of all domains, and of this one alone."""
    out.mkdir(parents=True, exist_ok=True)
    sources = []
    for name, file in FILES.items():
        question, answer = scale.words.get(name, scale.words[domain])
        rows = as_instructions(read_rows(data / f"{file}.jsonl"))
        if name not in DOMAINS:  # code and sums are spoilt where they are cut
            rows = [row | {"output": runs.shorten(row["output"], answer)} for row in rows]
        rows = _short(rows, question, answer)
        Random(0).shuffle(rows)
        if name == domain:
            write_rows(out / "private.jsonl", rows[: scale.apart])
            print(f"{name}: {len(rows)} records are short enough, {min(len(rows), scale.apart)} of them are private")
            rows = rows[scale.apart :]
        write_rows(out / f"{name}.jsonl", rows[: scale.public])
        sources.append(f"{name}={out / f'{name}.jsonl'}")
    for pool, these in {"pool": sources, "domain": [f"{domain}={out / f'{domain}.jsonl'}"]}.items():
        build_pool(out / pool, these, "--without-private", str(out / "private.jsonl"))


def _short(rows: list[dict[str, str]], question: int, answer: int) -> list[dict[str, str]]:
    """Those of at most so many words, no question twice."""
    found = {}
    for row in rows:
        asked = f"{row['instruction']} {row['input']}".split()
        if len(asked) <= question and 0 < len(row["output"].split()) <= answer:
            found.setdefault(" ".join(asked), row)
    return list(found.values())


def comparison(domain: str, model: str, dtype: str, scale: runs.Scale) -> dict[str, Any]:
    """The comparison's file."""
    common = {"pool": "pool", "records": scale.fetched, "domain": domain}
    centres = common | {"clusters": scale.clusters}
    arms: dict[str, dict[str, Any] | None] = {
        "FedDCA": centres | {"strategy": "feddca"},
        "local": None,
        "random": common | {"strategy": "random"},
        "direct": centres | {"strategy": "direct"},
        "FedDCA* with a small encoder": centres | {"strategy": "feddca", "site_encoder": "site-encoder"},
        "FedDCA, no record twice": centres | {"strategy": "feddca", "dedup": "all"},
        "random in the domain": common | {"strategy": "random", "pool": "domain"},
    }
    return {
        "compare": {
            "name": f"training beside public records: {domain}",
            "seeds": scale.seeds,
            "rates": scale.rates,
            "arms": [{"name": name} | ({} if table is None else {"augment": table}) for name, table in arms.items()],
        },
        "run": {"slots": scale.sites},
        "model": {"name": model, "dtype": dtype},
        "lora": {"rank": 16, "alpha": 32.0, "targets": list(runs.QUERY_AND_VALUE), "layers": scale.layers},
        "data": {
            "train": "private.jsonl",
            "heldout_records": scale.heldout,
            "template": "chat",
            "max_length": scale.max_length,
            "sites": {"by": "partition", "count": scale.sites, "records": scale.private},
        },
        "training": {"batch_size": scale.batch, "max_steps": scale.steps},
        "method": {"name": "fedit", "rounds": scale.rounds},
        "evaluation": {"every": scale.rounds, "sample": 1, "attacks": False},
    }


def more(domain: str, scale: runs.Scale) -> list[dict[str, Any]]:
    """Arms that choose by a language model's gradients, or have it write the records."""
    less = {"strategy": "less", "pool": "pool", "records": scale.fetched, "domain": domain, **scale.less}
    written = {"strategy": "self-instruct", "records": scale.fetched, **scale.written}
    return [{"name": "LESS", "augment": less}, {"name": "Self-Instruct", "augment": written}]


def shown(out: Path) -> str:
    """Of each arm, in Markdown: what its sites were given, by domain, how well that covers theirs, and the loss; means
    over the seeds. Below it, how the order by coverage agrees with that by loss, how every two arms differ, and what
    audits got out of the models."""
    by_seed = run_records(out)
    found = {arm: list(own.values()) for arm, own in by_seed.items()}
    lines, places = [], []
    for arm, own in found.items():
        loss = fmean(one.last.values["heldout_loss"] for one in own)
        given = [one.augment[0] for one in own if one.augment]
        covered = [one.coverage for one in given if one.coverage is not None]
        domains = sorted({name for one in given for name in one.by_domain})
        words = ", ".join(f"{name} {fmean(one.by_domain.get(name, 0) for one in given):.0f}" for name in domains)
        lines.append([arm, str(len(own)), words or DASH, f"{fmean(covered):.3f}" if covered else DASH, f"{loss:.3f}"])
        if covered:
            places.append((fmean(covered), loss))
    text = pipes(["arm", "seeds", "given", "domain coverage", "held-out loss"], lines, words=(0, 2))
    if len(places) > 2:
        text += f"\nSpearman's rank correlation of coverage and loss over {len(places)} arms: {_rank(places):.2f}\n"
    return f"{text}\n{pairs(last_losses(by_seed))}\n{_given_away(by_seed)}"


def _given_away(found: Mapping[str, Mapping[int, RunRecord]]) -> str:
    """What audits found of the models: the AUC of one attack, fixed for all; and by how much what a model writes
    unasked comes closer to the nearest of the sites' own instructions than to the nearest of as many held-out ones
    (template extraction, FedDCA, Wang et al. 2024, arXiv 2409.20135). Beside each its difference from the arm trained
    without public records, paired by seed; each p is by itself."""
    lines, attacks, written = [], {}, {}
    for arm, own in found.items():
        audits = {seed: run.audit for seed, run in own.items() if run.audit}
        attacks[arm] = {
            seed: attack.auc
            for seed, audit in audits.items()
            for model in audit.models
            for attack in model.attacks
            if (model.target, attack.attack) == ("model", ATTACK)
        }
        written[arm] = {
            seed: one.difference
            for seed, audit in audits.items()
            for one in audit.written
            if (one.target, one.prompt) == ("model", "template")
        }
    for arm in (arm for arm in found if attacks[arm]):
        cells = [str(len(attacks[arm]))]
        for told, least, most in ((attacks, 0, 1), (written, -1, 1)):
            mean = Estimate.of(list(told[arm].values()), least, most).words if told[arm] else DASH
            cells += [mean, apart(told[arm], told.get("local", {})) if arm != "local" else DASH]
        lines.append([arm, *cells])
    return pipes(["arm", "audits", f"AUC of {ATTACK}", "− local's", "ROUGE-L, own − others", "− local's"], lines)


def _rank(places: list[tuple[float, float]]) -> float:
    return float(spearmanr(*zip(*places, strict=True)).statistic)


if __name__ == "__main__":
    main()
