"""How figures are written for people: one place, so that the terminal and the page agree.

A value that was not measured is ``DASH``, never 0.
"""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, Decimal
from typing import Any

DASH = "–"
MINUS = "−"
FLOAT32 = 4
"""Bytes of a number as adapters, centres and distances travel and rest; an int32 has as many."""
_UNITS = ("kB", "MB", "GB", "TB")
_ROUGH = 3  # digits
_LARGE = 1e6  # bounds from here on are written with an exponent


def nonfinite(value: float) -> str:
    """``NaN``, ``∞`` or ``−∞``."""
    return "NaN" if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"


def decimal(value: float, digits: int = 3) -> str:
    """``0.1724`` -> ``0.172``, with a true minus sign and no negative zero."""
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def at_least(value: float, digits: int = 3) -> str:
    """A lower bound, which stays one: rounded down. ``0.7999`` -> ``0.799``."""
    return decimal(math.floor(float(f"{value * 10**digits:.12g}")) / 10**digits, digits)


def bound(value: float, digits: int = 3) -> str:
    """An upper bound, which stays one: rounded up. ``7.9991`` -> ``8.000``; ``∞`` where there is no bound. From a
    million on it has three figures and an exponent: ``5000000013420000256`` -> ``5.01e18``."""
    if not math.isfinite(value):
        return "∞"
    if value >= _LARGE:
        exact = Decimal(value)
        exponent = exact.adjusted()
        figures = exact.scaleb(-exponent).quantize(Decimal("0.01"), ROUND_CEILING)
        return f"{figures}e{exponent}" if figures < 10 else f"1.00e{exponent + 1}"
    # Digits beyond the twelfth come from the binary form, not from the bound.
    return decimal(math.ceil(float(f"{value * 10**digits:.12g}")) / 10**digits, digits)


def told_apart(first: float, second: float, digits: int = 6) -> tuple[str, str]:
    """Two figures in so many significant digits, or in as many as show that they differ: ``1.000004`` and ``1``."""
    pairs = [(f"{first:.{most}g}", f"{second:.{most}g}") for most in range(digits, 18)]
    return next(((one, other) for one, other in pairs if one != other), pairs[0])


def rough(value: Any) -> Any:
    """A number, several or none, to three digits: of a share of private records the exact one is a fraction whose
    denominator is their number."""
    if isinstance(value, list | tuple):
        return type(value)(map(rough, value))
    return None if value is None else round(value, _ROUGH)


def signed(value: float, digits: int = 3) -> str:
    """A difference: ``+0.030``, ``−0.004``, ``0.000``."""
    text = decimal(value, digits)
    return f"+{text}" if float(text.replace(MINUS, "-")) > 0 else text


def count(value: float) -> str:
    """``12345`` -> ``12,345``; a mean of counts keeps one decimal place."""
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def several(number: int, what: str) -> str:
    """``1 run``, ``3 runs``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def size(value: float) -> str:
    """Bytes in decimal units (1 kB = 1000 bytes), three significant figures: ``29.5 MB``."""
    if value < 999.5:
        return f"{value:.0f} B"
    power = 0
    while value >= 999.5 and power < len(_UNITS):
        value, power = value / 1000, power + 1
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{digits}f} {_UNITS[power - 1]}"


def bytes_of(value: object) -> object:
    """``"50MB"`` as a number of bytes (1 kB = 1000 bytes); what is no text stays as it is.

    Raises:
        ValueError: the text is no size, or none of whole bytes.
    """
    if not isinstance(value, str):
        return value
    units = ["", "b", *map(str.lower, _UNITS)]
    told = re.fullmatch(rf"(\d{{1,18}}(?:\.\d{{1,18}})?) *({'|'.join(units)})", value.strip().lower(), re.ASCII)
    found = Decimal(told[1]) * 1000 ** max(0, units.index(told[2]) - 1) if told else None
    if found is None or found != int(found):
        raise ValueError('say a whole number of bytes, or one with kB, MB, GB or TB: "50MB"')
    return int(found)


def duration(value: float) -> str:
    """Seconds: ``0.42 s``, ``12.3 s``, ``4 min 05 s``, ``1 h 02 min``."""
    if value < 0.995:
        return f"{value:.2f} s"
    if value < 99.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(value / 60)
    return f"{minutes // 60:,} h {minutes % 60:02d} min"


def listing(names: list[str], most: int | None = None) -> str:
    """``a``, ``a and b``, ``a, b and c``; of more than ``most`` the first ones: ``a, b and 7 more``."""
    if most is not None and len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
