"""What a text costs that is written at the site from a private one: DP-Prompt (Utpala, Hooker and Chen 2023).

Each token is drawn by the exponential mechanism: of logits in [b₁, b₂], divided by the temperature T, any two documents
change the logarithm of a token's probability by 2(b₂ − b₁)/T at most. So n tokens of each of a site's m documents are
2mn(b₂ − b₁)/T-differentially private, with δ = 0 and without anybody to be trusted, for whichever documents in place of
as many others. They go through the model together, so that one of them has no smaller bound than all. It holds if the
logits are clipped before they are divided, with bounds that follow from no private text; if no token is left out, the
end of the text neither; and if n does not depend on the documents.
"""

from __future__ import annotations

import math

from murmura.privacy.parts import check

VOCABULARY = 2**20
"""Tokens that a model may have at most."""
_OFF = 2.0**-48
"""A token's probability is off by no more than this: draws are multiples of 2⁻⁵³, and what lies between two cumulative
probabilities is rounded, in a GPU's tree of partial sums some forty times, by half of 2⁻⁵³ each time."""
_LEAST, _MOST = 1e-6, 36.0  # ε of a token, which what is off must hardly change
_NARROWEST = 1e-6
"""Bounds that differ by less of the larger one, or by less at all, cut a model's logits down to their rounding."""


def temperature(epsilon: float, tokens: int, low: float, high: float, documents: int) -> float:
    """The lowest temperature with which a site that writes one text for each of its documents keeps within ``epsilon``
    (Utpala et al. 2023, Theorem 1), what a draw is off included.

    A token has a probability of e^(−(b₂ − b₁)/T)/V at least. With x the share of that which it may be off, two
    documents tell it apart by ln((1 + x)/(1 − x)) ≤ 4x more, where x is at most a half.

    Args:
        tokens: n, that each text may have at most.
        low: b₁, and ``high`` b₂, to which logits are clipped before they are divided by the temperature.
        documents: m, that a site has at most.

    Raises:
        PrivacyError: a number is out of its range.
    """
    check(0 < epsilon < math.inf, f"ε = {epsilon}", "Ask for a positive ε, which is not infinite.")
    check(tokens >= 1, f"texts of {tokens} tokens", "A text has at least 1 token.")
    check(documents >= 1, f"a site with {documents} documents", "Count at least 1 document.")
    fix = "Give finite bounds, the lower one first."
    check(-math.inf < low < high < math.inf, f"logits clipped to [{low:g}, {high:g}]", fix)
    far = high - low >= _NARROWEST * max(1.0, abs(low), abs(high))
    check(far, f"logits clipped to [{low!r}, {high!r}]", "Give bounds that are further apart than logits are exact.")
    each = epsilon / (tokens * documents)
    what, least = f"ε = {epsilon:g} for {tokens * documents} tokens", f"{_LEAST:g} to {_MOST:g}"
    check(_LEAST <= each <= _MOST, what, f"Ask for {least} a token: draws are not exact enough for others.")
    off = 4 * _OFF * VOCABULARY * math.exp(each / 2)
    return 2 * (high - low) / (each - off) * (1 + 1e-12)  # so that the way back does not round above ε
