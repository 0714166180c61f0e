"""What a field of a reply is and how it is protected: declared by a verb, checked where it is answered, and shown in
the disclosure table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from murmura.errors import RefusedError, UndeclaredReleaseError, nearest
from murmura.runs.schema import Disclosure

if TYPE_CHECKING:
    from murmura.privacy.guarantee import Cost
    from murmura.training.config import LocalTraining

SECURE_SUM = "secure sum: "
"""With what a note begins to tell of one."""
Kind = Literal["weights", "count", "metric", "text", "embeddings", "votes", "records", "keys"]


@dataclass(frozen=True)
class DifferentialPrivacy:
    """Noise that hides one record of a site, or a whole site, in what is released.

    Args:
        unit: whose presence it hides.
        added_by: who adds the noise. Where that is the server, the server itself sees the field without any.
        mechanism: clipping and noise in words.
    """

    unit: Literal["record", "site"]
    added_by: Literal["site", "server"]
    mechanism: str

    @property
    def words(self) -> str:
        where = "at the site" if self.added_by == "site" else "by the server"
        whole = "each record of the site" if self.unit == "record" else "the whole site"
        return f"differential privacy for {whole}, noise added {where}: {self.mechanism}"


@dataclass(frozen=True)
class SecureSum:
    """The server learns the sum over the cohort only, and no single reply.

    Args:
        mechanism: how, in words.
    """

    mechanism: str

    @property
    def words(self) -> str:
        return f"{SECURE_SUM}{self.mechanism}"


Protection = DifferentialPrivacy | SecureSum | None
_PROTECTIONS = {"differential privacy": DifferentialPrivacy, "secure sum": SecureSum}


def protection_to_json(protection: Protection) -> dict[str, Any] | None:
    """As a run folder keeps it: null, or a table whose ``type`` says which protection it is."""
    if protection is None:
        return None
    name = next(name for name, kind in _PROTECTIONS.items() if isinstance(protection, kind))
    return {"type": name, **asdict(protection)}


def protection_from_json(table: Mapping[str, Any] | None) -> Protection:
    """The inverse of ``protection_to_json``.

    Raises:
        ValueError: there is no such protection, or it lacks something.
    """
    if table is None:
        return None
    try:
        fields = {name: value for name, value in table.items() if name != "type"}
        protection: Protection = _PROTECTIONS[table["type"]](**fields)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a protection: {table!r}") from error
    return protection


@dataclass(frozen=True)
class Release:
    """What a field of a reply is, and how it is protected.

    Args:
        kind: of what is released.
        what: the field in plain words.
        protection: None where the field leaves the site as it is.
        note: anything a data-protection officer should read beside it; ``{config.x}`` is replaced by the method's x, as
            in a protection's mechanism.
    """

    kind: Kind
    what: str
    protection: Protection = None
    note: str = ""

    def filled(self, **named: Any) -> Release:
        """The same release with ``{name.option}`` in its note and its mechanism replaced by that option."""
        protection = self.protection
        if protection is not None:
            protection = replace(protection, mechanism=protection.mechanism.format(**named))
        return replace(self, protection=protection, note=self.note.format(**named))


def Weights(what: str = "adapter tensors", protection: Protection = None, note: str = "") -> Release:
    """Model weights or differences of them."""
    return Release("weights", what, protection, note)


def Count(what: str = "number of examples") -> Release:
    """How many of something a site has."""
    return Release("count", what)


def Metric(what: str, protection: Protection = None, note: str = "") -> Release:
    """A loss or another figure computed on a site's records."""
    return Release("metric", what, protection, note)


def Votes(what: str, protection: Protection = None, note: str = "") -> Release:
    """How often a site's records chose each of some candidates."""
    return Release("votes", what, protection, note)


def Embeddings(what: str, protection: Protection = None, note: str = "") -> Release:
    """Vectors of a site's texts, or means of them."""
    return Release("embeddings", what, protection, note)


def Texts(what: str, protection: Protection = None, note: str = "") -> Release:
    """Text that was written at a site, or a site's own."""
    return Release("text", what, protection, note)


def Keys(what: str, note: str = "") -> Release:
    """What a secure sum is made with: nothing of it follows from a site's records."""
    return Release("keys", what, None, f"{note}; it follows from no record" if note else "it follows from no record")


