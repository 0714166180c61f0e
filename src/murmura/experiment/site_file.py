"""What the owner of a site writes down: where its records are, and what runs may do with them."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator

from murmura.config import Section
from murmura.errors import ConfigError, nearest
from murmura.experiment.config import Experiment
from murmura.federation.wire.releases import Verbs
from murmura.methods import METHODS
from murmura.privacy.budget import BudgetConfig
from murmura.runs.schema import SITE_FILE


class Allow(Section):
    """What runs may do. A site answers no run that would do anything else."""

    methods: list[str] | None = None
    """Methods by name; any if not given."""
    rounds: int | None = Field(None, ge=1)
    """Most rounds."""
    measuring: bool = True
    """Measure on the site's records, as attacks on them do."""
    clear: bool = True
    """Have the server read what the site sends. If false, the site takes part in secure sums only."""

    @field_validator("methods")
    @classmethod
    def _are_known(cls, names: list[str] | None) -> list[str] | None:
        for name in names or ():
            if name not in METHODS:
                raise ValueError(f"there is no method '{name}'. {nearest(name, METHODS)}")
        return names

    def rejection_reason(self, experiment: Experiment, verbs: Sequence[Verbs]) -> str | None:
        """Why the owner does not allow a run; None if it is allowed.

        Args:
            verbs: that it may ask for.
        """
        method, rounds = experiment.method, experiment.method.total_rounds
        asked = [(one, verb) for one in verbs for verb in one.verbs()]
        measured = [verb for one, verb in asked if one.declaration(verb).measures and not one.is_free(verb)]
        if self.methods is not None and method.name not in self.methods:
            return f"the run's method is '{method.name}', and the owner allows {', '.join(self.methods) or 'none'}"
        if self.rounds is not None and rounds > self.rounds:
            return f"the run has {rounds} rounds, and the owner allows {self.rounds}"
        if not self.measuring and measured:
            return f"the run measures on private records ({', '.join(measured)}), which the owner does not allow"
        if not self.clear and not experiment.aggregation.secure:
            return "the run's sums are not secure, and the owner takes part in no others"
        return None


class SiteFile(Section):
    """``site.toml``. Paths are relative to its folder, in which the site keeps what it has of a run."""

    name: str = Field(min_length=1)
    """Known to the other members by it."""
    records: str
    """A file as for `data.train`."""
    fields: dict[str, str] = Field({})
    """Column of each field, where the names differ, as in `data.fields`."""
    federation: str
    """The folder of what members of the federation hand round: the experiment, and with secure sums the roster."""
    results: str = "results"
    """Where adapters of its own are left."""
    device: str = "auto"
    """As `model.device`."""
    budget: BudgetConfig = BudgetConfig()
    allow: Allow = Allow()

    @classmethod
    def load(cls, folder: Path) -> Self:
        """That of a site's folder, with absolute paths.

        Raises:
            ConfigError: it cannot be read, or an option is wrong.
        """
        path = folder / SITE_FILE
        try:
            found = cls.parse(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
        except OSError as error:
            what = f"the site's file cannot be read ({error.strerror})"
            raise ConfigError(what, where=str(path), fix="Name a site's folder.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"is not TOML ({error})", where=str(path)) from None
        named = ("records", "federation", "results")
        paths: dict[str, Any] = {name: str((folder / getattr(found, name)).resolve()) for name in named}
        if found.budget.folder is not None:
            accounts = str((folder / found.budget.folder).resolve())
            paths["budget"] = found.budget.model_copy(update={"folder": accounts})
        return found.model_copy(update=paths)
