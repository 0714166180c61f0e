"""A comparison as sections of the page, on the terminal, in Markdown and as one picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from murmura.compare.choice import Choice
from murmura.compare.comparison import Outcome
from murmura.compare.outcome import LEAKAGE, Result, compared, frontier
from murmura.compare.statistics import Difference, Estimate
from murmura.report.content import Block, Entry, Listing, Paragraph, Picture, Pictures, Section, Table, entry
from murmura.report.drawing import MUTED, PAPER, dots, hollow, svg
from murmura.report.style import Style, style
from murmura.units import DASH, bound, count, duration, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROOM = 0.75  # of the width of the points, for names beside them
_LINE = 0.062  # of the height, between two names


def section(outcome: Outcome) -> Section:
    """Which arm to take, how they lie to each other, and every arm's figures."""
    seeds = ", ".join(map(str, outcome.seeds))
    lead = (
        f"Every arm was run with the seeds {seeds}, on the same records. Figures are means over them, with 95 % "
        "intervals (Student’s t); differences are paired by seed, and their p values corrected for how many there are "
        "(Holm)."
    )
    taken, *others = outcome.choice.sentences
    blocks: list[Block] = [Paragraph(taken, "note"), *([Listing(others)] if others else [])]
    pictures = [Pictures([picture(outcome)], lines=False)] if _points(outcome) else []
    remarks = [Paragraph(remark) for remark in outcome.remarks]
    return Section("Which one", lead, [*blocks, *pictures, *tables(outcome), *remarks])


def tables(outcome: Outcome) -> list[Table]:
    """An arm a row: what it is worth, and what it costs."""
    looks = looks_of(outcome.results)
    far = {key: _against(outcome, key) for key in ("", LEAKAGE)}
    front = frontier(outcome.results, outcome.kind)
    worth: list[list[Entry | str]] = []
    cost: list[list[Entry | str]] = []
    for one in outcome.results:
        name = Entry(one.arm, tuple(_marks(one, outcome.choice, front)), look=looks[one.arm])
        worth.append([name, *_with(one.utility, far[""].get(one.arm)), *_with(one.leakage, far[LEAKAGE].get(one.arm))])
        promise = entry(DASH, one.unguaranteed) if one.epsilon is None else entry(bound(one.epsilon))
        wall = DASH if one.wall is None else duration(one.wall)
        steps = DASH if one.steps is None else count(one.steps)
        cost.append([Entry(one.arm, look=looks[one.arm]), promise, size(one.bytes), wall, steps, _rate(one)])
    utility = next(one.utility_figure for one in outcome.results if one.kind == outcome.kind)
    against = f"against {outcome.reference}"
    return [
        Table(["Arm", utility.title, against, "Leakage (AUC)", against], worth, "What it is worth", stacked=True),
        Table(
            ["Arm", "ε, with the search", "Travels", "Time of a run", "Steps of all sites", "Rate"],
            cost,
            "What it promises and costs",
            stacked=True,
        ),
    ]


def looks_of(results: Sequence[Result]) -> dict[str, Style]:
    """One mark and colour an arm."""
    return {one.arm: style(place) for place, one in enumerate(results)}


def _against(outcome: Outcome, key: str) -> Mapping[str, Difference]:
    reference = next(one for one in outcome.results if one.arm == outcome.reference)
    return compared(outcome.results, outcome.reference, key or reference.utility_figure.key)


def _with(one: Estimate | None, far: Difference | None) -> list[Entry]:
    value = Entry(DASH) if one is None else entry(*_parts(one.words))
    return [value, Entry(DASH) if far is None else entry(*_parts(far.words))]


def _parts(words: str) -> tuple[str, str]:
    head, _, rest = words.partition(" (")
    return head, rest.replace(")", "")


def _marks(one: Result, choice: Choice, front: Sequence[str]) -> list[str]:
    told = ["chosen"] * (one.arm == choice.arm) + ["on the frontier"] * (one.arm in front)
    seeds = len(one.seeds) - len(one.lacking)
    return [*told, f"{seeds} seed{'s' * (seeds != 1)}{f' of {len(one.seeds)}' if one.lacking else ''}"]


def _rate(one: Result) -> Entry:
    tried = ", ".join(f"{tried.rate:g}" for tried in one.tried)
    return entry(f"{one.rate:g}", f"of {tried}" if tried else "as given", "at the edge" if one.edge else "")


# ---- the picture -----------------------------------------------------------------------------------------------------


