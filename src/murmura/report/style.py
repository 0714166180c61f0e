"""Who looks like what: one colour and one marker a row, in the pictures and on the page.

Colours are names of CSS variables, which `page.css` sets for light and for dark screens and for paper. The palette is
safe for colour-blind readers (after Okabe and Ito, 2008, darkened or lightened to a contrast of 3:1 or more), and
markers tell rows apart where colour does not.
"""

from __future__ import annotations

from dataclasses import dataclass

COLOURS = 8

# Matplotlib's marker and the same shape as an SVG path around (0, 0), about 4 units wide each way.
MARKERS: tuple[tuple[str, str], ...] = (
    ("o", "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"),
    ("s", "M-3.5,-3.5h7v7h-7z"),
    ("^", "M0,-4.2L4.2,3.6L-4.2,3.6z"),
    ("D", "M0,-4.6L4.6,0L0,4.6L-4.6,0z"),
    ("v", "M0,4.2L4.2,-3.6L-4.2,-3.6z"),
    ("P", "M-1.5,-4.4h3v2.9h2.9v3h-2.9v2.9h-3v-2.9h-2.9v-3h2.9z"),
    ("X", "M-4.2,-2.3L-2.3,-4.2L0,-1.9L2.3,-4.2L4.2,-2.3L1.9,0L4.2,2.3L2.3,4.2L0,1.9L-2.3,4.2L-4.2,2.3L-1.9,0z"),
)


@dataclass(frozen=True, slots=True)
class Style:
    """The look of one row: the number of its colour, matplotlib's marker and the same shape as an SVG path."""

    number: int
    marker: str
    shape: str

    @property
    def css(self) -> str:
        """Its colour on the page."""
        return f"var(--series-{self.number})"

    @property
    def colour(self) -> str:
        """Its colour for matplotlib, until the SVG is written (``drawing``)."""
        return f"#0500{self.number:02x}"


def style(position: int) -> Style:
    """The look of the row at a position; 56 of them differ."""
    marker, shape = MARKERS[position % len(MARKERS)]
    return Style(position % COLOURS + 1, marker, shape)
