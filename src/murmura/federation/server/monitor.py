"""What the server asks of whoever measures its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from murmura.federation.server.fleet import Fleet
from murmura.training.adapter import State


class Monitor(Protocol):
    """What measures a run from outside its method.

    Attributes:
        evaluation_set: the server's public records, for the monitor and for a method that needs them.
    """

    evaluation_set: Any

    @property
    def listens(self) -> bool: ...

    def begin(self, round: int) -> None: ...

    def observe_upload(self, site: str, upload: State) -> None: ...

    def due(self, round: int, last: int) -> bool: ...

    def measure(
        self, adapter: State, fleet: Fleet, personal: Sequence[str], common: Mapping[str, State] | None, *, last: bool
    ) -> dict[str, Any]: ...

    def words(self, row: Mapping[str, Any]) -> str:
        """The figures of a row, for the line that ends its round."""
        ...
