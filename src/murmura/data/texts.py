"""When two texts are the same, wherever they are held."""

from __future__ import annotations

import hashlib
import unicodedata


def folded(text: str) -> str:
    """A text in Unicode's composed form (NFC) with each run of whitespace as one space, and none around it.

    Two texts with the same form are the same: what Excel, macOS and an export make of one differs in no more.
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


def text_hash(text: str) -> bytes:
    """SHA-256, 32 bytes, of the folded text.

    A pool, a site and the cache all know a text by this, so that each can tell its own texts from others' without
    comparing them.
    """
    return hashlib.sha256(folded(text).encode()).digest()
