"""Options of FewFedWeight."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from murmura.federation.method_config import SampledMethodConfig


class FewFedWeightConfig(SampledMethodConfig):
    """Sites also learn from the global model's answers to their own prompts; the more familiar ones weigh more."""

    implementation: ClassVar[str] = "murmura.methods.fewfedweight.method:FewFedWeight"
    name: Literal["fewfedweight"] = "fewfedweight"
    pseudo_weight: float = Field(1.0, gt=0)
    """λ, the weight of an average pseudo record, where a private one has 1."""
    temperature: float = Field(1.0, gt=0)
    """T of the free energy −T·log Σ exp(z/T)."""
    weight_temperature: float = Field(1.0, gt=0)
    """T_w of the softmax over energies; large values make all pseudo records count alike."""
    largest_weight: float = Field(5.0, ge=1)
    """No pseudo record counts for more than this many average ones."""
    answer_tokens: int = Field(192, ge=1)
    """Most tokens of a pseudo response, and of an answer by which a site's error is measured."""
    error_records: int = Field(16, ge=1)
    """Own records that a site answers to find its error; all if it has fewer."""
