"""Asks and replies as bytes, and the other things that an engine tells a process with sites in it.

A frame is one buffer of ``messages.encode``: ``head`` is JSON, and every field of a payload stands under
``PLACE.FIELD``, where PLACE is ``*`` for all sites or a site's place in the head's list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from murmura.errors import RunError
from murmura.federation.wire.messages import LATE, Ask, Failure, Payload, Reply, decode, encode

_ALL = "*"
_LENGTH = 8  # bytes of a length
_CLASS = re.compile(r"[A-Za-z_]\w{0,80}", re.ASCII)


def frame(head: Mapping[str, Any], parts: Mapping[str, Payload] | None = None) -> bytes:
    """One buffer.

    Args:
        head: JSON.
        parts: payloads by place.
    """
    fields = {f"{place}.{name}": value for place, part in (parts or {}).items() for name, value in part.items()}
    return encode({"head": dict(head), **fields})


def unframe(buffer: bytes) -> tuple[dict[str, Any], dict[str, Payload]]:
    """The inverse of ``frame``; places without a field are not there.

    Raises:
        RunError: the buffer is damaged.
    """
    payload = decode(buffer)
    head, parts = payload.pop("head", None), dict[str, Payload]()
    if not isinstance(head, dict):
        raise RunError("a message is damaged: it has no head")
    for key, value in payload.items():
        place, _, name = key.partition(".")
        parts.setdefault(place, {})[name] = value
    return head, parts


def ask_frame(ask: Ask, sites: Sequence[str], **head: Any) -> bytes:
    """An ask with the sites that it goes to, all of which live in one process; what all of them get is there once."""
    told = {"verb": ask.verb, "round": ask.round, "run": ask.run, "seconds": ask.seconds}
    told |= {"sites": list(sites), "masked": ask.masked}
    each = [ask.each.get(site, {}) for site in sites]
    alike = _alike(each, ask.shared)
    own = {str(k): {name: one[name] for name in one if name not in alike} for k, one in enumerate(each)}
    return frame({**head, **told}, {_ALL: {**ask.shared, **alike}, **own})


def _alike(each: Sequence[Payload], shared: Payload) -> Payload:
    """Fields for single sites that are one object for all of them, such as an adapter that they are to attack."""
    first, *others = each or [{}]
    return {
        name: value
        for name, value in first.items()
        if name not in shared and all(name in one and one[name] is value for one in others)
    }


def ask_of(head: Mapping[str, Any], parts: Mapping[str, Payload]) -> tuple[Ask, list[str]]:
    """The inverse of ``ask_frame``, unframed."""
    sites: list[str] = head["sites"]
    each = {site: parts.get(str(place), {}) for place, site in enumerate(sites)}
    ask = Ask(head["verb"], head["round"], parts.get(_ALL, {}), each, head["run"], head["seconds"], head["masked"])
    return ask, sites


def answer_frame(answer: Reply | Failure) -> bytes:
    """A reply; or a failure, of which nothing but the site and the class of what went wrong travels."""
    if isinstance(answer, Failure):
        return frame({"failed": answer.why, "site": answer.site})
    return frame({"site": answer.site}, {_ALL: answer.fields})


def answer_of(head: Mapping[str, Any], parts: Mapping[str, Payload]) -> Reply | Failure:
    """The inverse of ``answer_frame``, unframed.

    Raises:
        RunError: it does not say by its name which site answers.
    """
    site = head.get("site")
    if not isinstance(site, str):
        raise RunError("a message is damaged: it names no site")
    if "failed" in head:
        return Failure(site, named(head["failed"]))
    return Reply(site, parts.get(_ALL, {}))


def named(why: Any) -> str:
    """What a site says that has gone wrong, if it is ``LATE`` or the name of an error's class: it is shown on terminals
    and pages, and would else be a text of the site's choosing."""
    known = isinstance(why, str) and (why == LATE or _CLASS.fullmatch(why))
    return str(why) if known else "an error without a name"


def joined(frames: Iterable[bytes]) -> bytes:
    """Frames one after the other, each behind its length."""
    return b"".join(part for one in frames for part in (len(one).to_bytes(_LENGTH), one))


def parted(buffer: bytes) -> list[bytes]:
    """The inverse of ``joined``.

    Raises:
        RunError: the buffer is damaged.
    """
    frames, place = [], 0
    while place < len(buffer):
        start = place + _LENGTH
        place = start + int.from_bytes(buffer[place:start])
        if place > len(buffer):
            raise RunError("a message is cut short")
        frames.append(buffer[start:place])
    return frames
