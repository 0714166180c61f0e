"""What a comparison leaves in its folder, besides its runs."""

from __future__ import annotations

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from murmura import __version__
from murmura.compare.comparison import Outcome
from murmura.compare.config import UNNAMED
from murmura.compare.equal_utility import at_equal_utility
from murmura.compare.jobs import FIGURES, PICTURE, TABLE
from murmura.compare.outcome import LEAKAGE, UPLOADS, ArmResult, with_search
from murmura.compare.view import markdown, section
from murmura.report.content import FirstScreen
from murmura.report.output_file import replacing
from murmura.report.page import write as write_page
from murmura.runs import jsontext
from murmura.runs.names import REPORT


def write(outcome: Outcome, folder: Path) -> Path:
    """Write the page, the tables in Markdown, the picture as SVG and the figures as JSON.

    Returns:
        the page.

    Raises:
        CheckpointError: one cannot be written.
    """
    told = section(outcome)
    _write(folder / FIGURES, jsontext.dumps(figures(outcome)) + "\n")
    _write(folder / TABLE, markdown(told))
    drawn = next((block.picture for block in told.blocks if isinstance(block, FirstScreen)), None)
    if drawn is not None:
        _write(folder / PICTURE, standalone(drawn.svg))
    else:
        (folder / PICTURE).unlink(missing_ok=True)  # of an earlier one
    labels = {run.folder: one.arm for one in outcome.results for run in one.runs.values()}
    title = "Comparison" if outcome.name == UNNAMED else f"Comparison: {outcome.name}"
    counted = [with_search(one, run) for one in outcome.results for run in one.runs.values()]
    return write_page(counted, folder / REPORT, [told], labels, title)


def _write(path: Path, text: str) -> None:
    with replacing(path, path.name, "--out") as stream:
        stream.write(text)


def figures(outcome: Outcome) -> dict[str, Any]:
    """All that was found, as JSON."""
    return {
        "murmura": __version__,
        "name": outcome.name,
        "seeds": list(outcome.seeds),
        "reference": outcome.reference,
        "limits": outcome.limits.model_dump(),
        "chosen": outcome.choice.arm,
        "sentences": list(outcome.choice.sentences),
        "remarks": list(outcome.remarks),
        "at_once": outcome.at_once,
        "arms": [_arm(one) for one in outcome.results],
        "linear": outcome.linear,
        "at_equal_utility": {
            arm: asdict(level) for arm, level in at_equal_utility(outcome.results, outcome.reference).items()
        },
    }


def _arm(one: ArmResult) -> dict[str, Any]:
    utility = one.utility_figure.key
    return {
        "arm": one.arm,
        "kind": one.kind,
        "rate": one.rate,
        "tried": [asdict(tried) for tried in one.tried],
        "steps": one.steps,
        "epsilon": one.epsilon,
        "promise": one.promise,
        "caveats": one.caveats,
        "unguaranteed": one.unguaranteed,
        "bytes": one.bytes,
        "bytes_are_expected": one.hides_cohorts,
        "wall": one.wall,
        "utility": utility,
        "attacks": one.attacks,
        "figures": {key: one.values(key) for key in (utility, LEAKAGE, UPLOADS) if one.values(key)},
        "lacking": one.lacking,
        "runs": {seed: str(run.folder) for seed, run in one.runs.items()},
    }


def standalone(svg: str) -> str:
    """A picture of the page as a file of its own, with the page's colours for light and dark."""
    css = files("murmura.report").joinpath("page.css").read_text(encoding="utf-8")
    colours = css[: css.index("* {")]  # which the style sheet begins with
    head, _, body = svg.partition(">")
    type_ = "text { font-family: system-ui, sans-serif; }"
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f"{head} {names}><style>{colours}{type_}</style>{body}\n"
