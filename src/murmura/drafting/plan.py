"""What is asked for when records are to be drafted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from murmura.generation.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """How many records are drafted for each site, and how.

    Args:
        drafts: how many.
        instructions_shown: own instructions shown to the model when it writes a new one.
        examples_shown: own records shown to it when it writes input and response.
        instruction_attempts: at an instruction per draft, on average; after that a site makes do with what it has.
        example_attempts: at input and response before an instruction is given up, and per draft on average.
        rouge: ROUGE-L above which a draft is too much like an own record, an earlier draft or its own question; at 1
            only equal texts are.
        alpaca_filters: drop also what Self-Instruct drops from data like Alpaca's.
        instruction_tokens: most tokens of a new instruction, and ``example_tokens`` of input and response together.
        sampling: how tokens are drawn; None takes the likeliest, so that variety comes from which records are shown.
    """

    drafts: int
    instructions_shown: int
    examples_shown: int
    instruction_attempts: int
    example_attempts: int
    rouge: float
    alpaca_filters: bool
    instruction_tokens: int
    example_tokens: int
    sampling: Sampling | None = None

    @property
    def most_tokens(self) -> int:
        """Most tokens that may be written for a site: every attempt made, and to its limit."""
        each = self.instruction_attempts * self.instruction_tokens + self.example_attempts * self.example_tokens
        return self.drafts * each
