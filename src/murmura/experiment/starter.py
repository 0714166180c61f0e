"""An experiment file to start from: the few lines that a person needs, or every option with what it means."""

from __future__ import annotations

import os
import shlex
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from murmura import methods
from murmura.experiment.config import Experiment
from murmura.experiment.every_option import WIDTH, comment, default_of, plain, section_of, tables, toml
from murmura.experiment.names import Named, named
from murmura.units import several

_HEADER = """\
# {title}
#
#   murmura run my.toml --dry-run                  what it would do
#   murmura run my.toml                            do it
#   murmura run my.toml --resume                   go on after the last finished round
#   murmura run my.toml --set method.rounds=5      with one option changed
{more}#
"""
_MORE = "#   {command:<47}every option, with what it means\n"
_ADVICE = "Name your records in {yours}; all else can stay."
_EVERY = (
    " A folder has one file a site; for one file with all records, change [data.sites] too. Every option is here with "
    "its default value, or with one that suits the method better and says so, and those that have none stand behind a "
    "'#'. An option that is removed has its default."
)
# What no default can know, and a file must say. Three quarters of those held out are the non-members of attacks, which
# say little of fewer than 20.
_NEEDED: Mapping[str, Any] = {"data.train": "FOLDER", "data.heldout_records": 28}
_OF: Mapping[str, Mapping[str, Any]] = {"pretext": {"method.public": "FILE"}}
_GENERATOR = "generator, which is small"
# Defaults suit the tuning on instructions; few labels are not learnt in a pass over them at that rate.
_SUITED: Mapping[str, Mapping[str, Any]] = {
    "lpfl": {"training.lr": 1e-3, "training.max_steps": 15},
    "pretext": {"training.lr": 2e-4, "training.schedule": "constant"},
}
_YOURS = {
    "lpfl": "[data], and patterns and the words of your labels in [method]",
    "pretext": "[data], and the public texts in [method]",
}
_POOL = ", and a pool of public records in [augment]"
# Options that a person is likely to want besides, by what they are in.
_LIKELY = (
    "run.name",
    "model.name",
    "data.train",
    "data.heldout_records",
    "method.name",
    "method.rounds",
    "method.epsilon",
    "method.beta",
    "method.keep",
    "method.patterns",
    "method.verbaliser",
    "method.public",
    "method.samples",
)
_FIRST = _LIKELY.index("method.rounds")  # before these stands what a name says
_IN_SHORT = {
    "run.name": "its folder is runs/NAME",
    "model.name": "or another of `murmura models list`, a folder, a Hugging Face id",
    "data.train": "in which each site has a file: JSONL, CSV, Excel or Parquet",
    "data.heldout_records": "taken out of these, to measure on",
    "training.lr": "learning rate",
    "training.max_steps": "steps of a site in a round",
    "training.schedule": "",
    "method.name": "",
    "method.epsilon": "what the whole run may spend; the noise follows from it",
    "method.beta": "share of the private branch in what is sent; 1 is FedAvg",
    "method.keep": "written records that a site trains on in a round",
    "method.patterns": "",
    "method.verbaliser": "your labels, and words for each",
    "method.public": "public texts, one a line of JSON, CSV or Parquet",
    "method.population": "candidates in each round",
    "method.tuning.lr": "of the generator; the paper's is for one of billions of parameters",
    "method.prompts": "of a round, each with ten candidates",
    "method.samples": "texts to write in the end",
    "method.variation": "how a text is varied",
    "augment.pool": "what `murmura pool build` has made",
    "augment.site_encoder": "a sentence encoder other than the pool's",
}
_COLUMN = 34  # of the comments behind options
_PER_CORE = 128  # texts that a core writes, varies and trains on in a few minutes
_MOST = 50_000


