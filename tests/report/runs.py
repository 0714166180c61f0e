"""Run folders made in the test that reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from murmura.runs import RunFolder
from murmura.runs.schema import Environment, Exclusions, Measured, SiteReport, Summary

NOISE = {"type": "differential privacy", "unit": "record", "added_by": "site", "mechanism": "Gaussian"}
PLAIN = [
    {"verb": "train", "field": "adapter", "kind": "weights", "what": "adapter tensors", "protection": None,
     "note": "", "messages": 4, "bytes": 29_491_200},
]  # fmt: skip
NOISED = [dict(PLAIN[0], protection=NOISE)]
SITES = [SiteReport("cardiology", 24, 22, 1, 2), SiteReport("skin", 30, 30, 0, 0)]


def metrics(number: int, **figures: Any) -> dict[str, Any]:
    """A row of metrics.jsonl with every figure of the table; ``figures`` replace or add."""
    row = {
        "round": number, "heldout_loss": 2.25 - 0.125 * number, "heldout_rouge": 0.125 + 0.0625 * number,
        "attack_auc": 0.5 + 0.0625 * number, "attack_auc_low": 0.4375 + 0.0625 * number,
        "attack_auc_high": 0.5625 + 0.0625 * number, "attack_loss_auc": 0.5 + 0.03125 * number,
        "upload_auc": 0.5 + 0.125 * number if number else None,
        "attacks": {"attack": {"attack": "error zone", "members": 81, "others": 36, "each": {}}},
        "bytes_up": 1_500_000 * number,
        "bytes_down": 3_000_000 * number, "wall": 30.0, "peak_memory": 1_650_000_000,
        "seconds": {"train": 12.0, "evaluate": 6.0}, "counts": {}, "events": [],
    }  # fmt: skip
    return row | figures


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
    measured: Measured | None = None,
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
    folder.write_environment(
        Environment(
            "0.1", "3.12", "2.13", "Linux", 2, "cpu", "2025-11-21T09:17:03+00:00", "folder tiny", 1000, 10, packages
        )
    )
    folder.write_records(sites, Exclusions(0, 0, 0, 0), [])
    if measured is not None:
        folder.write_measured(measured)
    folder.write_metrics(rows)
    folder.write_disclosure(disclosure)
    if finished:
        folder.write_summary(
            Summary(name or path.name, method, seed or 0, 2, rows[-1], 4_500_000, 9_000_000, 90.0, 10**9)
        )
    return path
