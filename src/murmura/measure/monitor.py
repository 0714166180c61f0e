"""What is measured after each round: utility, leakage of the model, leakage of single uploads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import torch

from murmura.errors import RunError
from murmura.federation.server.fleet import Fleet
from murmura.federation.wire.messages import Payload, Reply
from murmura.federation.wire.sums import misfit
from murmura.federation.wire.well_formed import is_count
from murmura.harmless import harmless
from murmura.measure import heldout
from murmura.measure.canaries import Canaries
from murmura.measure.catalogue import CATALOGUE, ENDS, described
from murmura.measure.config import EvaluationConfig
from murmura.measure.evaluation_set import EvaluationSet, Figures
from murmura.measure.figure import SHARE
from murmura.measure.membership import Nonmembers
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.training.adapter import State

TOO_FEW = (
    "leakage was not measured: there are too few records to attack; hold out more records (data.heldout_records) or, "
    "beside a file of held-out ones, raise data.nonmember_records"
)

UNLIKE = (
    "before training the loss alone tells members from non-members: they differ in kind, or the model knows some, or "
    "it is chance, as once in twenty runs; leakage will seem larger or smaller than it is. Beside a file of held-out "
    "records data.nonmember_records gives non-members of the same kind"
)


_NUMBERS = frozenset(f"{one.key}{end}" for one in CATALOGUE for end in ("", *ENDS))
_TABLES = ("confusion", "answers")  # of numbers, by what was asked and by what came of it
_ROUNDING = 1e-9  # of a share that is a sum of such
_CONTINUED = ("rouge", "exact", "prefix")  # what a site says of what its records were completed with


class Monitor:
    """Measures a run from outside its method.

    Args:
        runtime: the server's.
        evaluation_set: public records to measure with.
        config: what is measured and how often; attacks too if that is left out.
        stream: the run's randomness.
        canaries: those that were written into the sites' records, if any were.

    Attributes:
        sizes: number of records of each site. Unless it is known for all sites, they count alike. With an ε it is left
            unknown: what a site is asked for would tell it of the others, and bytes would tell all.
    """

    def __init__(
        self,
        runtime: ModelRuntime,
        evaluation_set: EvaluationSet,
        config: EvaluationConfig,
        stream: Stream,
        canaries: Canaries | None = None,
    ) -> None:
        config = config.settled(promises=False)
        self.runtime, self.evaluation_set, self.config, self.stream = runtime, evaluation_set, config, stream
        self.sizes: Mapping[str, int] = {}
        self._canaries = canaries
        self._planted = Counter(canary.site for canary in canaries.canaries) if canaries else Counter[str]()
        self._nonmembers = Nonmembers(evaluation_set, config.attack_records, stream) if config.attacks else None
        self._round = 0
        self._uploads: dict[str, State] = {}

    def begin(self, round: int) -> None:
        """Forget the uploads of the round before."""
        self._round, self._uploads = round, {}

    @property
    def listens(self) -> bool:
        """Whether single uploads are measured at all."""
        return (bool(self.config.attacks) or self._canaries is not None) and self.config.uploads > 0

    def observe_upload(self, site: str, upload: State) -> None:
        """Keep a few of the round's uploads, all equally likely, and the same ones whatever order they arrive in."""
        if not self.listens:
            return
        self._uploads[site] = upload
        if len(self._uploads) > self.config.uploads:
            del self._uploads[max(self._uploads, key=self._lot)]

    def _lot(self, site: str) -> int:
        return (self.stream / "uploads" / self._round / site).integer()

    def due(self, round: int, last: int) -> bool:
        """Whether a round is measured, of ``last`` rounds."""
        return round in (0, last) or round % self.config.every == 0

    def words(self, row: Mapping[str, Any]) -> str:
        """The figures that end a round's line, as the catalogue writes them, and how long the round took,
        where that may be told."""
        known = {name: value for name, value in row.items() if value is not None}
        shown = [
            f"{figure.name} {figure.words(known)}" for figure in described(known) if figure.line and figure.key in known
        ]
        return ", ".join([*shown, f"{row['wall']:.0f} s"] if "wall" in row else shown)

    def measure(
        self,
        adapter: State,
        fleet: Fleet,
        personal: Sequence[str] = (),
        common: Mapping[str, State] | None = None,
        *,
        last: bool = False,
    ) -> Figures:
        """All figures of a round.

        Args:
            adapter: the global one.
            personal: sites that keep adapters of their own, which are measured instead of the global one.
            common: field ``adapter`` with the factors that those sites share, where there are any.
            last: whether what is measured at the end alone is measured too, if it is to be.

        Raises:
            RunError: the held-out loss is not finite.
        """
        completes = last and self.config.memorisation
        poses = last or not (self.config.benchmarks and self.config.benchmarks.only_last)
        public = self.evaluation_set
        if personal:
            asked = {**public.to_payload(completes=completes, poses=poses), **(common or {})}
            figures = _personal_utility(fleet, personal, asked)
        else:
            [figures] = public.measure(self.runtime, [adapter], completes=completes, poses=poses)
        loss = figures.get("heldout_loss")
        if loss is not None and not math.isfinite(loss):
            fix = "Lower training.lr."
            raise RunError("the held-out loss is not a finite number", where=f"round {fleet.round}", fix=fix)
        if public.task.is_text and fleet.round and not personal:
            figures |= heldout.fall(self.runtime, public, adapter)
        if self._nonmembers is not None:
            figures |= self._attack(fleet, self._nonmembers, adapter, personal, common or {})
        if self._canaries is not None and fleet.round:
            figures |= self._canaries.measure(self.runtime, adapter, self._uploads)
        if completes:
            attacked = common or {} if personal else {"adapter": adapter}
            figures |= self._memorisation(fleet, self._members(fleet, personal, self.config.sample), attacked)
            figures["memorisation"] = _minus(figures["member_rouge"], figures.get("nonmember_rouge"))
        return figures

    def _members(self, fleet: Fleet, personal: Sequence[str], most: int) -> dict[str, int]:
        """How many records of each site are attacked; see ``attacked``. Where adapters are personal, all adapters count
        alike."""
        names = [site for site in fleet.sites if site in personal] or fleet.sites  # whatever order they joined in
        if personal or any(site not in self.sizes for site in names):
            return attacked(dict.fromkeys(names), most, self.stream)
        return attacked({site: self.sizes[site] - self._planted[site] for site in names}, most, self.stream)

    def _spare_canaries(self, each: Mapping[str, dict[str, Any]]) -> None:
        """Tell sites how many of their records are canaries, which are no members: non-members are not like them, and
        leakage would seem larger than it is."""
        for site, given in each.items():
            if self._planted[site]:
                given["canaries"] = self._planted[site]

    def _attack(
        self, fleet: Fleet, nonmembers: Nonmembers, adapter: State, personal: Sequence[str], common: Mapping[str, State]
    ) -> Figures:
        """Membership inference against the global adapter and single uploads, or against personal adapters.

        The sites' counts are added up. Each comes in clear, though sums be secure.
        """
        most = self.config.attack_records
        uploads = {} if personal else self._uploads
        targets = [] if personal else [adapter, *uploads.values()]
        seen = nonmembers.seen(self.runtime, targets) if targets else []
        brought = {**common, **nonmembers.to_payload()} if personal else {"adapter": adapter, "cuts": seen[0].cuts}
        counts = self._members(fleet, personal, most)
        each: dict[str, dict[str, Any]] = {site: {"records": count, **brought} for site, count in counts.items()}
        for (site, upload), other in zip(uploads.items(), seen[1:], strict=True):
            own = {"upload": upload, "upload_records": -(-most // len(uploads)), "upload_cuts": other.cuts}
            each[site] = {**each.get(site, {}), **own}
        self._spare_canaries(each)

        def unlike(reply: Reply) -> str | None:
            asked = each[reply.site]
            bounds = {"tally": counts.get(reply.site, 0), "upload_tally": asked.get("upload_records", 0)}
            return _unlike(reply.fields, nonmembers.tally, {**bounds, "others": len(nonmembers.records)})

        found = fleet.sum("attack", list(each), each=each, refused=unlike)
        figures: Figures = {"attacks": {}}
        others = found.fields.get("others") if personal else seen[0].tally
        self._note(figures, "attack", found.fields.get("tally"), others)
        if uploads:
            answered = [other.tally for site, other in zip(uploads, seen[1:], strict=True) if site in found.sites]
            pooled = {name: sum(one[name] for one in answered) for name in seen[0].tally} if answered else None
            self._note(figures, "upload", found.fields.get("upload_tally"), pooled)
        if found.sites and "attack" not in figures["attacks"]:
            fleet.events.append(TOO_FEW)
        low, high = (figures.get(f"attack_loss_auc_{end}", 0.5) for end in ("low", "high"))
        if fleet.round == 0 and not low <= 0.5 <= high:
            fleet.events.append(UNLIKE)
        return figures

    def _note(self, figures: Figures, target: str, members: State | None, others: Any) -> None:
        """Add what comes of an attack; figures without a value where nobody answered."""
        assert self._nonmembers is not None
        measured, told = self._nonmembers.against(members, others) if members and others else ({"auc": None}, {})
        figures |= {f"{target}_{name}": value for name, value in measured.items()}
        if told:
            figures["attacks"][target] = told

    def _memorisation(self, fleet: Fleet, counts: Mapping[str, int], attacked: Mapping[str, Any]) -> Figures:
        """Let each site have that many of its records completed; means over records."""
        each: dict[str, dict[str, Any]] = {site: {"records": count, **attacked} for site, count in counts.items()}
        self._spare_canaries(each)

        def unfit(reply: Reply) -> str | None:
            return _unmeasured(reply.fields, most=counts[reply.site], longest=self.runtime.max_length)

        replies = list(fleet.ask("memorise", list(each), each=each, refused=unfit))
        weights = [reply["records"] for reply in replies]
        return {f"member_{name}": _mean([reply[name] for reply in replies], weights) for name in _CONTINUED}


def _personal_utility(fleet: Fleet, sites: Sequence[str], asked: Payload) -> Figures:
    replies = fleet.ask("assess", sites, None, refused=_without_figures, **asked)
    return _means([_known(reply["figures"]) for reply in replies])


def _known(figures: Mapping[str, Any]) -> Figures:
    """What of a site's figures can stand in a row of ``metrics.jsonl``; what else it says, nobody has asked for. The
    bins of a plot have no mean."""
    known: Figures = {name: value for name, value in figures.items() if name in _NUMBERS}
    for name in _TABLES:
        if table := figures.get(name):
            known[name] = {harmless(one): {harmless(key): n for key, n in row.items()} for one, row in table.items()}
    return known


def _unlike(fields: Payload, tally: State, most: Mapping[str, int]) -> str | None:
    """Why the tallies of a site cannot be added to others; None where they can.

    Args:
        tally: as each of them must be.
        most: how many records the site was asked to count in each field, at most.
    """
    for name, one in fields.items():
        if one is None:
            continue
        if why := misfit({name: one}, {name: tally}):
            return why
        if not all(_counts(counts, most[name]) for counts in one.values()):
            return f"'{name}' does not count records, {most[name]} at most"
    return None


def _counts(counts: torch.Tensor, most: int) -> bool:
    """Whether these are how many of ``most`` records lie where."""
    return bool((counts >= 0).all()) and bool((counts == counts.round()).all()) and float(counts.sum()) <= most


def _without_figures(reply: Reply) -> str | None:
    """Why a site's figures cannot be averaged with those of others; None where they can."""
    figures = reply.fields.get("figures")
    if not isinstance(figures, Mapping):
        return "it has no table of figures"
    for name in _TABLES:
        if not _is_table(figures.get(name) or {}):
            return f"'{name}' is no table of tables of numbers"
    for name, value in figures.items():
        if name in _NUMBERS and not isinstance(value, int | float | None):
            return f"'{name}' is no number"
    for one in CATALOGUE:  # a share is told with its interval, which others have none of
        value, many = figures.get(one.key), figures.get(f"{one.key}_n")
        if one.unit is SHARE and isinstance(value, int | float) and not -_ROUNDING <= value <= 1 + _ROUNDING:
            return f"'{one.key}' is not from 0 to 1"
        if many is not None and not is_count(many, 1):
            return f"'{one.key}_n' is no number of them"
    return None


def _is_table(value: Any) -> bool:
    """Whether a value is a table of tables of numbers."""
    return isinstance(value, Mapping) and all(
        isinstance(row, Mapping) and all(isinstance(one, int | float) for one in row.values()) for row in value.values()
    )


def _unmeasured(fields: Payload, most: int, longest: int) -> str | None:
    """Why what a site's records were completed with has no mean with that of others; None where it has.

    Args:
        most: how many records the site was asked to have completed, at most.
        longest: tokens of a record.
    """
    if not all(isinstance(fields.get(name), int | float) for name in _CONTINUED):
        return "it has not all of the figures"
    for name, largest in zip(_CONTINUED, (1, 1, longest), strict=True):
        if not 0 <= fields[name] <= largest:
            return f"'{name}' is not from 0 to {largest}"
    why = misfit(fields, {"records": 0})
    return why or (f"it tells of more than {most} records" if fields["records"] > most else None)


def attacked(sizes: Mapping[str, int | None], most: int, stream: Stream) -> dict[str, int]:
    """How many records of each site are attacked, at most ``most`` in all, the same in every round.

    Args:
        sizes: how many members each site has. All of them count alike; where one is not known, all sites do.
        most: in all.
        stream: the run's randomness.
    """
    rng = (stream / "members").python()
    known = {site: size for site, size in sizes.items() if size is not None}
    if len(known) < len(sizes):
        return _spread(dict.fromkeys(sizes, 1), most, rng)
    return _spread(known, min(most, sum(known.values())), rng)


def _spread(sizes: Mapping[str, int], total: int, rng: Random) -> dict[str, int]:
    """``total`` records spread over sites in proportion to their sizes; where that is no whole number, chance decides
    who gives one more (systematic sampling: a site's expectation is its exact share)."""
    order = list(sizes)
    rng.shuffle(order)
    whole = sum(sizes.values())
    passed, given, start = 0, 0, rng.randrange(whole)
    counts: dict[str, int] = {}
    for site in order:
        passed += sizes[site]
        counts[site] = (total * passed + start) // whole - given
        given += counts[site]
    return {site: counts[site] for site in sizes if counts[site]}


def _means(figures: Sequence[Mapping[str, Any]]) -> Figures:
    """The mean of every figure that is a number, or a table of numbers, whichever more sites say; None where nobody has
    the figure. One of which most sites have not heard has none."""
    means: Figures = {}
    for name, said in Counter(name for one in figures for name in one).items():
        if 2 * said <= len(figures):
            continue
        known = [one[name] for one in figures if one.get(name) is not None]
        tables = [one for one in known if isinstance(one, Mapping)]
        numbers = [one for one in known if isinstance(one, int | float)]
        if len(tables) > len(numbers):
            means[name] = _means(tables)
        elif numbers or not known:
            means[name] = _mean(numbers)
    return means


def _mean(values: Sequence[float], weights: Sequence[float] | None = None) -> float | None:
    weights = weights or [1.0] * len(values)
    total = sum(weights)
    return sum(v * w for v, w in zip(values, weights, strict=True)) / total if total else None


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second
