"""Records that nobody uses, and records that stand where they should not: found, told, and kept in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from murmura.data.check import repeats
from murmura.data.config import DataConfig
from murmura.data.layout import BadRecord, Place
from murmura.data.refusal import SKIP, indented
from murmura.data.texts import folded
from murmura.errors import DataError
from murmura.progress import say
from murmura.reading import Reading
from murmura.units import several

_NAMED = 5  # names or places in a message
_LEFT_OUT = {
    "bad": "{count} bad {named} {are} left out",
    "overlap": "{count} held-out {named} that a site has too {are} left out",
    "measured": "{count} {named} that the run is measured on {are} left out",
    "user": "{count} {named} {are} left out, of persons with more than data.records_per_user",
    "long": "{count} {named} {do} not fit {room} and {are} left out",
}
"""By cause, in the order in which they are told."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A record and where it stands.

    Attributes:
        site: whose it is; empty in one file that is shared out, None in a file of held-out records.
        label: what a partition mixes, where a column has it.
        user: whom it is about, if that is known.
        shortened: it does not fit the model as it is.
    """

    record: Any
    where: Place
    site: str | None
    label: str | None = None
    user: str | None = None
    shortened: bool = False

    def order(self) -> tuple[str, int]:
        """By file and line, to sort with."""
        return self.where.file, self.where.number


@dataclass(frozen=True, slots=True)
class Unused:
    """A record that nobody trains on and nothing is measured on, and why; ``why`` quotes no text of it.

    ``cause`` is "bad" for one that cannot be used, "overlap" for a held-out one that a site has too, "measured" for one
    of a real site's that is held out, "user" for one more of a person than a site may have, and "long" for one that
    does not fit the model. ``site`` is as of ``Placed``.
    """

    where: Place
    cause: Literal["bad", "overlap", "measured", "user", "long"]
    why: str
    site: str | None = None

    @staticmethod
    def bad(record: BadRecord) -> Unused:
        return Unused(record.where, "bad", record.why)

    def row(self) -> dict[str, Any]:
        """What the run folder keeps of it."""
        where = self.where
        return {"file": where.file, where.unit: where.number, "cause": self.cause, "reason": self.why}


def find_overlap(groups: Mapping[str, Sequence[Placed]], public: Sequence[Placed], data: DataConfig) -> list[Unused]:
    """The held-out records that a site has too; of labelled ones the text counts, since a site's may have no label yet.

    Raises:
        DataError: there are such records, and ``skip_bad`` is off.
    """
    private = {placed.record.identity: placed.where for records in groups.values() for placed in records}
    shared = sorted((placed for placed in public if placed.record.identity in private), key=Placed.order)
    owned = [private[placed.record.identity] for placed in shared]
    if shared and not data.skip_bad:
        raise _overlap(shared, owned, data)
    return [
        Unused(t.where, "overlap", f"held out, and a site has it too: {p}") for t, p in zip(shared, owned, strict=True)
    ]


def _overlap(shared: Sequence[Placed], owned: Sequence[Place], data: DataConfig) -> DataError:
    """What to tell of held-out records that are private ones too."""
    single = len(shared) == 1
    measure = f"so {'it' if single else 'they'} would measure memory and not skill"
    lines = indented([f"{one.where}: the same as {place}" for one, place in zip(shared, owned, strict=True)])
    public = None if data.heldout is None else str(Path(data.heldout))
    if public is None or not any(one.where.file.startswith(public) for one in shared):
        what = f"{len(shared)} held-out {'record stands' if single else 'records stand'} at a site too"
        fix = "Keep every record once, or have the held-out ones left out and counted: --skip-bad."
        return DataError(f"{what}, {measure}:{lines}", where=data.train, fix=fix)
    what = f"{len(shared)} public {'record is also a private one' if single else 'records are also private ones'}"
    fix = "Remove from one of the two what is in both, or have the public ones left out and counted: --skip-bad."
    return DataError(f"{what}, {measure}:{lines}", where=data.heldout, fix=fix)


def tell_asked(groups: Mapping[str, Sequence[Placed]], public: Sequence[Placed]) -> int:
    """How many held-out records ask what a site's record asks too, and have another answer; said where there are any.
    They stay: whether that is a fault depends on what questions are."""
    own = {folded(placed.record.question or "") for records in groups.values() for placed in records} - {""}
    found = sum(folded(placed.record.question or "") in own for placed in public)
    if found:
        ask = "asks" if found == 1 else "ask"
        say(
            f"{found} of {several(len(public), 'held-out record')} {ask} what a site's record asks, with another "
            "answer: what is measured so is in part what the model remembers"
        )
    return found


def fitting(records: Sequence[Placed], data: DataConfig, reading: Reading) -> tuple[list[Placed], list[Unused]]:
    """The records that the model can take, and the others: what does not fit ``data.max_length`` tokens, or has an
    unknown label.

    Raises:
        DataError: a label is unknown (and ``skip_bad`` off).
    """
    found = reading.fit([placed.record for placed in records])
    kept, shortened = set(found.kept), set(found.shortened)
    usable = [replace(records[index], shortened=index in shortened) for index in found.kept]
    others = [placed for index, placed in enumerate(records) if index not in kept]
    if found.dropped:
        why = f"does not fit {data.max_length} tokens"
        return usable, [Unused(placed.where, "long", why, placed.site) for placed in others]
    if others and not data.skip_bad:
        raise _unknown_labels(others, len(records), *reading.unknown([placed.record.label for placed in others]))
    return usable, [Unused(placed.where, "bad", "no words are given for its label", placed.site) for placed in others]


def _unknown_labels(unknown: Sequence[Placed], of: int, shown: Sequence[str], hint: str) -> DataError:
    """What to tell of records whose label no words are given for.

    Args:
        of: how many records there are.
        shown: the label of each as it may be shown.
        hint: what to do about it, if not to skip them.
    """
    pairs = sorted(zip(unknown, shown, strict=True), key=lambda pair: pair[0].order())
    lines = [f"{placed.where}: {label}" for placed, label in pairs]
    what = f"no words are given for the labels of {len(unknown)} of {of} records:{indented(lines)}"
    return DataError(what, fix=f"{hint} {SKIP}")


def tell_repeats(groups: Mapping[str, Sequence[Placed]]) -> None:
    """Say which sites have a record more than once. They keep it: it then counts more than others do."""
    for name, records in groups.items():
        found = repeats([placed.record for placed in records], [placed.where for placed in records])
        if found:
            which = _few([f"{repeat.where} is {repeat.why}" for repeat in found], "; ")
            say(f"site {name} keeps {len(found)} repeated record{'s' * (len(found) > 1)}: {which}")


def tell(unused: Sequence[Unused], room: str, what: str = "record") -> None:
    """Say how many records, or whatever they are called, nobody uses, by cause, and name some.

    Args:
        room: what those that are too long do not fit, in words.
    """
    for cause, words in _LEFT_OUT.items():
        places = sorted((one.where for one in unused if one.cause == cause), key=lambda at: (at.file, at.number))
        if places:
            named, are, do = (what, "is", "does") if len(places) == 1 else (f"{what}s", "are", "do")
            told = words.format(count=len(places), named=named, are=are, do=do, room=room)
            say(f"{told}: {_few(list(map(str, places)))}")


def tell_of_empty(names: Sequence[str], when: str) -> None:
    """Say which sites are left out because they have no record."""
    if names:
        say(f"sites without a record {when}, {len(names)} in all, are left out: {_few(names)}")


def _few(names: Sequence[str], between: str = ", ") -> str:
    return between.join(names[:_NAMED]) + (" ..." if len(names) > _NAMED else "")
