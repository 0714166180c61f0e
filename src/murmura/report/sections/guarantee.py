"""What is guaranteed: ε as it was accounted, what it means, and what it is held against."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10
from typing import TYPE_CHECKING

from murmura.privacy.curve import DELTAS
from murmura.report.content import Block, Entry, Picture, Pictures, ReportSection, Table, entry, note
from murmura.report.drawing import INK, MUTED, PAPER, svg
from murmura.report.guarantee import RowGuarantee, guarantees, is_contradicted, last_audited, limits, terms
from murmura.report.table import OUTSIDE, Row, columns, distinct, runs_of
from murmura.runs.record import RunRecord
from murmura.units import DASH, at_least, bound, count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = ("Runs", "ε", "δ", "Protects", "Accountant", "Plan")


def guarantee(rows: Sequence[Row]) -> ReportSection | None:
    """Of those runs that promise an ε, kept or refused."""
    private = [run for run in runs_of(rows) if run.last.privacy]
    if not private:
        return None
    every = distinct(private, _cells)
    unit = " or one ".join(dict.fromkeys(run.last.privacy["unit"] for run in private))
    lead = (
        f"Differential privacy bounds what anyone can learn about one {unit} from what was sent, whatever the attack. "
        "ε is computed from what the run really did, not from what was planned: its sampling, clipping, noise and "
        "number of steps, or how many tokens of paraphrases were drawn."
    )
    outside = [one.title for one in columns(rows) if any(OUTSIDE in row.cells[one.key].remarks for row in rows)]
    more = terms(private)
    if outside:
        more.append(
            f"It does not cover what the report marks “outside ε” ({', '.join(outside)}): sites computed that from "
            "their private records, and it left them without any noise."
        )
    known = guarantees(rows)
    words = {one.row.label: " ".join(one.words) for one in known}
    lines = [[", ".join(names), *cells] for cells, names in every]
    blocks: list[Block] = [Table(_COLUMNS, lines, text=(0, 3, 4, 5), stacked=True), *map(note, limits(rows))]
    blocks += [note(f"{label}: {text}" if len(rows) > 1 else text) for label, text in words.items()]
    pictures = [*curves(known), *held_against(rows)]
    if pictures:
        blocks.append(Pictures(pictures, [one.row.name for one in known] if len(rows) > 1 else []))
    return ReportSection("What is guaranteed", " ".join([lead, *more]), blocks)


def _cells(run: RunRecord) -> list[Entry | str]:
    """After the last round."""
    told = run.last.privacy
    claimed = told.get("claimed_per_step")
    claim = "" if claimed is None else f"the paper's claim for one step: {bound(claimed)}"
    epsilon = "refused" if told.get("epsilon") is None else bound(told["epsilon"])
    return [
        entry(epsilon, _audit(run), claim),
        entry(f"{told['delta']:g}", told.get("caveat")),
        f"one {told['unit']}, {told['adjacency']}",
        str(told.get("accountant") or DASH),
        entry(str(told["plan"]), told.get("refused")),
    ]


def _audit(run: RunRecord) -> str:
    """The ε that an audit with canaries has shown when it was last made; nothing where there was none."""
    one = last_audited(run)
    if one is None:
        return ""
    told = one.values
    least, most = at_least(told["audit_epsilon"]), at_least(told["audit_most"])
    right, guesses, coins = (count(told[f"audit_{name}"]) for name in ("right", "guesses", "coins"))
    by = f"by the audit{f' after round {one.number}' * (one is not run.last)}"
    words = f"{least} or more {by}: {right} of {guesses} guesses right, {coins} coins, which can show {most}"
    return f"{words}. More than is guaranteed: do not rely on it" if is_contradicted(run) else words


# ---- pictures --------------------------------------------------------------------------------------------------------


def curves(known: Sequence[RowGuarantee]) -> list[Picture]:
    """ε at every δ, of each guarantee; nothing where none has a bound."""
    found = [(one, [(bound, log10(delta)) for delta, bound in one.curve.table if isfinite(bound)]) for one in known]
    lines = [(one, points) for one, points in found if points]
    if not lines:
        return []

    def draw(axes: Axes) -> None:
        for one, points in lines:
            look = one.row.look
            epsilons, powers = zip(*points, strict=True)
            [line] = axes.plot(epsilons, powers, color=look.colour, marker=look.marker, linewidth=1.6, zorder=3)
            line.set_clip_on(False)  # a mark on the axis is drawn whole
            axes.axhline(log10(one.delta), color=MUTED, linewidth=0.9, zorder=1)
        axes.set_xlabel("ε")
        # Fixed ranges: what an axis is fitted to would tell of it to all digits.
        axes.set_xlim(0, _round_above(max(bound for _, points in lines for bound, _ in points)))
        axes.set_ylim(log10(min(DELTAS)) - 0.5, log10(max(DELTAS)) + 0.5)

    caption = (
        "A guarantee is a whole curve: for every δ another ε. The grey line is the δ of the ε in the table. For one "
        "run of each method, whichever it is."
    )
    return [Picture("ε at every δ", svg(draw, "log₁₀ δ", "guaranteed", rounds=False), caption)]


def held_against(rows: Sequence[Row]) -> list[Picture]:
    """What is claimed, what is guaranteed and what an audit has shown, on one axis; nothing unless there is an ε, and
    something to hold it against."""
    told = [(row, _bounds(row)) for row in rows]
    told = [(row, known) for row, known in told if "guaranteed" in known and len(known) > 1]
    if not told:
        return []
    marks = {"claimed": ("D", "claimed, for a step"), "guaranteed": ("o", "guaranteed"), "shown": (">", "shown")}

    def draw(axes: Axes) -> None:
        for place, (row, known) in enumerate(told):
            colour, height = row.look.colour, -place
            if "shown" in known:
                axes.plot([known["shown"], known["guaranteed"]], [height] * 2, color=colour, linewidth=5, alpha=0.25)
            for name, value in known.items():
                face = PAPER if name == "claimed" else colour
                marker, word = marks[name]
                axes.plot(value, height, color=colour, marker=marker, markersize=8, markerfacecolor=face, zorder=4)
                level = {"claimed": -0.3, "guaranteed": 0.16, "shown": 0.16}[name]
                # Away from one another, so that words stand apart where figures do not.
                first = value == min(known["guaranteed"], known.get("shown", value))
                side = "center" if name == "claimed" or "shown" not in known else "right" if first else "left"
                axes.text(value, height + level, word, ha=side, va="bottom", color=MUTED, fontsize=9)
            if len(rows) > 1:
                axes.text(0, height + 0.38, row.label, ha="left", va="bottom", color=INK)
        axes.set_ylim(0.6 - len(told), 0.7)
        axes.set_xlim(0, 1.25 * max(value for _, known in told for value in known.values()))
        axes.yaxis.set_visible(False)
        axes.set_xlabel("ε")

    title = "ε claimed, guaranteed and shown"
    caption = (
        "The true ε lies between what an audit with canaries has shown (with 95 % confidence) and what is guaranteed; "
        "if what is shown is the larger, do not rely on the guarantee. Claimed is what the paper says of one step. Of "
        "several seeds the largest guarantee, and the least that was shown."
    )
    return [Picture(title, svg(draw, "", title, rounds=False), caption)]


def _bounds(row: Row) -> dict[str, float]:
    """Every finite ε that holds for all runs of a row."""
    every = {"claimed": row.runs[0].last.privacy.get("claimed_per_step"), "guaranteed": row.cells["epsilon"].mean}
    every["shown"] = row.cells["audit_epsilon"].mean
    return {name: float(value) for name, value in every.items() if value is not None and isfinite(value)}


def _round_above(value: float) -> float:
    """The next larger of 1, 2, 5, 10, 20, 50 …"""
    power = 10.0 ** floor(log10(max(value, 1e-3)))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)
