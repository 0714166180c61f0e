"""What a status says to people: labels and values, for a terminal and for the page alike."""

from __future__ import annotations

from murmura.measure.catalogue import CATALOGUE
from murmura.progress import clock
from murmura.status.status import Status
from murmura.units import bound, count, decimal, listing, size

_WORDS = {
    "waiting": "waiting for sites to be there",
    "running": "running",
    "stopped": "not running: it was stopped, or it failed; start it again with --resume",
    "finished": "finished",
}
_TITLES = {one.key: one.title for one in CATALOGUE}


def lines(status: Status) -> list[tuple[str, str]]:
    """What there is to tell, in order, as label and value."""
    told = [("Run", f"{status.name} ({status.method})"), ("State", _WORDS[status.state]), ("Round", _round(status))]
    if status.verb is not None:
        asked = f"{count(status.asked or 0)} {'site' if status.asked == 1 else 'sites'}"
        told.append(("Asked", f"{asked} for '{status.verb}', {count(status.left or 0)} to come"))
    if status.waiting:
        others = max((status.left or 0) - len(status.waiting), 0)
        more = [f"{count(others)} {'other' if others == 1 else 'others'}"] if others else []
        told.append(("Waited for", listing([*status.waiting, *more])))
    if status.bytes_up is not None and status.bytes_down is not None:
        told.append(("Travelled", f"{size(status.bytes_up)} from the sites, {size(status.bytes_down)} to them"))
    if status.epsilon is not None:
        caveat = f". {status.caveat}" if status.caveat else ""
        by = f", {status.by}" if status.by else ""
        at = "" if status.delta is None else f" for one {status.unit}, δ = {status.delta:g}"
        what = f"ε = {bound(status.epsilon)}{at}{by}{caveat}"
        told.append(("Guaranteed", what))
    elif status.refused:
        told.append(("Guaranteed", f"nothing: {status.refused}"))
    elif status.by:
        told.append(("Guaranteed", f"no ε can be told ({status.by})"))
    told += [(f"{_TITLES[key]}, round {status.measured}", decimal(one)) for key, one in status.figures.items()]
    if status.seconds_left is not None:
        told.append(("Time left", f"about {clock(status.seconds_left)}"))
    return told + [("Event", event) for event in status.events]


def _round(status: Status) -> str:
    saved = "nothing saved yet" if status.done is None else f"saved: {status.done}"
    of = "" if status.rounds is None else f" of {status.rounds}"
    return saved + of if status.round is None else f"{status.round}{of} ({saved})"
