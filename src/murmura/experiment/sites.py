"""From the data section to sites with private records, and the public held-out ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from murmura.data.config import DataConfig
from murmura.data.loading import Loaded, require_usable, scan, scan_sites, split_of
from murmura.data.records import KINDS, Kind, Record
from murmura.data.selection import text_order
from murmura.errors import DataError
from murmura.experiment.exclusions import (
    Placed,
    Unused,
    find_overlap,
    tell,
    tell_of_empty,
    tell_repeats,
    unknown_labels,
)
from murmura.experiment.sharing import Embed, Groups, bounded, hold_out, share_out
from murmura.federation.site.cohort import Site
from murmura.progress import say
from murmura.reading import Fitted, Reading
from murmura.retrieval.encoder import Encoder
from murmura.runs.names import site_folder
from murmura.runs.schema import Exclusions, SiteReport
from murmura.streams import Stream

_LONGEST = 240  # of a folder's name, where file systems have 255, and a folder that is being made has a longer one


@dataclass(frozen=True)
class Gathered:
    """The sites' records and those set apart from them, whether they fit a model or not; and those that are left out
    already."""

    groups: Groups
    heldout: list[Placed]
    nonmembers: list[Placed]
    unused: list[Unused]


@dataclass(frozen=True)
class Population:
    """All sites, what became of their records, and the records that nobody trains on.

    ``nonmembers`` is empty where the held-out records serve as such. ``unused`` are all records that nobody uses.
    ``from_sites`` are those to measure with that were sites' own, and so are not public.
    """

    sites: list[Site]
    reports: list[SiteReport]
    heldout: list[Any]
    nonmembers: list[Any]
    exclusions: Exclusions
    unused: list[Unused]
    from_sites: Sequence[Any] = ()


def gather(
    data: DataConfig, stream: Stream, embed: Embed | None = None, *, kind: Kind, pooled: bool, promises: bool = False
) -> Gathered:
    """Load, select and share out all records.

    Args:
        embed: texts to vectors, for what is chosen or shared out by clusters, if not by ``data.encoder``; not called
            where nothing is.
        kind: of the records.
        pooled: bring all records together in one site, as the centralised baseline does.
        promises: the run promises an ε, so that nothing public may follow from what is private.

    Raises:
        DataError: a record is bad (and ``skip_bad`` off), or no site or no held-out record is left.
    """
    loaded = _load(data, stream, embed or Encoder(data.encoder).embed, KINDS[kind])
    gathered = _without_public(loaded) if promises and data.skip_bad else _without_twins(loaded, data)
    tell_repeats(gathered.groups)
    if pooled:
        everything = [record for records in gathered.groups.values() for record in records]
        gathered = replace(gathered, groups={"pooled": everything})
    _require_short_names(gathered.groups)
    return _bounded(gathered, data.records_per_user, stream)


def _bounded(gathered: Gathered, most: int | None, stream: Stream) -> Gathered:
    """No site with more than so many records of one person; which ones stay is drawn at random."""
    if most is None:
        return gathered
    groups: Groups = {}
    unused = list(gathered.unused)
    for name, records in gathered.groups.items():
        kept = bounded([placed.user for placed in records], most, stream, name)
        groups[name] = [placed for index, placed in enumerate(records) if index in kept]
        why = f"one more of a person than the {most} that a site may have"
        unused += [Unused(p.where, "user", why) for index, p in enumerate(records) if index not in kept]
    return replace(gathered, groups=groups, unused=unused)


def fit(gathered: Gathered, data: DataConfig, reading: Reading) -> Population:
    """Leave out what does not fit ``data.max_length`` tokens or has an unknown label, and say so.

    Raises:
        DataError: a label is unknown (and ``skip_bad`` off), or no site or no held-out record is left.
    """
    parts = [*gathered.groups.values(), gathered.heldout, gathered.nonmembers]
    found = [reading.fit([placed.record for placed in records]) for records in parts]
    others = [_not_kept(records, fitted) for records, fitted in zip(parts, found, strict=True)]
    unknown = [placed for rest, fitted in zip(others, found, strict=True) if not fitted.dropped for placed in rest]
    if unknown and not data.skip_bad:
        shown, hint = reading.unknown([placed.record.label for placed in unknown])
        raise unknown_labels(unknown, sum(map(len, parts)), shown, hint)
    unused = gathered.unused + [Unused(p.where, "bad", "no words are given for its label") for p in unknown]
    long = [placed for rest, fitted in zip(others, found, strict=True) if fitted.dropped for placed in rest]
    unused += [Unused(placed.where, "long", f"does not fit {data.max_length} tokens") for placed in long]
    tell(unused, f"{data.max_length} tokens (data.max_length)")
    *own, heldout, nonmembers = [
        [records[i].record for i in fitted.kept] for records, fitted in zip(parts, found, strict=True)
    ]
    names, public, outside = list(gathered.groups), found[-2], found[-1]
    reports = [
        SiteReport(name, len(records), len(fitted.kept), fitted.truncated, fitted.dropped)
        for name, records, fitted in zip(names, gathered.groups.values(), found, strict=False)
    ]
    for name, records, fitted in zip(names, own, found, strict=False):
        if not records:
            say(f"site {name} has no record that {_use(fitted, data)}; it is left out")
    sites = [Site(name, records) for name, records in zip(names, own, strict=True) if records]
    if not sites and data.train is not None:
        fix = "Raise data.max_length, or look at the data."
        raise DataError("no site has a usable record", where=data.train, fix=fix)
    if not heldout:
        fix = "Raise data.max_length." if public.dropped else "Look at their labels."
        raise DataError(f"no held-out record {_use(public, data)}", where=data.heldout or data.train, fix=fix)
    if data.nonmember_records and not nonmembers:
        fix = "Raise data.max_length or data.nonmember_records, or leave the latter out."
        raise DataError("no non-member is left to compare members with", where=data.train, fix=fix)
    causes = Counter(one.cause for one in unused)
    users = [{records[i].user for i in fitted.kept} for records, fitted in zip(parts, found, strict=True)]
    exclusions = Exclusions(
        causes["bad"], causes["overlap"], public.dropped, outside.dropped, _most_sites(users[: len(names)])
    )
    apart = (heldout if data.heldout is None else nonmembers) if data.takes_from_sites else []
    return Population(sites, reports, heldout, nonmembers, exclusions, unused, apart)


def _most_sites(users: Sequence[set[str | None]]) -> int | None:
    """At how many sites the person is who is at most of them; None where nobody is told apart.

    Args:
        users: of each site.
    """
    persons = Counter(user for own in users for user in own if user is not None)
    return max(persons.values(), default=None)


def _not_kept(records: Sequence[Placed], found: Fitted) -> list[Placed]:
    kept = set(found.kept)
    return [placed for index, placed in enumerate(records) if index not in kept]


def _use(found: Fitted, data: DataConfig) -> str:
    """What none of some records does."""
    return f"fits {data.max_length} tokens" if found.dropped else "can be used"


def _load(data: DataConfig, stream: Stream, embed: Embed, kind: type[Record]) -> Gathered:
    options: dict[str, Any] = {"kind": kind, "fields": data.fields}
    column = {"file": None, "column": data.sites.column, "partition": data.sites.label}[data.sites.by]
    if data.train is None:
        train: dict[str, Loaded[Any]] = {}
    elif data.sites.by == "file":
        train = scan_sites(data.train, user_column=data.user, ignore=data.sites.ignore, **options)
    else:
        train = {"": scan(data.train, site_column=column, user_column=data.user, split=data.split, **options)}
    public = _scan_heldout(data, options)
    _require_usable(list(train.values()), public, data.skip_bad)
    unused = [Unused.bad(record) for loaded in [*train.values(), *public] for record in loaded.bad]
    if data.sites.by == "partition" and train:
        source = train[""]
        groups, apart = share_out(data, _placed(source), source.sites, stream, embed)
    else:
        groups = {name: _placed(loaded) for name, loaded in train.items()}
        if data.sites.by == "column" and train:
            groups = _by_site(train[""])
        tell_of_empty([name for name, records in groups.items() if not records], "in their files")
        groups, apart = hold_out(data, {name: records for name, records in groups.items() if records}, stream)
    heldout, nonmembers = apart, list[Placed]()
    if public:
        nonmembers, heldout = apart, _placed(public[0])
        # Shuffled, so that the first few of them are a fair sample.
        (stream / "heldout").python().shuffle(heldout)
        heldout = heldout[: data.heldout_records]
    if data.sites.records is not None:
        for name, records in groups.items():
            count = min(data.sites.records, len(records))
            if kind.has_labels:  # the same in all, as in an iid partition, for any number of sites
                order = text_order([placed.record for placed in records], stream.seed)
                groups[name] = [records[place] for place in order[:count]]
            else:
                groups[name] = (stream / "site-records" / name).python().sample(records, count)
    return Gathered(groups, heldout, nonmembers, unused)


def _scan_heldout(data: DataConfig, options: dict[str, Any]) -> list[Loaded[Any]]:
    """What ``data.heldout`` holds; nothing where it is not given."""
    if data.heldout is None:
        return []
    if data.heldout_fields is not None:
        options = options | {"fields": data.heldout_fields}
    return [scan(data.heldout, split=split_of(data.heldout, data.heldout_split), **options)]


def _require_usable(train: list[Loaded[Any]], public: list[Loaded[Any]], skip_bad: bool) -> None:
    """As ``require_usable``: all bad records are told together, but what is left of each part must be enough."""
    for part in (train, public) if skip_bad else (train + public,):
        if part:
            require_usable(part, skip_bad=skip_bad)


def _placed(loaded: Loaded[Any]) -> list[Placed]:
    users: Sequence[str | None] = loaded.users or [None] * len(loaded.records)
    return [Placed(*one) for one in zip(loaded.records, loaded.places, users, strict=True)]


def _by_site(loaded: Loaded[Any]) -> Groups:
    """The records of each site, sites in alphabetical order, records in the source's order."""
    assert loaded.sites is not None
    groups: Groups = {name: [] for name in sorted(set(loaded.sites))}
    for site, placed in zip(loaded.sites, _placed(loaded), strict=True):
        groups[site].append(placed)
    return groups


