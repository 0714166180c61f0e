"""How texts evolved by sites' votes (PrE-Text): votes against the noise, who lived and who died; and how good the model
is by how many texts it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import TYPE_CHECKING, Any

from murmura.measure.catalogue import figure
from murmura.report.content import Block, Details, Picture, Pictures, ReportSection, Table, note, shortened
from murmura.report.drawing import INK, MUTED, PAPER, dots, means, svg
from murmura.report.style import style
from murmura.report.table import Row, each_run, legend, runs_of
from murmura.runs.evolution import Generation
from murmura.runs.record import RunRecord
from murmura.units import count, decimal, listing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEAD = (
    "The server had texts of its own, the candidates. In each round sites voted for those that are near their private "
    "texts. Votes are shown as they were released. "
)
_VARIED = (
    "The candidates of the next round are variations of those that were drawn by their votes (PrE-Text, Hou et al. "
    "2024)."
)
_TUNED = (
    "A generator wrote the candidates, some for each of many prompts; it was tuned on which of a prompt’s texts got "
    "more votes than which (POPri, Hou et al. 2025), and then wrote the next ones."
)
_NOISY = "Everything in this section follows from the noisy votes and from public texts, and is covered by the run’s ε."
_OPEN = (
    "No ε covers the votes: they tell, without noise or with less than was planned, how many private texts are near "
    "which candidate."
)
_MARKS = 24  # candidates of a round that are drawn
_ASIDE = 0.13  # of a round, how far to its right those are that lived, and to its left those that died
_SHOWN = 3  # candidates of a round in the table that lived, and as many that died
_TICKS = 6


def text_evolution(rows: Sequence[Row]) -> ReportSection | None:
    """Of those runs in which sites voted."""
    evolved = [run for run in runs_of(rows) if run.evolution]
    how = (_TUNED if tuned else _VARIED for tuned in dict.fromkeys(_is_tuned(run) for run in evolved))
    lead = _LEAD + " ".join(how)
    return ReportSection("How the texts evolved", lead, each_run(rows, evolved, _blocks)) if evolved else None


def _is_tuned(run: RunRecord) -> bool:
    return run.evolution[0].pairs


def _blocks(run: RunRecord) -> list[Block]:
    shown = Details("Some candidates that lived, and some that died", [_candidates(run.evolution)])
    if _is_tuned(run):
        shown = Details("Some texts that were preferred, and to which", [_pairs(run.evolution)])
    return [*map(note, _sentences(run)), Pictures([_votes(run)]), shown]


def by_texts(rows: Sequence[Row]) -> ReportSection | None:
    """How good the model is by how many texts it was trained on, a line for each row, in means over its runs; None
    where no run was trained on several numbers of texts."""
    drawn = (("heldout_loss", "loss (nats per token)"), ("heldout_accuracy", "accuracy (0 to 1)"))
    pictures = [picture for key, unit in drawn if (picture := _curve(rows, key, unit))]
    lead = "The model after training on so many of the texts that the run has made, each time from the start."
    return ReportSection("By how many texts", lead, [Pictures(pictures, legend(rows))]) if pictures else None


# ---- words -----------------------------------------------------------------------------------------------------------


def _sentences(run: RunRecord) -> list[str]:
    rounds, noise = run.evolution, _noise(run)
    lived = [sum(1 for times in one.drawn if times) for one in rounds]
    found = (
        [f"{_each(lived)} pairs of texts in {_rounds(len(rounds))}, one of each preferred."]
        if _is_tuned(run)
        else [
            f"{_each([len(one.candidates) for one in rounds])} candidates in {_rounds(len(rounds))}, of which "
            f"{_each(lived)} lived."
        ]
    )
    if any(noise):
        heights = _thresholds(run)
        line = f" Of each candidate’s votes the threshold H = {_span(heights)} was taken off, down to 0." * any(heights)
        found.append(f"Noise of σ = {_span(noise)} lies on every candidate’s votes.{line}")
    found.append(_NOISY if run.last.privacy.get("epsilon") is not None else _OPEN)
    return found


def _noise(run: RunRecord) -> list[float]:
    """σ of the noise in each round's votes, 0 for none: of noise in shares it follows from how many sites answered."""
    return [one.values["vote_noise"] for one in run.rounds if "vote_noise" in one.values]


def _thresholds(run: RunRecord) -> list[float]:
    """H of each round, in votes; 0 where there is none."""
    if _is_tuned(run):
        return [0.0] * len(run.evolution)
    given: Any = run.options["method"].get("threshold", 0.0)
    return [float(given) * noise for noise in _noise(run)]


def _span(values: Sequence[float]) -> str:
    """``3.5``, or ``3.5 to 4.5`` where they differ."""
    return " to ".join(dict.fromkeys(decimal(one, 1) for one in (min(values), max(values))))


def _rounds(number: int) -> str:
    return f"each of {number} rounds" if number > 1 else "one round"


def _each(numbers: Sequence[int]) -> str:
    """``24``, or ``6, 8 and 7`` where they differ."""
    return listing([count(number) for number in (numbers if len(set(numbers)) > 1 else numbers[:1])])


