"""What figures come to without skill: by answering from how often each answer is the right one, and from nothing else.

The level stands beside a figure in rows of ``metrics.jsonl``, under the figure's key and ``_guess``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence


def majority(answers: Sequence[Hashable]) -> float:
    """The accuracy of whoever always gives the most frequent answer, of at least one."""
    return Counter(answers).most_common(1)[0][1] / len(answers)


def loss(answers: Sequence[Hashable], tokens: Sequence[int] | None = None) -> float | None:
    """The loss of whoever gives each answer the share that it has of all the others, in nats.

    So an answer has no part in its own share, and where one occurs once only, as free texts do, nothing is known: None.

    Args:
        tokens: of each answer, where the loss is a mean over tokens; else it is one over answers.
    """
    counts = Counter(answers)
    if min(counts.values(), default=1) == 1:
        return None
    total = -sum(times * math.log((times - 1) / (len(answers) - 1)) for times in counts.values())
    return total / (len(answers) if tokens is None else sum(tokens))