def _require_short_names(groups: Groups) -> None:
    """
    Raises:
        DataError: a site's name is too long to be that of its folder.
    """
    for site in groups:
        if len(site_folder(site)) > _LONGEST:
            what = f"this site's name takes {len(site_folder(site))} letters as a folder's, of at most {_LONGEST}"
            fix = "Give it a shorter one (its file's, if it has one): each letter that is not Latin takes six or more."
            raise DataError(what, where=f"site {site}", fix=fix)


def _without_public(gathered: Gathered) -> Gathered:
    """Only private records that are not public too, without a word: each site leaves out its own copies.

    Were it the public ones, the figures measured on the others, and how many there are, would tell which of them a site
    has. What a site does here with a record depends on nobody else's records, so that the guarantee stays as it is.
    """
    public = {placed.record.identity for placed in (*gathered.heldout, *gathered.nonmembers)}
    own = {
        site: [placed for placed in records if placed.record.identity not in public]
        for site, records in gathered.groups.items()
    }
    return replace(gathered, groups=own)


def _without_twins(gathered: Gathered, data: DataConfig) -> Gathered:
    """Only held-out records that no site has too.

    Raises:
        DataError: there are others (and ``skip_bad`` is off), or none is left to hold out.
    """
    shared = find_overlap(gathered.groups, [*gathered.heldout, *gathered.nonmembers], data)
    places = {one.where for one in shared}
    heldout, nonmembers = (
        [placed for placed in some if placed.where not in places] for some in (gathered.heldout, gathered.nonmembers)
    )
    if shared and not heldout:
        where = str(data.heldout or data.train)
        raise DataError("every held-out record is also a private one", where=where, fix="Hold out other records.")
    return Gathered(gathered.groups, heldout, nonmembers, gathered.unused + shared)
