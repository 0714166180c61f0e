"""From the data section to sites with private records, and the public held-out ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from murmura.data.config import DataConfig
from murmura.data.loading import LoadedRecords, refuse_alike, require_usable, scan, scan_sites, split_of
from murmura.data.records import KINDS, Kind, Record
from murmura.data.selection import text_order
from murmura.errors import DataError
from murmura.experiment.exclusions import (
    Placed,
    Unused,
    find_overlap,
    fitting,
    tell,
    tell_asked,
    tell_of_empty,
    tell_repeats,
)
from murmura.experiment.sharing import Embed, Groups, bounded, hold_out, share_out
from murmura.federation.site.site import Site
from murmura.progress import say
from murmura.reading import Reading
from murmura.retrieval.encoder import Encoder
from murmura.runs.names import site_folder
from murmura.runs.schema import Exclusions, SiteReport
from murmura.streams import Stream

_POOLED = "pooled"  # the name of the one site that has everything
_LONGEST = 240  # of a folder's name, where file systems have 255, and a folder that is being made has a longer one


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


@dataclass(frozen=True)
class _Shares:
    """Who is given which records, and those that are left out on the way."""

    groups: Groups
    heldout: list[Placed]
    nonmembers: list[Placed]
    unused: Sequence[Unused] = ()


def gather(
    data: DataConfig,
    stream: Stream,
    embed: Embed | None = None,
    *,
    kind: Kind,
    pooled: bool,
    promises: bool = False,
    reading: Reading | None = None,
) -> Population:
    """Load all records, leave out what cannot be used, and of the others choose some and share them out.

    Args:
        embed: texts to vectors, for what is chosen or shared out by clusters, if not by ``data.encoder``; not called
            where nothing is.
        kind: of the records.
        pooled: bring all records together in one site, as the centralised baseline does.
        promises: the run promises an ε, so that nothing public may follow from what is private.
        reading: how records meet the model; None where it is out of reach: then they count as if all of them fitted.

    Raises:
        DataError: a record is bad or has an unknown label (and ``skip_bad`` off), or no site or no held-out record is
            left.
    """
    records, bad = _read(data, KINDS[kind], stream)
    usable, others = (records, []) if reading is None else fitting(records, data, reading)
    room = f"{data.max_length} tokens (data.max_length)"
    tell([*bad, *others], room)
    shares = _shared_out(data, usable, stream, embed or Encoder(data.encoder).embed)
    shares = _without_public(shares) if promises and data.skip_bad else _without_overlap(shares, data)
    tell_repeats(shares.groups)
    _require_short_names(shares.groups)
    groups, others_of_a_person = _bounded(shares.groups, data.records_per_user, stream)
    shares = replace(shares, groups=groups, unused=[*shares.unused, *others_of_a_person])
    tell(shares.unused, room)
    if pooled:  # just the records that sites would have trained on
        shares = replace(shares, groups={_POOLED: [placed for own in shares.groups.values() for placed in own]})
    owners = {placed.site: _POOLED if pooled and placed.site else placed.site for placed in records}
    found = Counter(owners[placed.site] for placed in records)
    long = Counter(owners[one.site] for one in others if one.cause == "long")
    return _population(shares, data, found, long, [*bad, *others, *shares.unused])


def _bounded(groups: Groups, most: int | None, stream: Stream) -> tuple[Groups, list[Unused]]:
    """No site with more than so many records of one person; and the others."""
    if most is None:
        return groups, []
    found = {name: bounded(own, most, stream) for name, own in groups.items()}
    return {name: kept for name, (kept, _) in found.items()}, [one for _, others in found.values() for one in others]


def _population(
    shares: _Shares, data: DataConfig, found: Counter[str | None], long: Counter[str | None], unused: list[Unused]
) -> Population:
    """The sites that have something to train on, and what became of the records of all.

    Args:
        found: how many records there are of whom (``Placed.site``).
        long: how many of these do not fit the model.
    """
    groups = {name: list[Placed]() for name in sorted(filter(None, found))} | shares.groups
    reports = [  # a site has what its own file has, or its share of one for all
        SiteReport(name, found[name] or len(own), len(own), sum(placed.shortened for placed in own), long[name])
        for name, own in groups.items()
    ]
    for one in reports:
        if not one.used:
            say(f"site {one.site} has no record that {_use(long[one.site], data)}; it is left out")
    sites = [Site(name, [placed.record for placed in own]) for name, own in groups.items() if own]
    if not sites and data.train is not None:
        fix = "Raise data.max_length, or look at the data."
        raise DataError("no site has a usable record", where=data.train, fix=fix)
    heldout, nonmembers = ([placed.record for placed in some] for some in (shares.heldout, shares.nonmembers))
    if not heldout:
        fix = "Raise data.max_length." if long[None] else "Look at their labels."
        raise DataError(f"no held-out record {_use(long[None], data)}", where=data.heldout or data.train, fix=fix)
    if data.nonmember_records and not nonmembers:
        fix = "Raise data.nonmember_records, or leave it out."
        raise DataError("no non-member is left to compare members with", where=data.train, fix=fix)
    causes = Counter(one.cause for one in unused)
    sites_of = Counter(user for own in groups.values() for user in {placed.user for placed in own} - {None})
    most = max(sites_of.values(), default=None)  # at how many the person is who is at most of them
    asked = tell_asked(groups, [*shares.heldout, *shares.nonmembers])
    exclusions = Exclusions(causes["bad"], causes["overlap"], long[None], long[""], most, asked)
    apart = (heldout if data.heldout is None else nonmembers) if data.takes_from_sites else []
    return Population(sites, reports, heldout, nonmembers, exclusions, unused, apart)


def _use(long: int, data: DataConfig) -> str:
    """What none of some records does, of which so many do not fit the model."""
    return f"fits {data.max_length} tokens" if long else "can be used"


def _read(data: DataConfig, kind: type[Record], stream: Stream) -> tuple[list[Placed], list[Unused]]:
    """All records, whether they fit a model or not, and those that are bad."""
    options: dict[str, Any] = {"kind": kind, "fields": data.fields}
    column = {"file": None, "column": data.sites.column, "partition": data.sites.label}[data.sites.by]
    if data.train is None:
        train: dict[str, LoadedRecords[Any]] = {}
    elif data.sites.by == "file":
        of_sites = data.sites.fields
        train = scan_sites(data.train, of_sites=of_sites, user_column=data.user, ignore=data.sites.ignore, **options)
    else:
        train = {"": scan(data.train, site_column=column, user_column=data.user, split=data.split, **options)}
    public = _scan_heldout(data, options)
    _require_usable(list(train.values()), public, data.skip_bad)
    if data.sites.by == "column" and data.train is not None:
        refuse_alike(train[""].sites or [], data.sites.column or "", data.train)
    tell_of_empty([name for name, loaded in train.items() if not loaded.records], "in their files")
    records = [placed for name, loaded in train.items() for placed in _placed(loaded, name, data.sites.by)]
    heldout = [placed for loaded in public for placed in _placed(loaded, None)]
    # Shuffled, so that the first few of them are a fair sample; before it is known which fit, so that for a model which
    # takes some more or less the others are the same.
    (stream / "heldout").python().shuffle(heldout)
    bad = [Unused.bad(record) for loaded in [*train.values(), *public] for record in loaded.bad]
    return records + heldout, bad


def _scan_heldout(data: DataConfig, options: dict[str, Any]) -> list[LoadedRecords[Any]]:
    """What ``data.heldout`` holds; nothing where it is not given."""
    if data.heldout is None:
        return []
    options = options | {"renaming": "heldout_fields = {{{field} = '{column}'}}"}
    if data.heldout_fields is not None:
        options |= {"fields": data.heldout_fields}
    return [scan(data.heldout, split=split_of(data.heldout, data.heldout_split), **options)]


def _require_usable(train: list[LoadedRecords[Any]], public: list[LoadedRecords[Any]], skip_bad: bool) -> None:
    """As ``require_usable``: all bad records are told together, but what is left of each part must be enough."""
    for part in (train, public) if skip_bad else (train + public,):
        if part:
            require_usable(part, skip_bad=skip_bad)


def _placed(loaded: LoadedRecords[Any], site: str | None, by: str = "file") -> list[Placed]:
    """The records of a source.

    Args:
        site: whose it is, unless a column says that.
        by: what its column says, if one was read: the site, or what a partition mixes.
    """
    none = [None] * len(loaded.records)
    said, users = loaded.sites or none, loaded.users or none
    sites = said if by == "column" else [site] * len(none)
    labels = said if by == "partition" else none
    return [Placed(*one) for one in zip(loaded.records, loaded.places, sites, labels, users, strict=True)]


def _shared_out(data: DataConfig, records: Sequence[Placed], stream: Stream, embed: Embed) -> _Shares:
    """Hold out, choose few, and give each site its own.

    Args:
        records: that can be used.
    """
    own, unused = [placed for placed in records if placed.site is not None], list[Unused]()
    if data.sites.by == "partition" and own:
        groups, apart = share_out(data, own, stream, embed)
    else:
        groups = {}
        for placed in sorted(own, key=lambda placed: placed.site or ""):  # records of a site in the source's order
            groups.setdefault(placed.site or "", []).append(placed)
        if data.takes_from_sites:  # else those set apart would be of persons of whom sites have few
            groups, unused = _bounded(groups, data.records_per_user, stream)
        groups, apart = hold_out(data, groups, stream)
    if data.sites.records is not None:
        for name, of_site in groups.items():
            count = min(data.sites.records, len(of_site))
            if of_site[0].record.has_labels:  # the same in all, as in an iid partition, for any number of sites
                order = text_order([placed.record for placed in of_site], stream.seed)
                groups[name] = [of_site[place] for place in order[:count]]
            else:
                groups[name] = (stream / "site-records" / name).python().sample(of_site, count)
    if data.heldout is None:
        return _Shares(groups, apart, [], unused)
    public = [placed for placed in records if placed.site is None]
    return _Shares(groups, public[: data.heldout_records], apart, unused)


def _require_short_names(groups: Groups) -> None:
    for site in groups:
        if len(site_folder(site)) > _LONGEST:
            what = f"this site's name takes {len(site_folder(site))} letters as a folder's, of at most {_LONGEST}"
            fix = "Give it a shorter one (its file's, if it has one): each letter that is not Latin takes six or more."
            raise DataError(what, where=f"site {site}", fix=fix)


def _without_public(shares: _Shares) -> _Shares:
    """Only private records that are not public too, without a word: each site leaves out its own copies.

    Were it the public ones, the figures measured on the others, and how many there are, would tell which of them a site
    has. What a site does here with a record depends on nobody else's records, so that the guarantee stays as it is.
    """
    public = {placed.record.identity for placed in (*shares.heldout, *shares.nonmembers)}
    own = {
        site: [placed for placed in records if placed.record.identity not in public]
        for site, records in shares.groups.items()
    }
    return replace(shares, groups=own)


def _without_overlap(shares: _Shares, data: DataConfig) -> _Shares:
    """Only held-out records that no site has too."""
    shared = find_overlap(shares.groups, [*shares.heldout, *shares.nonmembers], data)
    places = {one.where for one in shared}
    heldout, nonmembers = (
        [placed for placed in some if placed.where not in places] for some in (shares.heldout, shares.nonmembers)
    )
    if shared and not heldout:
        where = str(data.heldout or data.train)
        raise DataError("every held-out record is also a private one", where=where, fix="Hold out other records.")
    return _Shares(shares.groups, heldout, nonmembers, [*shares.unused, *shared])