VOUCHED = "vouched"
"""The field beside a masked vector, where not all sites are neighbours: uint8 [1, bytes]."""
VOUCHER = Keys("the site's signature of what it was asked, and of the sites whose masks may be on its vector")

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a verb says of itself: a function ``(self, cohort, ask) -> list[Reply]`` that runs at sites.

    Args:
        releases: every field that its replies may hold.
        slots: whether it puts adapters into the bank. One that does not gets many simulated sites in one cohort.
        measures: whether it only measures a run, and is no part of the method.
        everyone: whether all sites are asked, whatever the round's cohort, so that it tells nothing of a secret one.
        singly: whether replies are read one by one even in a run whose sums are secure.
        late: whether it is done even when nobody waits for the answer any more.
        option: of the experiment, without which no site is asked; empty where the method asks in any case.
    """

    releases: Mapping[str, Release]
    slots: bool = True
    measures: bool = False
    everyone: bool = False
    singly: bool = False
    late: bool = False
    option: str = ""

    def __call__(self, function: Function) -> Function:
        function.declaration = self  # type: ignore[attr-defined]
        return function


verb = Declaration
"""Marks a function as a verb."""


class Verbs:
    """What sites can be asked for: a class's functions that are marked as verbs."""

    def verb_names(self) -> list[str]:
        """All that the class declares, in alphabetical order."""
        return [name for name in dir(type(self)) if hasattr(getattr(type(self), name), "declaration")]

    def verbs(self) -> list[str]:
        """Those that a run asks for, by this object's options: sites answer no others. All that the class declares,
        unless overridden."""
        return self.verb_names()

    def asks(self, round: int) -> bool:
        """Whether a round, counted from 1, asks the sites for any of them."""
        return True

    def answers(self, name: str) -> int | None:
        """How often a site may answer verb ``name`` in a run, which is what its ε is for, or what the run needs; None
        where nothing depends on it."""
        return None

    def sends(self, field: str) -> bool:
        """Whether replies may hold a field."""
        return any(field in self.releases(name) for name in self.verbs())

    def declaration(self, name: str) -> Declaration:
        """What verb ``name`` says of itself.

        Raises:
            UndeclaredReleaseError: it is not a verb.
        """
        found: Declaration | None = getattr(getattr(type(self), name, None), "declaration", None)
        if found is None:
            fix = nearest(name, self.verb_names())
            raise UndeclaredReleaseError(f"{name} is not a verb of {type(self).__name__}", fix=fix)
        return found

    def releases(self, name: str) -> Mapping[str, Release]:
        """What verb ``name`` may release under this object's options."""
        return self.declaration(name).releases

    def secure(self, name: str) -> SecureSum | None:
        """The secure sum in which alone replies to verb ``name`` leave; None where they are read one by one."""
        return None

    def weights(self, name: str) -> Mapping[str, str]:
        """Where replies to verb ``name`` are summed: by the name of a field of tensors, the one that each site's are
        multiplied by before that, which is a number of examples. Server and sites go by it alike."""
        return {}

    def is_free(self, name: str) -> bool:
        """Whether verb ``name`` releases nothing that depends on what records say."""
        return not self.releases(name)

    def reads(self, records: int, training: LocalTraining) -> int:
        """Most of a site's ``records`` that a round's answers depend on: all, unless it is certain to be fewer."""
        return records

    def cost(self, name: str, records: int, training: LocalTraining) -> Cost | None:
        """What answering verb ``name`` once costs each of a site's ``records``, by what protects them at the site. None
        where no ε covers the answer."""
        return None


class WithoutRecords(Verbs):
    """Verbs whose answers depend on nothing that records say."""

    def is_free(self, name: str) -> bool:
        return True

    def reads(self, records: int, training: LocalTraining) -> int:
        return 0


def disclosed(verbs: Verbs, name: str) -> dict[str, Release]:
    """What verb ``name`` may release, with the secure sum in which it does, and what goes with a masked vector."""
    found, sum = dict(verbs.releases(name)), verbs.secure(name)
    if sum is None:
        return found
    return {field: _summed(release, sum) for field, release in found.items()} | {VOUCHED: VOUCHER}


def _summed(release: Release, sum: SecureSum) -> Release:
    if release.protection is None:
        return replace(release, protection=sum)
    return replace(release, note=". ".join(part for part in (release.note.rstrip("."), f"{sum.words}.") if part))


def declared(verb: str, field: str, release: Release) -> Disclosure:
    """The row of a field that nobody has sent yet."""
    protection = protection_to_json(release.protection)
    return Disclosure(verb, field, release.kind, release.what, protection, release.note)


def rows_of(verbs: Sequence[Verbs]) -> Iterator[tuple[Verbs, Disclosure]]:
    """The disclosure table before a run: whose verb it is, and the row of a field, for every field that may leave a
    site that can be asked for these."""
    for one in verbs:
        for verb in one.verbs():
            for field, release in disclosed(one, verb).items():
                yield one, declared(verb, field, release)


def owner(verbs: Sequence[Verbs], name: str) -> Verbs:
    """Whose verb ``name`` is, of those that the run asks for: of several, the first one's.

    Raises:
        RefusedError: nobody's.
    """
    for one in verbs:
        if name in one.verbs():
            return one
    known = [known for one in verbs for known in one.verbs()]
    raise RefusedError(f"this run asks no site for '{name}'", fix=nearest(name, known))
