"""Where words end, in whatever script a text is."""

from __future__ import annotations

import re

_ALONE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"  # Japanese, Chinese
)


def apart(text: str) -> str:
    """The text with spaces round each letter of scripts that have none between words: there each counts as a word."""
    return _ALONE.sub(r" \g<0> ", text)


def count_words(text: str) -> int:
    """How many words there are between spaces; in scripts that have none, each letter counts as one."""
    return len(apart(text).split())
