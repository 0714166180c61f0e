"""What a run needs to know of a method under its options, besides what it does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from murmura.aggregation.config import LINEAR, PRODUCTS

RULES = (*LINEAR, *PRODUCTS)


@dataclass(frozen=True, kw_only=True)
class Combines:
    """What of ``[aggregation]`` a method works with.

    Args:
        rules: aggregation rules, by their kinds.
        ranks: whether sites may have adapters of unequal ranks.
        travels: whether adapters may travel in fewer bits: that is so where what sites upload is used as it arrives,
            and nothing that is promised depends on its last bit.
        because: why others do not go.
        fix: what to do then, if it is more than to choose another rule.
        refused: local rules and server's steps, by their kinds, that make no sense, and why.
    """

    rules: tuple[str, ...] = RULES
    ranks: bool = True
    travels: bool = False
    because: str = ""
    fix: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Of a method under its options.

    Args:
        label: its name with the options that matter.
        trained_at: where the model is trained. Unless that is at the sites the run has no adapter before the method
            assigns one on the server.
        personal: the trained adapters stay at the sites (``site.store["adapter"]``) and there is no global one; verbs
            are asked for through ``Server.ask_personal``.
        pooled: all records are brought together before training, as a baseline.
        single_replies: why the server reads single replies besides what is summed, in words that follow a colon; empty
            where it asks for sums alone, so that these can be secure.
        combines: what of ``[aggregation]`` it works with; None: it aggregates in a way of its own.
        no_public_records: why sites cannot train on public records too (``[augment]``); empty where they can: then
            verbs find them in ``cohort.others``.
        no_magnitudes: why it does not work with ``lora.dora``, in words that follow a colon; empty where it does.
        no_whole_models: why it cannot train all parameters (``model.trainable = "all"``); empty where it can.
        tells_uploads: the server's program tells of uploads (``Server.observe_upload``), which travel in another form
            than as a field ``adapter``.
    """

    label: str
    trained_at: Literal["sites", "server", "nowhere"] = "sites"
    personal: bool = False
    pooled: bool = False
    single_replies: str = "its server reads what each site sends"
    combines: Combines | None = None
    no_public_records: str = "it has no part that public instructions could be trained in"
    no_magnitudes: str = ""
    no_whole_models: str = ""
    tells_uploads: bool = False


@dataclass(frozen=True, kw_only=True)
class AveragingTraits(Traits):
    """Of a method on ``Averaging``, unless it says otherwise."""

    single_replies: str = ""
    combines: Combines | None = Combines()
