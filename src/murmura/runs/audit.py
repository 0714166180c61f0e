"""What is in ``audit.json``: what attacks on a finished run have found."""

from __future__ import annotations

from dataclasses import dataclass

from murmura.runs.schema import FEW


@dataclass(frozen=True, slots=True)
class Separation:
    """How well one attack tells members from others.

    Attributes:
        attack: Its name.
        auc: The chance that a member scores higher than one of the others; ``low`` to ``high`` is its 95 % interval.
        tpr: The share of members found at 1 % false positives, ``tpr_low`` to ``tpr_high`` its 95 % interval; None
            where there are too few others.
        control: Whether it is the naive attack that others are compared with, and never called the strongest.
        apart: The AUC on the records set apart, by which the strongest is chosen; None where there were too few.
    """

    attack: str
    auc: float
    low: float
    high: float
    tpr: float | None
    tpr_low: float | None
    tpr_high: float | None
    control: bool = False
    apart: float | None = None


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many scores of members and of others lie in each bin, between ``edges`` that are one more; what lies beyond
    is in the first and the last. Of several models the others are counted once for each. Members are in per cent of all
    where the run promises an ε."""

    edges: tuple[float, ...]
    members: tuple[int, ...]
    others: tuple[int, ...]


TARGETS = {"model": "the model", "adapters": "each site's own adapter", "uploads": "single uploads"}
"""What an audit attacks, in words."""


@dataclass(frozen=True, slots=True)
class AuditedModel:
    """What membership inference has found of one of ``TARGETS``.

    Attributes:
        target: Which.
        members: On how many members, and ``others``, the figures rest; None where the run promises an ε.
        strongest: The strongest attack, as chosen on other records.
        attacks: All of them.
        histogram: Of the scores of the strongest.
        few: That there were so few members that it says little, where their number is not told.
    """

    target: str
    members: int | None
    others: int
    strongest: str
    attacks: tuple[Separation, ...]
    histogram: Histogram
    few: bool = False

    @property
    def says_little(self) -> bool:
        """That it had too few records."""
        return self.few or any(number < FEW for number in (self.members, self.others) if number is not None)

    @property
    def of_sites(self) -> bool:
        """Whether there is a model for each site, which is attacked by the site's own records."""
        return self.target != "model"

    @property
    def best(self) -> tuple[Separation, ...]:
        """What the strongest found; nothing where a file does not tell."""
        return tuple(one for one in self.attacks if one.attack == self.strongest)


@dataclass(frozen=True, slots=True)
class Extraction:
    """Which share of records an attacker who lets one of ``TARGETS`` write gets word for word.

    Attributes:
        target: Which.
        temperature: At which the attacker lets it write.
        top_k: Among how many likeliest tokens; 0: among all.
        p: With which probability at least.
        members: Of how many members, None where the run promises an ε, and how many ``others``, the shares are.
        tries: How often the attacker lets it write.
        found: Of each number of tries, the share of members; ``low`` to ``high`` is its 95 % interval (Wilson's).
        others_found: The share of others.
    """

    target: str
    temperature: float
    top_k: int
    p: float
    members: int | None
    others: int
    tries: tuple[int, ...]
    found: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    others_found: tuple[float, ...]


PROMPTS = {
    "record": "each record’s own prompt, continued greedily",
    "template": "nothing but what stands before every instruction",
}
"""What a model is given to write on, in words."""


@dataclass(frozen=True, slots=True)
class Written:
    """How close what one of ``TARGETS`` writes comes to members, by ROUGE-L.

    Attributes:
        target: Which.
        prompt: One of ``PROMPTS``.
        members: How many members' prompts, None where the run promises an ε, or texts; ``others`` likewise.
        rouge: Mean ROUGE-L with members; of a text, with the closest of them.
        others_rouge: The same with others.
        difference: By how much the first is the larger; ``low`` to ``high`` is its 95 % interval.
    """

    target: str
    prompt: str
    members: int | None
    others: int
    rouge: float
    others_rouge: float
    difference: float
    low: float
    high: float


CENTRES = {
    "sent": "centres as sites sent them",
    "exact": "the same clusters’ centres without noise, which did not leave the sites",
}
"""Centres of sites' records that an audit attacks, in words."""


@dataclass(frozen=True, slots=True)
class CentreShare:
    """How often a record of the site itself is the nearest of all to a centre of a cluster of so many records.

    Attributes:
        least: Records in the cluster, by what the site says, at least; ``most`` at most, None for any number.
        centres: How many centres there are, those of one round; None where the run promises an ε.
        own: The share of them whose nearest record is the site's own; ``low`` to ``high`` is its 95 % interval
            (Wilson's).
        others: The share of them whose nearest record is another site's.
    """

    least: int
    most: int | None
    centres: int | None
    own: float
    low: float
    high: float
    others: float


@dataclass(frozen=True, slots=True)
class Centred:
    """What centres of sites' records give away, to somebody who guesses the record that is nearest to them.

    Attributes:
        kind: One of ``CENTRES``.
        pool: How many public records the guess is made among.
        records: And how many of all sites; None where the run promises an ε.
        chance: How often a guess at random among all of these would be one of the site's own.
        groups: By size of the cluster; the last is of all.
    """

    kind: str
    pool: int
    records: int | None
    chance: float
    groups: tuple[CentreShare, ...]


SYNTHETIC = {
    "written": "records that a model wrote at the sites after their own",
    "drafts": "synthetic records of all rounds that sites keep to train on",
    "texts": "texts of the data set that the run leaves",
    "seeds": "seeds of that data set",
}
"""Texts that a run has made, in words."""
QUANTILES = (0.5, 0.9, 0.99, 1.0)
"""Of the nearness of texts to records."""


@dataclass(frozen=True, slots=True)
class Synthetic:
    """How close texts that a run has made come to private records, by ROUGE-L, and how diverse they are.

    Attributes:
        kind: A key of ``SYNTHETIC``.
        texts: How many were compared; None of those that sites keep where the run promises an ε.
        records: With how many private records; None where the run promises an ε.
        near: ``QUANTILES``, over the texts, of the largest ROUGE-L with any of them.
        same: With how many of either kind the next two are; None where the run promises an ε.
        rouge: Mean of the largest ROUGE-L with any of so many private records; ``others_rouge`` with any of as many
            that no site had.
        counted: Of how many texts, and of as many private records, the next two are; None where the run promises an ε.
        distinct: Distinct-1 and distinct-2 of texts (Li et al. 2016); ``records_distinct`` of private records.
    """

    kind: str
    texts: int | None
    records: int | None
    near: tuple[float, ...]
    same: int | None
    rouge: float
    others_rouge: float
    counted: int | None
    distinct: tuple[float, ...]
    records_distinct: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Audit:
    """``audit.json``.

    Attributes:
        murmura: Murmura's version.
        made: When, in ISO 8601 with the time zone.
        models: Membership inference, on each model.
        missing: What was not done, and why, in sentences.
        extraction: How many tries it takes to get records, on each model.
        written: What models write, on each model.
        caveat: Of a run that promises an ε, of centres or of all: that it covers none of this.
        centres: What centres of sites' records give away.
        synthetic: What texts that the run has made give away.
        unlike: Whether the loss before training tells members from others.
    """

    murmura: str | None
    made: str
    models: tuple[AuditedModel, ...]
    missing: tuple[str, ...] = ()
    extraction: tuple[Extraction, ...] = ()
    written: tuple[Written, ...] = ()
    caveat: str | None = None
    centres: tuple[Centred, ...] = ()
    synthetic: tuple[Synthetic, ...] = ()
    unlike: bool = False
