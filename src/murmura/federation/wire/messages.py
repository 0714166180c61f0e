"""What server and sites exchange, and how it is encoded.

A payload is a dict whose values are states (name -> tensor), tensors, or anything JSON can hold. On the wire and in a
checkpoint it is one safetensors buffer: the tensors packed one after the other behind their manifest, the rest as JSON
in the buffer's metadata. Nothing is ever pickled.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from murmura.errors import RunError

VERSION = 4
"""Of what server and sites send one another, and of what they know records by; both sides must have the same."""

Payload = dict[str, Any]

JOIN = "join"
"""The verb by which a site takes part in a run (``federation.membership``); before it, it is asked for nothing."""

LATE = "time is up"
"""Why a site that did not answer within the seconds of an ask has failed."""

_SEPARATOR = "\x1f"  # between a field and the tensor's own name
_JSON = "json"  # the metadata entry that holds all but the tensors


@dataclass(frozen=True)
class Ask:
    """What sites are asked: the verb, the round, and each site's fields.

    Fields that all sites get alike travel once where sites share a process; a verb sees one set of fields either way.

    Args:
        verb: what is asked for.
        round: counted from 1; 0 before training.
        shared: fields for every site.
        each: further fields for single sites, by name; they go before shared ones of the same name.
        run: which run asks; a site answers only the run that it has joined.
        seconds: after which nobody waits for an answer any more, so that the site gives none; None: without limit.
        masked: JSON, the terms of the secure sum in which the replies are to leave; None: they are read one by one.
    """

    verb: str
    round: int
    shared: Payload = field(default_factory=dict)
    each: Mapping[str, Payload] = field(default_factory=dict)
    run: str = ""
    seconds: float | None = None
    masked: Mapping[str, Any] | None = None

    def payload(self, site: str) -> Payload:
        """What one site receives."""
        return {**self.shared, **self.each.get(site, {})}

    def __getitem__(self, name: str) -> Any:
        """A field that all sites were sent alike, such as the learning rate.

        Raises:
            RunError: sites were sent different ones, or none; read it with ``Cohort.given``.
        """
        own = [fields[name] for fields in self.each.values() if name in fields]
        if not own and name in self.shared:
            return self.shared[name]
        alike = all(value is own[0] or value == own[0] for value in own)
        if not own or name in self.shared or len(own) < len(self.each) or not alike:
            raise RunError(f"'{name}' is not a field that every site was sent alike", where=f"verb {self.verb}")
        return own[0]

    def narrowed(self, sites: Sequence[str]) -> Ask:
        """The same ask, of some of its sites."""
        return replace(self, each={site: self.each.get(site, {}) for site in sites})


@dataclass(frozen=True)
class Reply:
    """What one site sends back."""

    site: str
    fields: Payload

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


@dataclass(frozen=True)
class Failure:
    """A site that was asked and did not answer.

    Args:
        site: its name.
        why: ``LATE``; the class of what went wrong at the site, where what it says stays, since that may quote records;
            or where nothing at all will come of the site any more, how it went, in the engine's words.
        error: what went wrong itself, where the site is in this process; it never travels.
    """

    site: str
    why: str
    error: Exception | None = field(default=None, compare=False)


def encode(payload: Payload) -> bytes:
    """One buffer.

    Tuples come back as lists, and a dict's keys as strings: that is JSON's way. Everything else comes back as it was.

    Raises:
        RunError: a value is neither tensors nor JSON.
    """
    from safetensors.torch import save

    tensors, rest = _split(payload)
    return save(_apart(tensors), {_JSON: _json(rest)})


def write(payload: Payload, path: Path) -> None:
    """The buffer of ``encode`` in a new file that nobody but its owner may read, without a second copy of what lies on
    the CPU: a whole model's is gigabytes.

    Raises:
        OSError: it cannot be written.
        RunError: as ``encode``.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors, rest = _split(payload)
    try:
        save_file(_apart(tensors), path, {_JSON: _json(rest)})  # which nobody else may read
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        code, why = (int(number[1]), os.strerror(int(number[1]))) if number else (errno.EIO, str(error))
        raise OSError(code, why) from error


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors on the CPU, none in the memory of another: safetensors refuses tensors that share memory, and fields may:
    an adapter sent back as it came."""
    found, held = {}, set()
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        found[name] = plain.clone() if plain.untyped_storage().data_ptr() in held else plain
        held.add(plain.untyped_storage().data_ptr())
    return found


def decode(buffer: bytes) -> Payload:
    """The inverse of ``encode``.

    Raises:
        RunError: the buffer is not one that ``encode`` made, has a field twice, or is cut short. Bytes that changed
            within a tensor are not noticed here; transports have checksums, and so have checkpoints.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        length = int.from_bytes(buffer[:8], "little")
        rest = json.loads(json.loads(buffer[8 : 8 + length])["__metadata__"][_JSON])
        single, states = Payload(), Payload()
        for name, tensor in load(buffer).items():
            head, inside, inner = name.partition(_SEPARATOR)
            if inside:
                states.setdefault(head, {})[inner] = tensor
            else:
                single[head] = tensor
        payload = {**rest, **single, **states}
        if len(payload) < len(rest) + len(single) + len(states):
            raise ValueError("a field is there as tensors and as something else")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"a message or checkpoint part is damaged ({error})") from error
    return payload


def size(payload: Payload) -> int:
    """Bytes of the tensors and of the JSON, without the manifest: the same for every engine.

    Raises:
        RunError: as ``encode``.
    """
    tensors, rest = _split(payload)
    return sum(t.numel() * t.element_size() for t in tensors.values()) + (len(_json(rest)) if rest else 0)


def field_sizes(payload: Payload) -> dict[str, int]:
    """Bytes of each field."""
    return {name: size({name: value}) for name, value in payload.items()}


def digest(payload: Payload) -> bytes:
    """SHA-256 of all fields, whatever order they are in; the same wherever a payload was encoded and decoded.

    Raises:
        RunError: as ``encode``.
    """
    tensors, rest = _split(payload)
    known = {name: json.dumps(value, sort_keys=True).encode() for name, value in rest.items()}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        head = f"{plain.dtype} {tuple(plain.shape)} ".encode()
        known[name] = head + hashlib.sha256(plain.flatten().view(torch.uint8).numpy().data).digest()
    whole = hashlib.sha256()
    for name in sorted(known):
        for part in (name.encode(), known[name]):
            whole.update(len(part).to_bytes(8) + part)
    return whole.digest()


def _split(payload: Payload) -> tuple[dict[str, torch.Tensor], Payload]:
    tensors: dict[str, torch.Tensor] = {}
    rest: Payload = {}
    for name, value in payload.items():
        if _SEPARATOR in name:
            raise RunError(f"a field of a message is called {name!r}, which holds the separator of names")
        if isinstance(value, torch.Tensor):
            tensors[name] = value
        elif isinstance(value, Mapping) and value and all(isinstance(v, torch.Tensor) for v in value.values()):
            tensors.update({f"{name}{_SEPARATOR}{inner}": tensor for inner, tensor in value.items()})
        else:
            rest[name] = value
    return tensors, rest


def _json(rest: Payload) -> str:
    try:
        return json.dumps(rest)
    except (TypeError, ValueError, RecursionError) as error:
        raise RunError(f"a message holds something that is neither tensors nor JSON ({error})") from error