def starter(name: str, *, every: bool = False) -> str:
    """An experiment file for what is called ``name`` (``names.named``), ready to be edited.

    Args:
        every: with every option and what it means; else with those that a person is likely to want.

    Raises:
        ConfigError: nothing is called so.
    """
    what = named(name)
    options = methods.section(what.method)
    more = "" if every else _MORE.format(command=shlex.join(["murmura", "init", name, "--all"]))
    title = textwrap.fill(plain(what.title or options.__doc__), WIDTH, subsequent_indent="# ", break_on_hyphens=False)
    yours = _YOURS.get(what.method, "[data]") + _POOL * ("augment.pool" in what.options)
    advice = _ADVICE.format(yours=yours) + (_EVERY if every else "")
    head = "\n".join([_HEADER.format(title=title, more=more) + "\n".join(comment(advice)), ""])
    given = {**_NEEDED, **_OF.get(what.method, {}), **what.options}
    suited = {key: (value, "method") for key, value in _SUITED.get(what.method, {}).items()}
    fitted = _sizes(given) if what.method == "pretext" else {}
    suited |= {key: (value, _machine()) for key, value in fitted.items() if key not in given}
    if "method.evolve" in what.options:  # the paper's hardly move a generator of this size
        suited |= {"method.tuning.lr": (1e-5, _GENERATOR), "method.tuning.beta": (0.05, _GENERATOR)}
    if every:
        lines = tables(options, given, suited)
    else:
        given |= {key: value for key, (value, _) in suited.items()}
        if what == Named("dplora"):
            given["method.epsilon"] = 8.0  # what its preset fills in, where people can see it
        lines = _few(what, given)
    return "\n".join([head, *lines]).rstrip() + "\n"


def _few(what: Named, given: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a short file: options with a value, each with a few words."""
    likely = dict.fromkeys((*_LIKELY[:_FIRST], *what.options, *_LIKELY[_FIRST:], *given))
    wanted = [key for key in likely if key not in _unused(given)]
    for table, field in Experiment.model_fields.items():
        section = methods.section(what.method) if table == "method" else section_of(field)
        defaults = {f"{table}.{name}": default_of(one) for name, one in section.model_fields.items()}
        values = {key: given.get(key, defaults.get(key)) for key in wanted if key.startswith(f"{table}.")}
        known = table != "method" or not methods.METHODS[what.method].package  # whose option may be another
        lines = [_line(key, value, known) for key, value in values.items() if value is not None]
        if lines:
            yield from (f"[{table}]", *lines, "")


def _unused(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Likely options that do nothing beside what is given."""
    voting = ("method.epsilon", "method.rounds")
    return {"private": ("method.public", *voting), "public": voting, "paraphrased": ("method.rounds",)}.get(
        given.get("method.seeds", ""), ()
    )


def _line(key: str, value: Any, known: bool) -> str:
    words = _IN_SHORT.get(key, "") if known else ""
    line = f"{key.partition('.')[2]} = {toml(value)}"
    return f"{line:<{_COLUMN}} # {words}" if words and len(line) <= WIDTH - _COLUMN else line


def _sizes(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options of PrE-Text beside what is given, with which a run takes some ten minutes on processor cores; none, and
    so the paper's, where there is a GPU."""
    if _has_gpu():
        return {}
    written = {"method.samples": min(_MOST, _PER_CORE * _cores()), "method.sample_tokens": 48}
    if "method.seeds" in given:  # no votes
        return written
    if "method.evolve" in given:
        return {"method.rounds": 4, "method.prompts": min(1800, 16 * _cores()), "method.text_tokens": 40, **written}
    return {
        "method.rounds": 4,
        "method.population": min(2048, 32 * _cores()),
        "method.text_tokens": 40,
        "method.lookahead": 2,
        "method.variation": "continue",
        "method.variation_model": "smollm2-135m",
        **written,
    }


def _machine() -> str:
    """What these are for, in words."""
    cores = _cores()
    return f"machine ({several(cores, 'core')}, no GPU)"


def _cores() -> int:
    return os.cpu_count() or 1


def _has_gpu() -> bool:
    """By NVIDIA's own tool: PyTorch would take seconds to say so."""
    return shutil.which("nvidia-smi") is not None