def _candidates(rounds: Sequence[Generation]) -> Table:
    """Of the first round, the middle and the last: those that were drawn most often, and those with the fewest votes
    that were not drawn."""
    lines = []
    for number in _some(rounds):
        one = rounds[number]
        order = sorted(range(len(one.votes)), key=lambda place: (one.drawn[place], one.votes[place]), reverse=True)
        lived = [place for place in order if one.drawn[place]]
        died = [place for place in order if not one.drawn[place]]
        for place in [*lived[:_SHOWN], *died[-_SHOWN:]]:
            votes, times = decimal(one.votes[place], 1), one.drawn[place]
            drawn = f"{count(times)} times" if times > 1 else "once" if times else "died"
            lines.append((str(number + 1), votes, drawn, shortened(one.candidates[place])))
    return Table(("Round", "Votes", "Drawn", "Text"), lines, text=(2, 3), stacked=True, css="candidates")


def _pairs(rounds: Sequence[Generation]) -> Table:
    """Of the first round, the middle and the last: the pairs whose votes are furthest apart."""
    lines = []
    for number in _some(rounds):
        one = rounds[number]
        firsts = range(0, len(one.votes), 2)
        for place in sorted(firsts, key=lambda place: one.votes[place + 1] - one.votes[place])[:_SHOWN]:
            for role, own in (("preferred", place), ("to", place + 1)):
                lines.append((str(number + 1), decimal(one.votes[own], 2), role, shortened(one.candidates[own])))
    return Table(("Round", "Votes", "", "Text"), lines, text=(2, 3), stacked=True, css="candidates")


def _some(rounds: Sequence[Generation]) -> list[int]:
    """The first round, the middle and the last."""
    return sorted({0, (len(rounds) - 1) // 2, len(rounds) - 1})


# ---- pictures --------------------------------------------------------------------------------------------------------


def _votes(run: RunRecord) -> Picture:
    """Votes of each round's candidates, evenly by rank where there are many."""
    noise, heights = _noise(run), _thresholds(run)

    def draw(axes: Axes) -> None:
        for number, (sigma, height) in enumerate(zip(noise, heights, strict=True), start=1):
            ends = [number - 0.5, number + 0.5]
            if sigma:
                axes.fill_between(ends, -sigma, sigma, color=MUTED, alpha=0.16, linewidth=0, zorder=1)
            if height:
                axes.plot(ends, [height, height], color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=2)
        for number, one in enumerate(run.evolution, start=1):
            for lived in (True, False):
                own = sorted(v for v, times in zip(one.votes, one.drawn, strict=True) if bool(times) is lived)
                shown = _evenly(own, _MARKS)
                points = [(number + (_ASIDE if lived else -_ASIDE), votes) for votes in shown]
                colour, fill = (style(0).colour,) * 2 if lived else (MUTED, PAPER)
                edge = {"markerfacecolor": fill, "markeredgewidth": 0.9}
                dots(axes, points, colour, 4.4, zorder=4 if lived else 3, **edge)
        axes.set_xlim(0.5, len(run.evolution) + 0.5)
        axes.set_xlabel("round")

    parts = ["Filled: candidates that lived. Hollow: those that died."]
    if _is_tuned(run):
        parts = ["Filled: texts that were preferred. Hollow: those that they were preferred to."]
    if any(noise):
        parts.append("Grey: what noise alone does to two of three candidates (± σ).")
    if any(heights):
        parts.append("Dashed: the threshold.")
    if max(len(one.votes) for one in run.evolution) > _MARKS:
        parts.append(f"Of each at most {_MARKS}, from the most votes to the fewest.")
    title = "Votes by round, against the noise" if any(noise) else "Votes by round"
    return Picture(title, svg(draw, "votes", f"votes {run.name}"), " ".join(parts))


def _evenly(values: Sequence[float], most: int) -> list[float]:
    """So many of them at most, first and last among them."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]


def _curve(rows: Sequence[Row], key: str, unit: str) -> Picture | None:
    lines = [_points(row, key) for row in rows]
    if not any(len(points) > 1 for points in lines):
        return None
    places = sorted({texts for points in lines for texts in points})

    def draw(axes: Axes) -> None:
        for row, points in zip(rows, lines, strict=True):
            means(axes, {log2(texts): values for texts, values in points.items()}, row.look)
        axes.set_xlabel("texts")

    one = figure(key)
    several = any(len(values) > 1 for points in lines for values in points.values())
    seeds = "Small hollow marks are single runs, lines go through their means. " * several
    title = f"{one.title}, by how many texts"
    marks = {log2(texts): count(texts) for texts in _evenly(places, _TICKS)}
    caption = f"Texts double with every step of the same width. {seeds}{one.direction}"
    return Picture(title, svg(draw, unit, title, rounds=False, marks=marks), caption)


def _points(row: Row, key: str) -> dict[int, list[float]]:
    """Of a row the figures of its runs, by how many texts."""
    found: dict[int, list[float]] = {}
    for point in (point for run in row.runs for point in run.curve):
        value = getattr(point, key)
        if value is not None and point.texts:
            found.setdefault(point.texts, []).append(value)
    return dict(sorted(found.items()))
