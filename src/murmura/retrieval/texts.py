"""When two texts are the same, wherever they are held."""

from __future__ import annotations

import hashlib
import unicodedata


def text_hash(text: str) -> bytes:
    """SHA-256, 32 bytes, of a text in Unicode's composed form (NFC) with each run of whitespace as one space.

    A pool, a site and the cache all know a text by this, so that each can tell its own texts from others' without
    comparing them.
    """
    return hashlib.sha256(" ".join(unicodedata.normalize("NFC", text).split()).encode()).digest()
