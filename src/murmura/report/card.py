"""What the card of an exported model says of its run, in Markdown and in the report's own words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from murmura.report.content import Block, Paragraph, Table
from murmura.report.markdown import pipes, tabled
from murmura.report.run_facts import facts, place
from murmura.report.sections.audit import figures_of
from murmura.report.sections.disclosure import disclosure
from murmura.report.sections.guarantee import guarantee
from murmura.report.table import table
from murmura.runs.record import RunRecord
from murmura.units import count

_TOLD = (
    *("Model", "Data", "Sites", "Records left out", "Held-out records", "Read as", "Rounds", "Options changed", "Seed"),
    "Precision",
)
_LIMITS = (
    "Figures are of one run, on the held-out records named above: other records may give others. Attacks that find "
    "nothing are no proof that nothing can be found. A guarantee holds for what the run has released, and for no other "
    "run over the same records."
)


_LICENCE = (
    "Under which licence the base model is, is not recorded: it holds for what was made of it too. Look it up before "
    "you hand this on."
)
_OWN = (
    "This is the adapter of site {} alone, of the run '{}', trained on that site's private records. {} An ε, where one "
    "is told below, is of what the sites have sent: it does not hold for this adapter."
)
_OF_ALL = "Figures are those of all sites."
_OF_GLOBAL = "It began as the adapter of all sites, and figures are those of that one."
_NO_NOISE = (
    "In this run the method added no noise (noise_multiplier = 0): nothing that it had sites send is differentially "
    "private."
)
_TRAINED = ("method", "aggregation", "augment", "lora", "training")
_CHANGED = "(Of options that were changed while it ran, these are the last values: “Options changed”, above.)"


def run_card(run: RunRecord, method: str, site: str | None = None) -> str:
    """Data, hyperparameters, figures, guarantee, what left the sites, what an audit found, and limits.

    Args:
        method: what it is, in words.
        site: whose own adapter the card is of; None of what is one for all. No guarantee of the run is for it.
    """
    rows = table([run])
    told = facts(rows)
    parts = ["## What it was trained on", "\n".join([*(f"- {name}: {told[name]}" for name in _TOLD if name in told)])]
    parts += [
        _records(run, site),
        _beside(run),
        _begun(run),
        "## How it was trained",
        f"{run.label}: {method}",
        _NO_NOISE if run.options.get("method", {}).get("noise_multiplier") == 0 else "",
        f"```toml\n{_options(run, site)}```",
        _CHANGED if "Options changed" in told else "",
    ]
    parts += ["## How good it is, what it gives away, and what it cost"]
    figures = _OF_GLOBAL if run.options.get("personal") else _OF_ALL
    parts += [_OWN.format(site, run.name, figures) if site is not None else ""]
    parts += [tabled(rows).strip()]
    promised = guarantee(rows) if site is None else None
    if promised is not None:
        parts += ["## The guarantee in full", promised.lead, *map(_block, promised.blocks)]
    released = disclosure(rows)
    parts += [f"## {released.title}", released.lead, *map(_block, released.blocks)]
    if found := figures_of(run):
        parts += ["## What an audit found", *map(_block, found)]
    parts += ["## Limits", _LIMITS, "## Licence", _LICENCE]
    return "\n\n".join(part for part in parts if part) + "\n"


def _begun(run: RunRecord) -> str:
    """The adapter that training began with, whose records are in the model too; nothing where there was none."""
    folder, digest = run.options.get("model", {}).get("adapter"), run.environment and run.environment.adapter
    if not folder:
        return ""
    which = f" (SHA-256 of its tensors {digest[:12]}…)" if digest else ""
    name = place(folder)
    return f"Training began with the adapter in `{name}`{which}: what that was trained on is in this model, too."


def _records(run: RunRecord, site: str | None) -> str:
    """With how many records the sites took part, and one of them, without canaries; nothing where that is not told, as
    in runs that promise an ε."""
    told = {one.site: one.used and one.used - one.canaries for one in run.sites or () if one.site not in run.silent}
    known = [number for number in told.values() if number is not None]
    if not known or len(known) < len(told):
        return ""
    own = "" if site is None else f", this one with {count(told.get(site) or 0)} of them"
    return f"The sites took part with {count(sum(known))} records{own}."


def _beside(run: RunRecord) -> str:
    """What sites have trained on beside their records; nothing where that was none."""
    options = run.options.get("augment")
    if not options:
        return ""
    pool = options.get("pool")
    what = f"public ones of the pool `{place(pool)}`" if pool else "others that a model has written after them"
    return f"Beside their own records sites have trained on {what} (`[augment]`, below)."


def _options(run: RunRecord, site: str | None) -> str:
    """What decides how it was trained, as in the experiment's file."""
    import tomli_w

    names = _TRAINED if site is None else (*_TRAINED, "personal")
    told = {name: run.options[name] for name in names if run.options.get(name)}
    if run.options.get("model", {}).get("trainable") == "all":
        told = {"model": {"trainable": "all"}} | {name: part for name, part in told.items() if name != "lora"}
    return tomli_w.dumps(_short(told))


def _short(value: Any) -> Any:
    """Options with a path's last two names in place of all: whoever gets the card has other folders. No list has paths,
    but patterns and words, which may begin with a slash and have to stay as they are."""
    if isinstance(value, Mapping):
        return {key: _short(one) for key, one in value.items()}
    return place(value) if isinstance(value, str) and Path(value).is_absolute() else value


def _block(block: Block) -> str:
    """Tables and sentences; pictures are in the report."""
    if isinstance(block, Paragraph):
        return block.text
    if not isinstance(block, Table):
        return ""
    title = f"{block.title}\n\n" if block.title else ""
    return title + pipes(block).rstrip("\n")
