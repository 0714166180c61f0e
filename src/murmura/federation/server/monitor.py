"""What the server asks of whoever measures its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from murmura.federation.server.fleet import Fleet
from murmura.training.adapter import State


class Monitor(Protocol):
    """What measures a run from outside its method.

    Attributes:
        yardstick: the server's public records; what they are is the monitor's affair, and a method's that needs them.
    """

    yardstick: Any

    @property
    def listens(self) -> bool: ...

    def begin(self, round: int) -> None: ...

    def hear(self, site: str, upload: State) -> None: ...

    def due(self, round: int, last: int) -> bool: ...

    def measure(
        self,
        adapter: State,
        fleet: Fleet,
        personal: Sequence[str],
        common: Mapping[str, State] | None,
        *,
        last: bool,
    ) -> dict[str, Any]: ...

    def words(self, row: Mapping[str, Any]) -> str:
        """The figures of a row, for the line that ends its round."""
        ...
