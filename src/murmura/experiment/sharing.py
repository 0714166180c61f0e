"""Who gets which records: the sites' own, and those that nobody trains on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from murmura.data.config import DataConfig
from murmura.data.partition import partition
from murmura.data.selection import few_shot, kmeans, label_order
from murmura.errors import DataError
from murmura.experiment.exclusions import Placed, Unused, tell_of_empty
from murmura.progress import say
from murmura.streams import Stream

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to vectors [n, d], float32."""
Groups = dict[str, list[Placed]]
"""Site to records."""


def bounded(own: Sequence[Placed], most: int, stream: Stream) -> tuple[list[Placed], list[Unused]]:
    """Those records of a site that stay where no person may have more than so many, drawn at random; and the others.

    A record's turn follows from itself, so that which ones of a person stay depends on that person's records alone.
    Were all of a site's shuffled, one more of them, or one that no longer fits the model, would change which ones of
    everybody else are trained on, and no ε would hold for a person.
    """
    turns = [(stream / "records-per-user" / repr(placed.record.identity)).integer() for placed in own]
    seen, kept = Counter[str | None](), set[int]()
    for place in sorted(range(len(own)), key=lambda place: (turns[place], place)):
        seen[own[place].user] += 1
        if seen[own[place].user] <= most:
            kept.add(place)
    why = f"one more of a person than the {most} that a site may have"
    others = [placed for place, placed in enumerate(own) if place not in kept]
    return [own[place] for place in sorted(kept)], [Unused(one.where, "user", why, one.site) for one in others]


def hold_out(data: DataConfig, groups: Mapping[str, list[Placed]], stream: Stream) -> tuple[Groups, list[Placed]]:
    """Take the records that nobody trains on out of the sites' own, of each site in proportion, and leave each site at
    most so many as it may have.

    Sites are clusters of ``few_shot`` of which each keeps a record. So where sites have a limit both are drawn alike:
    otherwise large sites would have a larger share of what is held out than of what is trained on. Of records with
    labels, only those that have one are held out, and a site that has such keeps one.

    Raises:
        DataError: so many are asked for that a site would be left with none, or no record has a label.
    """
    if not groups:  # all of them are elsewhere
        return {}, []
    everything = [(name, placed) for name, records in groups.items() for placed in records]
    records = [placed for _, placed in everything]
    complete, count = _complete(data, records), _checked_count(data, len(records))
    if not count:
        return dict(groups), []
    owners = np.array([everything[index][0] for index in complete])
    _require_shares(data, owners, count)
    limit = None if _have_labels(records) else data.sites.records
    rng = (stream / "apart").numpy()
    chosen, apart = few_shot(owners, limit or len(owners), count, rng, keep=1)
    kept = {complete[place] for place in chosen} | (set(range(len(records))) - set(complete))
    rest: Groups = {name: [] for name in groups}
    for index in sorted(kept):
        name, placed = everything[index]
        rest[name].append(placed)
    say(
        f"{count} of the sites' own {len(records)} records are set apart, of each site in proportion (data."
        f"{_taken_by(data)}); {len(kept)} are left to train on"
    )
    return rest, [records[complete[place]] for place in apart]


def _require_shares(data: DataConfig, owners: npt.NDArray[np.str_], count: int) -> None:
    """Refuse to leave a site without a record.

    Args:
        owners: the site of each record that may be set apart.
    """
    sites = len(np.unique(owners))
    most = len(owners) - sites
    if count > most:
        lower = f"Lower data.{_taken_by(data)} to {most} or less{_or_raise(data)}, or" if most else "Instead,"
        what = f"{count} of {len(owners)} records of {sites} sites cannot be set apart such that each site keeps one"
        raise DataError(what, where=data.train, fix=f"{lower} name a file with others to measure on: data.heldout.")


