r"""How well public records that are fetched for ten sites cover a domain: FedDCA, FedDCA*, what they are compared with,
and a rule that looks at coverage itself.

    python studies/domain_coverage.py --code FILE --math FILE --finance FILE --medical FILE... --general FILE \
        --out runs/coverage

``--code``, ``--math`` and ``--general`` are JSONL files of instruction, input and output (CodeAlpaca, GSM8K's training
questions, Self-Instruct's seed tasks). ``--medical`` is the same of patients' questions; an instruction that most of a
file's rows have in common is left out where a row has an input too. ``--finance`` is sentences with a label (Financial
PhraseBank), which become questions. Together they are one pool of public records. Then code, math, finance and medical
are in turn the private domain of ten sites of 50 records, which are drawn anew with each seed and are out of reach.
Domain coverage is the mean, over all records of the domain, of the largest cosine to one of them that some site holds,
its own or fetched (FedDCA, arXiv 2409.20135, eq. 5).

The site's encoder of FedDCA* is the same encoder cut to its first layers, written to ``--out`` when it is first needed.
Results are kept as they come in ``coverage.json``, and none is made twice, so the command may be stopped and given
again. ``--pilot`` does the main comparison alone, with seeds of its own; ``--less`` the comparison with LESS alone.
For that one a language model reads every record, so LESS and what it is compared with choose among some of the pool's
records (``--candidates``); their gradients are kept as well. It ends with the tables, in Markdown.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import coverage_tables as told
import numpy as np
from coverage_arms import ARMS, MIXTURES, Case, Setting, World
from coverage_less import Influence
from coverage_tables import PRIVATE, Found, Results, key
from site_encoder import shortened

from murmura.progress import bar
from murmura.retrieval.build import Origin, build
from murmura.retrieval.cache import Cached
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.pool import MANIFEST, Pool
from runs import as_instructions, read_rows, write_rows

PILOT = (100, 101, 102)
LAYERS = 3  # of the site's encoder in FedDCA*

FETCHED, CLUSTERS, SITES, ALPHAS = (50, 100, 200, 500), (2, 5, 10, 20, 40), (2, 3, 5, 10), (None, 0.7, 0.6, 0.5)
DIRICHLET = (None, 10.0, 1.0, 0.1, 0.01)
COMPARED = ("random", "direct", "FedDCA*", "FedDCA", "coverage")
CURVES: Mapping[str, tuple[Sequence[Any], Sequence[str]]] = {
    "fetched": (FETCHED, COMPARED),
    "clusters": (CLUSTERS, ("direct", "FedDCA", "FedDCA, rule of the pseudo-code", "coverage")),
    "sites": (SITES, ("direct", "FedDCA", "FedDCA, rule of the pseudo-code")),
    "alpha": (ALPHAS, ("FedDCA*", "FedDCA", "FedDCA, α on cosines", "coverage")),
    "dirichlet": (DIRICHLET, ("local", "FedDCA", "coverage")),
}
MIXED = ("local", "random", "FedDCA", "coverage")
SHARE = 50  # of the candidates beside LESS, one in so many is given to each site
FEW_OF_MEDICINE, OF_THEM_ITS_OWN = 300, 150
"""Candidates where medicine is private, since of any 900 too few would be of it."""
WITH_LESS = ("local", "random", "LESS", "direct", "FedDCA", "coverage", "random in the domain")
MAIN = tuple(arm for arm in ARMS if arm != "LESS")
"""What is compared with all of the pool to choose from."""
Cell = tuple[Setting, Sequence[str]]
"""A setting, and the strategies that are compared in it."""


def main() -> None:
    """Do what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for domain in (*PRIVATE, "general"):
        parser.add_argument(f"--{domain}", type=Path, nargs="+", required=True, help="JSONL files of that domain")
    parser.add_argument("--out", type=Path, required=True, help="where the pool and the results are kept")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--pilot", action="store_true", help="only the main comparison, with seeds of its own")
    parser.add_argument("--less", action="store_true", help="only the comparison with LESS")
    parser.add_argument("--candidates", type=int, default=900, help="records of the pool to choose from, beside LESS")
    parser.add_argument("--show", action="store_true", help="make nothing, print the tables of what is there")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = Results(options.out / "coverage.json")
    seeds = PILOT if options.pilot else options.seeds
    if not options.show:
        files = {domain: getattr(options, domain) for domain in (*PRIVATE, "general")}
        if absent := [str(path) for paths in files.values() for path in paths if not path.exists()]:
            parser.error(f"no such file: {', '.join(absent)}")
        world = prepare(files, options.out, options.encoder)
        if options.less:
            for work in cells_with_less(options.candidates):
                complete(results, replace(world, influence=influence(world, work, seeds, options.out)), work, seeds)
        else:
            complete(results, world, list(main_cells() if options.pilot else every_cell()), seeds)
    print(tables(results, seeds, options.candidates))


