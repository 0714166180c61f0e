"""The rule that a config names."""

from __future__ import annotations

from murmura.aggregation.config import AggregationConfig
from murmura.aggregation.robust import Krum, Median, NormBound, TrimmedMean
from murmura.aggregation.rules import FFA, FedEx, FedSA, FlexLoRA, FLoRA, LoRAFair, Mean, RoLoRA, Rule

RULES: dict[str, type[Rule]] = {
    "mean": Mean,
    "ffa": FFA,
    "rolora": RoLoRA,
    "fedsa": FedSA,
    "fedex": FedEx,
    "flora": FLoRA,
    "flexlora": FlexLoRA,
    "fair": LoRAFair,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "norm-bound": NormBound,
}


def rule(config: AggregationConfig) -> Rule:
    """The rule of these options."""
    return RULES[config.rule.kind](config)
