"""Benchmarks whose answers the model writes: each is one object, and here is the list of them."""

from __future__ import annotations

from typing import Any

from murmura.measure.benchmarks.benchmark import Benchmark
from murmura.measure.benchmarks.gsm8k import GSM8K
from murmura.measure.benchmarks.humaneval import HumanEval
from murmura.measure.benchmarks.sentiment import FPB, TFNS, FiQA

BENCHMARKS: dict[str, type[Benchmark[Any]]] = {one.name: one for one in (GSM8K, HumanEval, FPB, FiQA, TFNS)}
"""By name, in the order of reports. A new one has a table of its options in ``config.BenchmarksConfig``."""