def main_cells() -> Iterator[Cell]:
    """The main comparison: settings and strategies."""
    for private in PRIVATE:
        yield Setting(private), MAIN


def every_cell() -> Iterator[Cell]:
    """All of the study."""
    yield from main_cells()
    for name, (values, arms) in CURVES.items():
        for private in PRIVATE:
            usual = Setting(private)
            for value in values:
                if value != getattr(usual, name):
                    yield replace(usual, **{name: value}), arms
    for way in MIXTURES:
        yield Setting(way), MIXED


def cells_with_less(candidates: int) -> list[list[Cell]]:
    """The comparison with LESS; what stands in one list shares a warm-up."""
    usual = Setting(PRIVATE[0], fetched=math.ceil(candidates / SHARE), candidates=candidates)
    medical = Setting(
        "medical", fetched=math.ceil(FEW_OF_MEDICINE / SHARE), candidates=FEW_OF_MEDICINE, own=OF_THEM_ITS_OWN
    )
    others = [replace(usual, private=private) for private in PRIVATE if private != medical.private]
    return [[(setting, WITH_LESS) for setting in group] for group in (others, [medical])]


def influence(world: World, work: Sequence[Cell], seeds: Sequence[int], out: Path) -> Influence:
    """What LESS goes by; its warm-up sees no record that is private in any of these cases."""
    private = [Case(world, setting, seed).private for setting, _ in work for seed in seeds]
    public = np.setdiff1d(np.arange(len(world.vectors)), np.concatenate(private))
    return Influence(Pool.open(out / "pool"), public, out / "less")


def complete(results: Results, world: World, work: Sequence[Cell], seeds: Sequence[int]) -> None:
    """Do what is missing."""
    with bar("cases", len(work) * len(seeds)) as progress:
        for (setting, arms), seed in product(work, seeds):
            missing = [arm for arm in arms if key(setting.private, setting.options, seed, arm) not in results]
            if missing:
                case = Case(world, setting, seed)
                results.keep([measured(case, arm) for arm in missing])
            progress.advance(1)


def measured(case: Case, arm: str) -> Found:
    """Fetch by one strategy, and measure."""
    fetched = ARMS[arm](case)
    every = np.concatenate(fetched)
    setting = case.setting
    mixed = setting.private in MIXTURES
    assert not np.isin(every, case.private).any(), "private records were fetched"
    right = np.isin(every, case.world.rows_of(setting.private)).mean() if len(every) and not mixed else None
    covered = {domain: case.covered(domain, fetched) for domain in (PRIVATE if mixed else [setting.private])}
    right = None if right is None else float(right)
    distinct = len(np.unique(every))
    return Found(setting.private, setting.options, case.seed, arm, covered, right=right, distinct=distinct)


def tables(results: Results, seeds: Sequence[int], candidates: int) -> str:
    """All tables of what is there; those with nothing in them are left out."""
    usual = Setting(PRIVATE[0])
    few = {setting.private: setting.options for work in cells_with_less(candidates) for setting, _ in work}
    found = [
        told.coverages(results, MAIN, seeds),
        told.fetched(results, MAIN, seeds),
        told.orderings(results, [*told.papers_order(results, seeds), *told.FURTHER], seeds),
        told.coverages(results, WITH_LESS, seeds, few),
        told.fetched(results, WITH_LESS, seeds, few),
        told.orderings(results, [*told.papers_order(results, seeds, few), ("LESS", "FedDCA")], seeds, few),
        *(
            told.curve(results, name, values, getattr(usual, name), arms, seeds)
            for name, (values, arms) in CURVES.items()
        ),
        told.mixtures(results, MIXTURES, MIXED, seeds),
    ]
    return "\n".join(one for one in found if one.count("\n") > 2)


def prepare(files: Mapping[str, Sequence[Path]], out: Path, encoder: str) -> World:
    """The pool of all records, and their vectors by the sites' encoder of FedDCA*; what is there is used again."""
    origins = []
    for domain, paths in files.items():
        file = out / "records" / f"{domain}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        write_rows(file, [row for path in paths for row in as_instructions(read_rows(path))])
        origins.append(Origin(str(file), domain))
    if not (out / "pool" / MANIFEST).exists():
        build(origins, out / "pool", Encoder(encoder))
    pool = Pool.open(out / "pool")
    small = Cached(Encoder(str(shortened(encoder, LAYERS, out / "site-encoder"))))
    questions = [record.question for record in pool.records(range(len(pool)))]
    return World(pool.vectors, small.embed(questions), pool.domain, pool.domains)


if __name__ == "__main__":
    main()
