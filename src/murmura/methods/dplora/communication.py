"""How many numbers travel, by the paper's formula."""

from __future__ import annotations

from typing import Any


def of_round(config: Any, sites: int, rank: int) -> int:
    """``K·L·r·2n`` (communication in Liu et al. 2023): numbers that travel one way in a round with K sites.

    It takes one square matrix of n × n in each of L layers to carry an adapter of rank r; real targets are more of
    them, and not all square.

    Args:
        config: the model's own, as transformers reads it.
        sites: K, the sites asked.
        rank: r.
    """
    text = config.get_text_config()
    return sites * int(text.num_hidden_layers) * rank * 2 * int(text.hidden_size)
