"""What of an audit may be told of a run that promises an ε, beside its figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from murmura.runs.audit import (
    Audit,
    AuditedModel,
    Centred,
    CentreShare,
    Extraction,
    Histogram,
    Separation,
    Synthetic,
    Written,
)
from murmura.runs.schema import FEW
from murmura.units import rough

T = TypeVar("T", Separation, Extraction, Written, Centred, CentreShare, Synthetic)
_CAVEAT = (
    "The run’s ε covers none of this: an audit looks at private records, and its figures come without noise. Whoever "
    "publishes them publishes more than the ε allows. How many records were scored is for the run’s owner alone."
)
_SAYS_LITTLE = f"Fewer than {FEW} of the sites’ records were scored, too few to say much."


def published(found: Audit) -> Audit:
    """The same with its caveat, and without how many of the sites' records were scored: the run tells that nowhere.

    Shares of these records are rounded to three digits, and bins hold them in per cent: exact ones are fractions whose
    denominator is that number. Intervals stay, though from their widths it follows nearly.
    """
    models = tuple(map(_model, found.models))
    return replace(
        found,
        models=models,
        missing=(*found.missing, _SAYS_LITTLE) if any(one.few for one in models) else found.missing,
        extraction=tuple(replace(_rounded(one, "found", "low", "high"), members=None) for one in found.extraction),
        written=tuple(_written(one) for one in found.written),
        centres=tuple(_centred(one) for one in found.centres),
        synthetic=tuple(_synthetic(one) for one in found.synthetic),
        caveat=_CAVEAT,
    )


def _model(found: AuditedModel) -> AuditedModel:
    drawn = found.histogram
    every = max(1, sum(drawn.members))
    shares = tuple(round(100 * number / every) for number in drawn.members)
    attacks = tuple(_rounded(one, "auc", "low", "high", "tpr", "tpr_low", "tpr_high", "apart") for one in found.attacks)
    few, histogram = found.members is not None and found.members < FEW, Histogram(drawn.edges, shares, drawn.others)
    return replace(found, members=None, attacks=attacks, histogram=histogram, few=few)


def _written(found: Written) -> Written:
    """Texts that nobody was asked for are no records, and their number is an option's."""
    told = _rounded(found, "rouge", "others_rouge", "difference", "low", "high")
    return replace(told, members=None) if found.prompt == "record" else told


def _centred(found: Centred) -> Centred:
    groups = tuple(replace(_rounded(one, "own", "low", "high", "others"), centres=None) for one in found.groups)
    return replace(_rounded(found, "chance"), records=None, groups=groups)


def _synthetic(found: Synthetic) -> Synthetic:
    """How many a site keeps follows from its records; the data set of a run is left by itself."""
    told = _rounded(found, "near", "rouge", "others_rouge", "distinct", "records_distinct")
    texts = found.texts if found.kind in ("texts", "seeds") else None
    return replace(told, texts=texts, records=None, same=None, counted=None)


def _rounded(one: T, *names: str) -> T:
    return replace(one, **{name: rough(getattr(one, name)) for name in names})
