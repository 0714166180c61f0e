"""Where words end, in whatever script a text is."""

from __future__ import annotations

import re
import unicodedata

_ALONE = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Japanese, Chinese
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]"  # and their marks
)


def apart(text: str) -> str:
    """The text with spaces round each letter of scripts that have none between words, where each counts as a word, and
    in place of their punctuation."""
    return _ALONE.sub(_apart, text)


def count_words(text: str) -> int:
    """How many words there are between spaces; in scripts that have none, each letter counts as one."""
    return len(apart(text).split())


def _apart(found: re.Match[str]) -> str:
    return f" {found[0]} " if unicodedata.category(found[0])[0] in "LMN" else " "
