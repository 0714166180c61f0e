"""The ε of several runs that share a row, seen together."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.errors import CheckpointError, PrivacyError
from murmura.privacy import odometer
from murmura.privacy.reported import rounded, target_of
from murmura.privacy.run_ledgers import RunLedgers
from murmura.privacy.standing import ledgers_of, without_places
from murmura.runs.record import RunRecord
from murmura.units import bound


def together(group: Sequence[RunRecord]) -> str:
    """The ε of everything that these runs released, and of what their options were chosen by, by their ledgers; the sum
    of their ε where ledgers are gone, or there are none since δ is 0, as of what protects by itself."""
    told = [run.last.privacy for run in group]
    others = any(run.chosen_by or run.beside for run in group)
    count = f"all {len(group)} runs" + " and those that options were chosen by" * others
    total, delta = (sum(one[name] for one in told) for name in ("epsilon", "delta"))
    added_up = f"{count}: at most {bound(total)}, δ = {delta:g}"
    if not (others or delta):
        return added_up
    ledgers: list[RunLedgers] = []
    try:
        ledgers = [one for run in group for one in ledgers_of(run.folder, run.beside)]
        found = odometer.together(ledgers, told[0]["unit"], told[0]["delta"]).value
    except CheckpointError:
        if others:
            return f"{count}: not known, since what some have spent is not here"
        return added_up
    except PrivacyError as error:
        return f"{count}: {without_places(error.what, ledgers)}"
    return f"{count}: {bound(rounded(found, target_of(group[0].options['method'], told[0]['unit'])))}"
