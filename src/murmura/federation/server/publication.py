"""What of a run anybody may see, and what is for its owner alone: one policy for rows, traffic and single sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from murmura.errors import RunError
from murmura.federation.server.ledger import Ledger
from murmura.federation.wire.messages import Payload, field_sizes
from murmura.federation.wire.releases import Verbs, disclosed
from murmura.runs.schema import FEW
from murmura.units import rough

Row = dict[str, Any]
_TIMES = ("seconds", "at_sites", "wall", "peak_memory")  # of a row: they grow with what a round works on
_COUNTED = ("attack_", "upload_", "member_", "memorisation")  # beginnings of what sites count of their own records


class Publication:
    """Of a run that guarantees nothing: all may be seen.

    Args:
        ledger: where every message is entered.

    Attributes:
        told: what may be told of the traffic.
        withheld: why nobody but the run's owner may watch it before its end, in words; empty: anybody may.
        tells_all: nothing is for the owner alone.
        tells_sites: anybody may know whom a round has asked, and what single sites answered.
    """

    withheld = ""
    tells_all = tells_sites = True

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = self.told = ledger

    def enter(self, verbs: Verbs, verb: str, asked: int, alike: bool, like: Payload | None) -> tuple[Ledger, ...]:
        """Declare what a verb releases, before sites are asked for it.

        Args:
            asked: bytes of what all of them are sent alike.
            alike: nothing is sent to single ones.
            like: a reply as large as any; see ``Fleet.sum``.

        Returns:
            The ledgers in which the messages are then counted.

        Raises:
            RunError: what may be told of the messages cannot be known beforehand.
        """
        self.ledger.declare(verb, disclosed(verbs, verb), measures=verbs.declaration(verb).measures)
        return (self.ledger,)

    def begin(self) -> None:
        """A round begins."""

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        """Of the rows of all rounds, what may be seen."""
        return list(rows)

    def close(self, row: Row, figures: Mapping[str, Any]) -> None:
        """A round is over.

        Args:
            row: all there is to tell.
            figures: what was measured with public records.
        """

    def amend(self, told: Mapping[str, Any]) -> None:
        """Have the last row tell this instead of what it told of the same."""

    def timed(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows of which times and memory may be told."""
        return rows

    def state(self) -> dict[str, Any]:
        """What has travelled so far, and what may be told of it where that is something else."""
        return {"ledger": self.ledger.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a ``state``, unless more has travelled already."""
        self.ledger.restore(state["ledger"])

    def saved(self) -> dict[str, Any]:
        """What goes back with a checkpoint."""
        return {}

    def rewind(self, saved: Mapping[str, Any]) -> None:
        """Go back to what was ``saved``."""


class WithoutNumbers(Publication):
    """Of a run that guarantees something: neither how many records were attacked, nor times and memory, which grow with
    how many sites have, and with samples that ε counts on being secret."""

    withheld = "how long it takes tells of records"
    tells_all = False

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        return [_of_attacks({key: value for key, value in row.items() if key not in _TIMES}) for row in rows]

    def timed(self, rows: Sequence[Row]) -> Sequence[Row]:
        return ()


class OfSecretCohorts(WithoutNumbers):
    """Of a run whose ε counts on nobody knowing whom a round has asked, nor how many: of the traffic what is expected,
    which follows from public numbers; of a round what was measured, which follows from the noisy model and public
    records. Neither counts and losses nor events, which name who was asked.

    Args:
        cohort: expected sites in a cohort.
    """

    withheld = "its ε counts on secret cohorts"
    tells_sites = False

    def __init__(self, ledger: Ledger, cohort: float) -> None:
        super().__init__(ledger)
        self.told = Ledger()
        self._cohort, self._rows = cohort, list[Row]()
        self.begin()

    def enter(self, verbs: Verbs, verb: str, asked: int, alike: bool, like: Payload | None) -> tuple[Ledger, ...]:
        ledgers, declaration = super().enter(verbs, verb, asked, alike, like), verbs.declaration(verb)
        self.told.declare(verb, disclosed(verbs, verb), measures=declaration.measures)
        if declaration.measures or declaration.everyone:  # whoever measures is no cohort, nor are all sites
            return *ledgers, self.told
        if like is None or not alike:
            what = f"'{verb}' is asked of a secret cohort, and it is not known beforehand how large its messages are"
            fix = "The method has to ask for a sum, of all sites alike, and say what a reply is like."
            raise RunError(what, fix=fix)
        self.told.expect(verb, round(self._cohort), asked, field_sizes(like))
        return ledgers

    def begin(self) -> None:
        self._before = self.told.traffic()

    def rows(self, rows: Sequence[Row]) -> list[Row]:
        return super().rows(self._rows)

    def close(self, row: Row, figures: Mapping[str, Any]) -> None:
        self._rows.append(
            {
                "round": row["round"],
                **figures,
                **self.told.traffic().since(self._before),
                "expected": ["bytes_up", "bytes_down"],
                "epsilon": row["epsilon"],
                "privacy": row["privacy"],
            }
        )

    def amend(self, told: Mapping[str, Any]) -> None:
        self._rows[-1] |= told

    def state(self) -> dict[str, Any]:
        return super().state() | {"told": self.told.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.told.restore(state["told"])

    def saved(self) -> dict[str, Any]:
        return {"published": self._rows}

    def rewind(self, saved: Mapping[str, Any]) -> None:
        self._rows = saved["published"]


def _of_attacks(row: Row) -> Row:
    """A row in which nobody can read how many private records were attacked: shares of them are rough. That they were
    few is told, since such figures say little."""
    counted = [key for key in row if key.startswith(_COUNTED)]
    told = row | {key: rough(row[key]) for key in counted}
    for key in counted:
        if key.endswith("_n"):
            del told[key]
    if attacks := row.get("attacks"):
        told["attacks"] = {target: _attack(one) for target, one in attacks.items()}
    return told


def _attack(told: Mapping[str, Any]) -> dict[str, Any]:
    each = {name: rough(one) for name, one in told.get("each", {}).items()}
    return {**told, "members": None, "few": told["members"] < FEW, "each": each}
