"""What the owner of a site writes down: where its records are, and what runs may do with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import realpath
from pathlib import Path
from typing import Any, Self

from pydantic import Field, field_validator, model_validator

from murmura.config import Section, read_toml
from murmura.errors import ConfigError, PrivacyError, nearest
from murmura.experiment.config import Device, Experiment
from murmura.federation.method import Method
from murmura.federation.wire.releases import Verbs, rows_of
from murmura.measure.verbs import Measuring
from murmura.methods import METHODS
from murmura.personal.verbs import Personalising
from murmura.privacy.budget import BudgetConfig
from murmura.privacy.guarantee import Guarantee
from murmura.runs.names import SITE_FILE
from murmura.units import bound, listing

_VERBS = (Measuring.assess, Measuring.attack, Measuring.memorise, Personalising.personalise)
_MEASURING = tuple(verb.__name__ for verb in _VERBS)
_MANY = 1000  # sites, where all are in every round: their number is in no ε of such a run


@dataclass(frozen=True)
class AskedOf:
    """A run as one site sees it before it begins.

    Args:
        verbs: that it may ask for; the method's first.
        records: how many the site has.
        sites: of the federation; None where the site is not told.
        fitting: whether these are the records that fit the model; without its tokenizer nobody knows which do.
    """

    experiment: Experiment
    method: Method
    verbs: Sequence[Verbs]
    records: int
    sites: int | None = None
    fitting: bool = True

    @property
    def measured(self) -> list[str]:
        """The verbs that measure it on private records."""
        asked = [(one, verb) for one in self.verbs for verb in one.verbs()]
        return [verb for one, verb in asked if one.declaration(verb).measures and not one.is_free(verb)]

    @property
    def clear(self) -> list[str]:
        """What the server reads of this site by itself and follows from what its records say: field and verb, with the
        option without which it would not be asked."""
        found = []
        for one, row in rows_of(self.verbs):
            if row.kind != "keys" and not one.is_free(row.verb) and one.secure(row.verb) is None:
                option = one.declaration(row.verb).option
                found.append(f"'{row.field}' of verb {row.verb}{f' ({option})' if option else ''}")
        return found

    @property
    def reads(self) -> int:
        """Most of the site's records that a round's answers depend on."""
        return min(self.records, sum(one.reads(self.records, self.experiment.training) for one in self.verbs))

    @property
    def guarantee(self) -> Guarantee | None:
        """What the run promises: of records, for a site with so many; of sites, where it is not known how many there
        are, for as few as can be, of which ε is the largest.

        Raises:
            PrivacyError: the plan makes no sense for a site with so many records, or for so few sites; or it is not
                known how many a site has, and fewer have a larger ε.
        """
        if self.method.protects == "record" and not self.fitting:
            name = self.experiment.model.name
            what = f"which records fit takes the tokenizer of '{name}', which `murmura models fetch {name}` gets"
            raise PrivacyError(what)
        sites = 1
        if self.method.protects == "site":
            sites = self.sites or self.experiment.method.cohort_size or _MANY
        return self.method.guarantee([self.records] * sites, self.experiment.training)

    @property
    def promised(self) -> dict[str, Any] | None:
        """The same in figures, as a site notes it of a run that it has answered; None where nothing is promised.

        Raises:
            PrivacyError: as ``guarantee``.
        """
        found = self.guarantee
        spent = found.spent if found else None
        if found is None or spent is None:
            return None
        return {"unit": found.unit, "adjacency": spent.adjacency, "epsilon": spent.value, "delta": spent.delta}


class Allow(Section):
    """What runs may do. A site answers no run that would do anything else."""

    ask: bool = True
    """Answer only runs of an experiment to which the owner has said yes (`murmura site consent`): for each time that
    they have, one. If false, the owner has said so beforehand, for whatever is within the limits below."""
    methods: list[str] | None = None
    """Methods by name; any if not given."""
    rounds: int | None = Field(None, ge=1)
    """Most rounds."""
    records: int | None = Field(None, ge=1)
    """Most of the site's records that a round may use, in training and measuring together."""
    epsilon: float | None = Field(None, gt=0)
    """Most that the ε may be that the run promises, for one record (of several it is larger) or for a whole site,
    whichever it protects. A run that promises none is not answered, nor one that measures on the site's records, which
    no ε covers. With ``ask = false`` it is for all runs together that the site's folder, or ``budget.folder``, knows
    of, whose ε and δ are added up; else for each, and over several counts `budget`."""
    delta: float = Field(1e-5, gt=0, lt=1)
    """Most that the δ may be that belongs to it."""
    measuring: bool | list[str] = True
    """Measure on the site's records, as attacks on them do; or the verbs that may, such as ["memorise"]."""
    clear: bool = True
    """Have the server read what the site sends. If false, all that is computed from the site's records leaves in secure
    sums; a run that sends anything of it besides, such as counts of attacks, is not answered."""

    @field_validator("methods")
    @classmethod
    def _are_known(cls, names: list[str] | None) -> list[str] | None:
        for name in names or ():
            if name not in METHODS:
                raise ValueError(f"there is no method '{name}'. {nearest(name, METHODS)}")
        return names

    @field_validator("measuring")
    @classmethod
    def _measure(cls, verbs: bool | list[str]) -> bool | list[str]:
        for name in () if isinstance(verbs, bool) else verbs:
            if name not in _MEASURING:
                raise ValueError(f"'{name}' measures nothing. {nearest(name, _MEASURING)}")
        return verbs

    @model_validator(mode="after")
    def _delta_belongs_to_epsilon(self) -> Allow:
        if self.epsilon is None:
            self.refuse_idle(["delta"], "without allow.epsilon")
        return self

    def rejection_reason(self, run: AskedOf) -> str | None:
        """Why the owner does not allow a run; None if it is allowed."""
        method, rounds = run.experiment.method, run.experiment.method.total_rounds
        if self.methods is not None and method.name not in self.methods:
            return f"the run's method is '{method.name}', and the owner allows {', '.join(self.methods) or 'none'}"
        if self.rounds is not None and rounds > self.rounds:
            return f"the run has {rounds} rounds, and the owner allows {self.rounds}"
        if self.records is not None and run.reads > self.records:
            return f"a round uses {run.reads} of the site's {run.records} records, and the owner allows {self.records}"
        if self.measuring is not True and (others := set(run.measured) - set(self.measuring or ())):
            return f"the run measures on private records ({', '.join(sorted(others))}), which the owner does not allow"
        if not self.clear and not run.experiment.aggregation.secure:
            return "the run's sums are not secure, and the owner takes part in no others"
        if not self.clear and run.clear:
            what = listing(run.clear)
            return f"outside of secure sums the server reads {what}, and the owner has it read nothing of this site"
        return self._promises_too_little(run) if self.epsilon is not None else None

    def _promises_too_little(self, run: AskedOf) -> str | None:
        assert self.epsilon is not None, "asked only where there is a limit"
        allows = f"the owner allows ε = {self.epsilon:g} at δ = {self.delta:g}"
        if run.measured:
            return f"no ε covers what the run measures on private records ({', '.join(run.measured)}), and {allows}"
        try:
            promised = run.guarantee
            spent = None if promised is None else promised.spent
        except PrivacyError as error:
            return f"the ε that the run promises this site is not known here ({error.what}), and {allows}"
        if spent is None:
            return f"the run promises no ε, and {allows}"
        if spent.delta > self.delta:
            return f"the run's δ is {spent.delta:g}, and {allows}"
        if not spent.value <= self.epsilon:
            return f"the run promises ε = {bound(spent.value)} at δ = {spent.delta:g}, and {allows}"
        return None


