"""The candidates: where they come from, and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from murmura.data import tokenising
from murmura.data.loading import load_records
from murmura.data.records import Document
from murmura.data.refusal import REMOVE
from murmura.data.texts import text_hash
from murmura.errors import DataError
from murmura.federation.wire.messages import Reply
from murmura.methods.pretext.config import PretextConfig
from murmura.progress import say
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.search import Vectors
from murmura.streams import Stream
from murmura.synthesis import prompts
from murmura.words import count_words


def read(config: PretextConfig) -> list[str]:
    """The public texts of more than ``public_words`` words.

    Raises:
        DataError: the file cannot be read, or holds none.
    """
    assert config.public is not None, "the options need it"
    found = load_records(
        config.public,
        Document,
        fields=config.public_fields,
        split=config.public_split,
        renaming="method.public_fields = {{{field} = '{column}'}}",
        remedy=REMOVE,
    )
    texts = [one.text for one in found.records if count_words(one.text) > config.public_words]
    if not texts:
        fix = "Lower method.public_words, or name another file."
        raise DataError(f"no public text has more than {config.public_words} words", where=config.public, fix=fix)
    return texts


def public_texts(config: PretextConfig, measured_with: Iterable[str]) -> list[str]:
    """The public texts that candidates may be drawn from.

    Args:
        measured_with: texts that the run is measured with, which are left out.

    Raises:
        DataError: as ``read``, or none is left.
    """
    texts, held_out = read(config), {text_hash(text) for text in measured_with}
    kept = [text for text in texts if text_hash(text) not in held_out]
    if not kept:
        fix = "Name another file."
        raise DataError("every public text is one that the run is measured with", where=config.public, fix=fix)
    if len(kept) < len(texts):
        say(f"{len(texts) - len(kept)} public texts are ones that the run is measured with, and are not drawn")
    return kept


def too_many(reply: Reply, most: int | None) -> str | None:
    """Why not all texts that a site has sent can be its own, in words; None where they can.

    Args:
        most: how many it can have; None where nobody knows.
    """
    texts = reply.fields.get("texts") or ()
    return None if most is None or len(texts) <= most else f"it holds more than {most} texts"


def sent(replies: Iterable[Reply], sites: Sequence[str]) -> list[str]:
    """The texts that sites have sent, in the order of the sites, whoever answered first."""
    found = {reply.site: reply.fields.get("texts") or [] for reply in replies}
    return [text for site in sites for text in found.get(site, [])]


def found_among_public(config: PretextConfig, texts: Iterable[str]) -> int:
    """How many of some texts are public ones too.

    Raises:
        DataError: as ``read``.
    """
    public = {text_hash(text) for text in read(config)}
    return sum(text_hash(text) in public for text in texts)


def drawn(
    texts: Sequence[str], count: int, stream: Stream, fit: Callable[[Sequence[str]], list[str]], *, again: bool
) -> list[str]:
    """So many of the texts, drawn without replacement, as ``fit`` makes them.

    Args:
        fit: shortens texts; those of which nothing is left are passed over.
        again: where there are too few, take them again, none of them more than once more often than another one; else
            there are no more.
    """
    order, found = stream.python().sample(texts, len(texts)), list[str]()
    while order and len(found) < count:
        found += [text for text in fit(order[:count]) if text]
        del order[:count]
    return [found[place % len(found)] for place in range(count)] if again and found else found[:count]


def shortened(texts: Sequence[str], tokenizer: Any, most: int, *, mended: bool) -> list[str]:
    """Texts of at most so many tokens, their beginning and end not counted. A longer one loses its end; ``mended`` it
    loses half a sentence with it, which may leave nothing."""
    repair = prompts.mended if mended else str.strip
    ids = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [
        text if len(own) <= most else repair(tokenising.shortened(text, own, most, tokenizer))
        for text, own in zip(texts, ids, strict=True)
    ]


def places(encoder: Encoder, variations: Sequence[Sequence[str]]) -> Vectors:
    """Where candidates stand, float32 [n, d]: each where the mean of its variations' vectors is, which is not brought
    to length 1 again (Hou et al. 2024, Algorithm 1).

    Args:
        variations: of each candidate, equally many.
    """
    vectors = encoder.embed([text for own in variations for text in own])
    grouped = vectors.reshape(len(variations), -1, vectors.shape[1])
    return np.ascontiguousarray(grouped.mean(axis=1, dtype=np.float64).astype(np.float32))
