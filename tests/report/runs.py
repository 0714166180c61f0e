"""Run folders made in the test that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from murmura.report.table import Row, table
from murmura.runs import RunFolder, names, read_all
from murmura.runs.audit import AuditedModel, Histogram, Separation
from murmura.runs.schema import Environment, Exclusions, MeasuredOn, SiteReport, Summary

NOISE = {"type": "differential privacy", "unit": "record", "added_by": "site", "mechanism": "Gaussian"}
RELEASED = {"verb": "train", "field": "adapter", "kind": "weights", "what": "adapter tensors", "note": ""}
PLAIN = [{**RELEASED, "protection": None, "messages": 4, "bytes": 29_491_200}]
NOISED = [dict(PLAIN[0], protection=NOISE)]
SITES = [SiteReport("cardiology", 24, 22, 1, 2), SiteReport("skin", 30, 30, 0, 0)]
BEST = Separation("error zone", 0.728, 0.641, 0.808, 0.21, 0.11, 0.33)
PLAIN_LOSS = Separation("plain loss", 0.599, 0.5, 0.69, None, None, None, control=True)
SCORES = Histogram((0.0, 0.5, 1.0), (50, 100), (80, 40))
MODEL = AuditedModel("model", 150, 120, "error zone", (BEST, PLAIN_LOSS), SCORES)
PRIVATE = {"delta": 1e-5, "unit": "record", "adjacency": "zero-out", "accountant": "pld", "plan": "a plan"}
PROMISE = {"epsilon": 7.5, "privacy": {**PRIVATE, "epsilon": 7.5}}


def metrics(number: int, **figures: Any) -> dict[str, Any]:
    """A row of metrics.jsonl with every figure of the table; ``figures`` replace or add."""
    auc, attack = 0.5 + 0.0625 * number, {"attack": "error zone", "members": 81, "others": 36, "each": {}}
    utility = {"heldout_loss": 2.25 - 0.125 * number, "heldout_rouge": 0.125 + 0.0625 * number}
    leakage = {"attack_auc": auc, "attack_auc_low": auc - 0.0625, "attack_auc_high": auc + 0.0625}
    leakage |= {"attack_loss_auc": 0.5 + 0.03125 * number, "upload_auc": 0.5 + 0.125 * number if number else None}
    cost = {"bytes_up": 1_500_000 * number, "bytes_down": 3_000_000 * number}
    cost |= {"wall": 30.0, "peak_memory": 1_650_000_000}
    other = {"attacks": {"attack": attack}, "seconds": {"train": 12.0, "evaluate": 6.0}, "counts": {}, "events": []}
    return {"round": number, **utility, **leakage, **cost, **other, **figures}


def write_run(
    path: Path,
    method: str = "FedAvg",
    seed: int | None = 0,
    rows: list[dict[str, Any]] | None = None,
    finished: bool = True,
    disclosure: Any = PLAIN,
    sites: Any = SITES,
    model: str = "tiny",
    kind: str = "instruction",
    name: str | None = None,
    more: str = "",
    measured: MeasuredOn | None = None,
) -> Path:
    """A run of two rounds; its totals are 4.5 MB up, 9 MB down, 90 s.

    Args:
        more: further lines of the experiment; the first ones, up to a table, are of [data].
    """
    path.mkdir(parents=True)
    folder = RunFolder(path)
    rows = rows if rows is not None else [metrics(0), metrics(1), metrics(2)]
    seeded = "" if seed is None else f"seed = {seed}\n"
    folder.write_config(
        f'[run]\nname = "{name or path.name}"\n{seeded}[model]\nname = "{model}"\n'
        f'[method]\nname = "fedit"\nrounds = 2\n[data]\nkind = "{kind}"\n{more}'
    )
    packages = {"peft": "0.21"}
    started = "2025-11-21T09:17:03+00:00"
    told = Environment(
        "0.1", "3.12", "2.13", "Linux", 2, "cpu", started, "folder tiny", 1000, 10, "float32", "float32", packages
    )
    folder.write(names.ENVIRONMENT, told)
    folder.write_records(sites, Exclusions(0, 0, 0, 0), [])
    if measured is not None:
        folder.write(names.MEASURED, measured)
    folder.write_metrics(rows)
    folder.write(names.DISCLOSURE, disclosure)
    if finished:
        totals = (4_500_000, 9_000_000, 90.0, 10**9)
        folder.write(names.SUMMARY, Summary(name or path.name, method, seed or 0, 2, rows[-1], *totals))
    return path


def real(folder: Path) -> Path:
    """Have a run be one whose sites were on machines of their own."""
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("[run]\n", '[run]\nengine = "flower"\n'))
    return folder


def classifier(folder: Path, **figures: Any) -> Path:
    """A run on labelled texts, of which nothing was attacked and nothing generated; ``figures`` are of round 1."""
    asked = ("heldout_loss", "bytes_up", "bytes_down", "wall", "peak_memory", "seconds")
    known = {"accuracy": 0.5, "calibration_error": 0.1, "calibration": [[0.6, 0.5, 20]]}
    rows = [{"round": n, **{key: metrics(n)[key] for key in asked}, **known, **(figures if n else {})} for n in (0, 1)]
    return write_run(folder, method="LP-FL", rows=rows, kind="labelled")


def rows_of(*folders: Path) -> list[Row]:
    """The table of these runs."""
    return table(read_all(folders))


def seeds(folder: Path, *runs: list[dict[str, Any]], **options: Any) -> list[Row]:
    """The table of runs that differ in their seed, and in what they measured."""
    return rows_of(*(write_run(folder / f"s{seed}", seed=seed, rows=rows, **options) for seed, rows in enumerate(runs)))
