"""The options of ``[personal]``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from murmura.config import Section

HELDOUT = 0.2
"""Share of a site's records that are set apart, if nobody says otherwise."""


class PersonalConfig(Section):
    """After the last round each site trains the global adapter further on its own records, for itself. What it gets is
    left with the site and never sent; how much each site gains, by that and by the global model, is a part of the
    report."""

    steps: int = Field(20, ge=1)
    """Optimiser steps at each site, in batches of training.batch_size."""
    lr: float | None = Field(None, gt=0, le=1e30)
    """Their learning rate; training.lr if not given."""
    part: Literal["all", "B"] = "all"
    """What trains. all: both factors. B: the factor B alone (with DoRA's magnitudes), over the A that all sites
    share."""
    heldout: float | None = Field(None, ge=0, lt=1)
    """Share of each site's own records that are set apart before the first round, so that nobody trains on them: on
    these each site measures the base model, the global one and its own, and sends the losses. If not given, 0.2, or 0
    where the run promises an ε, which would not cover them; at 0 no figures are told."""

    def apart(self, *, promises: bool) -> float:
        """The share that is set apart.

        Args:
            promises: the run promises an ε.
        """
        if self.heldout is None:
            return 0.0 if promises else HELDOUT
        return self.heldout