def _points(outcome: Outcome) -> list[Result]:
    return [one for one in outcome.results if one.kind == outcome.kind and one.utility and one.leakage]


def picture(outcome: Outcome) -> Picture:
    """Utility against leakage, each arm by its mean and its interval, with its name beside it."""
    points, looks = _points(outcome), looks_of(outcome.results)
    known = points[0].utility_figure
    right = known.better == "higher"

    def draw(axes: Axes) -> None:
        axes.axhline(0.5, color=MUTED, linewidth=0.9, zorder=1)
        for one in points:
            _mark(axes, one, looks[one.arm])
        _name(axes, points, looks)
        axes.set_xlabel(f"{known.title.lower()} ({known.unit.name})")

    caption = (
        f"Best is the lower {'right' if right else 'left'} corner: answers well, gives little away. The line is "
        "guessing. Bars are 95 % intervals over seeds, small hollow marks single seeds."
    )
    drawn = svg(draw, "leakage (AUC of the strongest attack)", "frontier", rounds=False)
    return Picture("Utility against leakage", drawn, caption)


def _mark(axes: Axes, one: Result, look: Style) -> None:
    assert one.utility and one.leakage
    x, y = one.utility, one.leakage
    for across, up in ((_reach(x), None), (None, _reach(y))):
        if across or up:
            axes.errorbar(
                [x.mean], [y.mean], xerr=across, yerr=up, fmt="none", ecolor=look.colour, elinewidth=1.0, alpha=0.6
            )
    own, leaks = one.values(one.utility_figure.key), one.values(LEAKAGE)
    if len(own) > 1:
        hollow(axes, [(own[seed], leaks[seed]) for seed in own if seed in leaks], look, 3.2, zorder=4)
    dots(axes, [(x.mean, y.mean)], look.colour, 8.0, marker=look.marker, markeredgecolor=PAPER, zorder=5)


def _reach(one: Estimate) -> list[list[float]] | None:
    """How far the interval goes, down and up."""
    if one.low is None or one.high is None:
        return None
    return [[one.mean - one.low], [one.high - one.mean]]


def _name(axes: Axes, points: Sequence[Result], looks: Mapping[str, Style]) -> None:
    """Names in a column on the right, in the order of their marks, each led to its own."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    wide, tall = right - left, high - low
    guess = (0.5 - low) / tall
    axes.set_xlim(left, right + _ROOM * wide)
    ordered = sorted(points, key=lambda one: one.leakage.mean if one.leakage else 0.0)
    places: list[float] = []
    for one in ordered:
        at = (one.leakage.mean - low) / tall if one.leakage else 0.0
        at += _LINE * (abs(at - guess) < _LINE / 2)  # not on the line of guessing
        places.append(max(at, places[-1] + _LINE) if places else at)
    over = max(0.0, places[-1] - 1.0)
    for one, place in zip(ordered, places, strict=True):
        assert one.utility and one.leakage
        spot = low + max(place - over, 0.0) * tall
        ends = [one.utility.mean, right + 0.06 * wide], [one.leakage.mean, spot]
        axes.plot(*ends, color=looks[one.arm].colour, linewidth=0.6, alpha=0.5, zorder=2)
        axes.text(right + 0.08 * wide, spot, one.arm, color=looks[one.arm].colour, va="center", fontsize=9)


# ---- elsewhere -------------------------------------------------------------------------------------------------------


def show(outcome: Outcome) -> None:
    """Print the sentences and tables."""
    from rich.console import Console

    from murmura.report.terminal import draw

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(140, console.width)
    for block in section(outcome).blocks:
        if isinstance(block, Table):
            console.print(draw(block))
        elif isinstance(block, Listing):
            for item in block.items:
                console.print(item)
        elif isinstance(block, Paragraph):
            console.print(block.text, style="bold" if block.style == "note" else "")


def markdown(outcome: Outcome) -> str:
    """The sentences and tables, for a page of results."""
    told = section(outcome)
    parts = [f"{told.lead}\n"]
    for block in told.blocks:
        if isinstance(block, Paragraph):
            parts.append(f"**{block.text}**\n" if block.style == "note" else f"{block.text}\n")
        elif isinstance(block, Listing):
            parts.append("".join(f"- {item}\n" for item in block.items))
        elif isinstance(block, Table):
            lines = [list(block.columns), ["---", *["--:"] * (len(block.columns) - 1)]]
            lines += [[cell.words for cell in row] for row in block.entries]
            parts.append("".join(f"| {' | '.join(cells)} |\n" for cells in lines))
    return "\n".join(parts)