class SiteFile(Section):
    """``site.toml``. Paths are relative to its folder, in which the site keeps what it has of a run."""

    name: str = Field(min_length=1)
    """Known to the other members by it."""
    records: str
    """A file as for `data.train`."""
    fields: dict[str, str] = Field({})
    """Column of each field, where the names differ, as in `data.fields`."""
    user: str | None = None
    """Column that says whom a record is about, as `data.user`: an experiment that bounds how many records of a person a
    site has asks for it. Empty if each record is about a different person, or the owner has bounded them."""
    federation: str
    """The folder of what members of the federation hand round: the experiment, and with secure sums the roster."""
    results: str = "results"
    """A folder in which an adapter of its own is left, where a run leaves one: for the owner alone."""
    device: Device = "auto"
    """As `model.device`."""
    simulated: bool = False
    """A simulation plays this site, from a copy of records that are on this machine anyway, and removes the copy:
    nobody is asked, and no journal is kept of what leaves."""
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
            found = cls.parse(read_toml(path), str(path))
        except OSError as error:
            what = f"the site's file cannot be read ({error.strerror})"
            raise ConfigError(what, where=str(path), fix="Name a site's folder.") from None
        named = ("records", "federation", "results")
        paths: dict[str, Any] = {name: realpath(folder / getattr(found, name)) for name in named}
        if found.budget.folder is not None:
            accounts = realpath(folder / found.budget.folder)
            paths["budget"] = found.budget.model_copy(update={"folder": accounts})
        return found.model_copy(update=paths)