def share_out(data: DataConfig, records: Sequence[Placed], stream: Stream, embed: Embed) -> tuple[Groups, list[Placed]]:
    """One file: hold out, choose few, and partition what is left.

    Args:
        embed: called only where there is something to cluster.
    """
    labels = None if data.sites.label is None else np.array([placed.label for placed in records])
    if data.few_shot and not _have_labels(records):
        # Members and those they are compared with must come of one population, so both are drawn by cluster.
        clusters = _clusters(records, data.few_shot.clusters, stream, embed)
        count = _checked_count(data, len(records))
        rng = (stream / "few-shot").numpy()
        order, apart = few_shot(clusters, data.few_shot.per_cluster, count, rng)
        groups = clusters[order]
    else:
        apart, order = map(np.array, _take_apart(data, records, stream))
        groups = None
        if data.few_shot or (data.sites.scheme != "iid" and labels is None):
            wanted = data.few_shot.clusters if data.few_shot else data.sites.clusters
            groups = _clusters([records[i] for i in order], wanted, stream, embed)
        if data.few_shot:
            chosen, _ = few_shot(groups, data.few_shot.per_cluster, 0, (stream / "few-shot").numpy())
            order, groups = order[chosen], groups[chosen]
    if labels is not None:
        groups = labels[order]
    sites = data.sites
    assert sites.count is not None
    rest = [records[i] for i in order]
    if sites.scheme == "iid" and _have_labels(rest):
        # In turn, so that the texts with labels are shared evenly, and are the same for any number of sites.
        turns = label_order([placed.record for placed in rest], stream.seed)
        shares: Sequence[Sequence[int]] = [sorted(turns[k :: sites.count]) for k in range(sites.count)]
    else:
        rng = (stream / "partition").numpy()
        shares = [share.tolist() for share in partition(groups, len(rest), sites.count, sites.scheme, sites.alpha, rng)]
    width = len(str(sites.count - 1))
    shared = {f"site-{k:0{width}d}": [rest[i] for i in share] for k, share in enumerate(shares)}
    tell_of_empty([name for name, share in shared.items() if not share], "in this partition")
    return {name: share for name, share in shared.items() if share}, [records[i] for i in apart]


def _clusters(records: Sequence[Placed], wanted: int, stream: Stream, embed: Embed) -> Any:
    """The k-means cluster of each record, int64 [n]."""
    vectors = embed([placed.record.subject for placed in records])
    return kmeans(vectors, min(wanted, len(records)), (stream / "clusters").integer())


def _take_apart(data: DataConfig, records: Sequence[Placed], stream: Stream) -> tuple[list[int], list[int]]:
    """Which records are taken out of the sites' own, drawn at random, and which are left to the sites, in order. Those
    that have no label yet are drawn last, since nothing can be measured on them."""
    order = list(range(len(records)))
    (stream / "apart").python().shuffle(order)
    order.sort(key=lambda index: not records[index].record.is_complete)
    count = _checked_count(data, len(records))
    complete = len(_complete(data, records))
    if complete <= count:
        what = f"{complete} of {complete} labelled records are held out, and none is left to the sites"
        raise DataError(what, where=data.train, fix=f"Lower data.{_taken_by(data)}.")
    return order[:count], sorted(order[count:])


def _complete(data: DataConfig, records: Sequence[Placed]) -> list[int]:
    """The places of those records that can be measured on."""
    complete = [index for index, placed in enumerate(records) if placed.record.is_complete]
    if not complete:
        fix = (
            f"Labels are read from the column '{data.fields.get('label', 'label')}'; if they stand in another one, "
            "name it: data.fields = {label = 'column'}."
        )
        raise DataError("no record has a label", where=data.train, fix=fix)
    return complete


def _have_labels(records: Sequence[Placed]) -> bool:
    """Whether records are of a kind with labels, which decide how they are held out and shared: out of all alike, as
    what a classifier is measured on should be."""
    return bool(records[0].record.has_labels)


def _checked_count(data: DataConfig, available: int) -> int:
    """How many records are taken out of ``data.train``."""
    option = _taken_by(data)
    count = getattr(data, option) or 0
    if count >= available:
        what = f"{count} records asked of {available} that can be used"
        raise DataError(what, where=data.train, fix=f"Lower data.{option}{_or_raise(data)}.")
    return count


def _or_raise(data: DataConfig) -> str:
    """What else leaves more records to hold out, at the end of a sentence."""
    return " or raise data.records_per_user" if data.records_per_user and data.sites.by != "partition" else ""


def _taken_by(data: DataConfig) -> str:
    """The option that takes records out of ``data.train``: held-out ones, or non-members beside a held-out file."""
    return "heldout_records" if data.heldout is None else "nonmember_records"
