"""What has left a site: a line for every answer, on disk before the answer leaves, whatever becomes of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from murmura.federation.wire.layout import MASKED
from murmura.federation.wire.messages import Ask, Failure, Payload, Reply, digest, field_sizes
from murmura.federation.wire.releases import VOUCHED, VOUCHER, Release, SecureSum, protection_to_json
from murmura.harmless import harmless
from murmura.privacy.journal import Journal, now

_NOTED = 100
"""Most answers that are none that are entered while a process lives: a server could fill the disk with them."""
_WIDTH = 200  # most characters of what a server may have made up


class ReleaseJournal:
    """The journal of what has left one site, in all runs. It does not go back when a run does.

    A line has ``at`` (UTC), ``run``, ``round`` and ``verb``, and either ``fields`` or, of an answer that is none,
    ``failed``: what was said of it, which is the class of an error, and ``why``, which stays at the site. A field has
    its ``field``, ``kind`` and ``protection``, as ``protection_to_json`` has it; its ``bytes``, as the report counts
    them; and the SHA-256 of what left (``wire.messages.digest``), to which whoever received it can be held. Of a masked
    vector ``holds`` has the fields that are in it.

    Args:
        journal: where it is written.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._failed: set[tuple[str, str]] = set()

    def enter(self, ask: Ask, reply: Reply, declared: Mapping[str, Release], sum: SecureSum | None) -> None:
        """Enter a reply before it leaves.

        Args:
            declared: of each field what the verb says of it.
            sum: in which the reply leaves, if it does.

        Raises:
            CheckpointError: it cannot be written, so that the reply may not leave.
        """
        fields = list(_fields(ask, reply.fields, declared, sum))
        self._journal.append({"at": now(), "run": ask.run, "round": ask.round, "verb": ask.verb, "fields": fields})

    def enter_failure(self, ask: Ask, failure: Failure) -> None:
        """Enter an answer that is none; the same one once while the process lives.

        Raises:
            CheckpointError: it cannot be written.
        """
        why = failure.why if failure.error is None else harmless(str(failure.error))
        about = {"run": _short(ask.run), "round": _short(ask.round), "verb": _short(ask.verb)}
        said = (str(about["verb"]), why)
        if said in self._failed or len(self._failed) >= _NOTED:
            return
        self._journal.append({"at": now(), **about, "failed": failure.why, "why": why})
        self._failed.add(said)


def _fields(
    ask: Ask, fields: Payload, declared: Mapping[str, Release], sum: SecureSum | None
) -> Iterator[dict[str, Any]]:
    sizes = field_sizes(fields)
    for name, value in fields.items():
        sent = {"bytes": sizes[name], "sha256": digest({name: value}).hex()}
        if ask.masked is None:
            yield {**_declared(name, declared[name]), **sent}
            continue
        if name == VOUCHED:
            yield {**_declared(name, VOUCHER), **sent}
            continue
        inside = dict.fromkeys(field for field, *_ in ask.masked["layout"]["entries"])
        holds = [_declared(field, declared[field]) for field in inside if field in declared]
        yield {"field": MASKED, "kind": "masked", "protection": protection_to_json(sum), **sent, "holds": holds}


def _declared(name: str, release: Release) -> dict[str, Any]:
    return {"field": name, "kind": release.kind, "protection": protection_to_json(release.protection)}


def _short(value: Any) -> Any:
    """What a server has asked with, in characters that do nothing on the owner's terminal."""
    if isinstance(value, str):
        return harmless(value[:_WIDTH])
    return value if type(value) is int else type(value).__name__
