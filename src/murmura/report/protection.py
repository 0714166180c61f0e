"""How what left the sites was protected, by the disclosure table of a run."""

from __future__ import annotations

from murmura.federation.wire.releases import (
    SECURE_SUM,
    DifferentialPrivacy,
    Protection,
    SecureSum,
    protection_from_json,
)
from murmura.runs.schema import Disclosure


def protection(entry: Disclosure) -> Protection:
    """How a field was protected; None where that is not told, or told in a way that is not understood."""
    try:
        return protection_from_json(entry.protection)
    except ValueError:
        return None


def added_by_server(entry: Disclosure) -> bool:
    """Whether the server sees it without noise, since it adds that itself."""
    found = protection(entry)
    return isinstance(found, DifferentialPrivacy) and found.added_by == "server"


def hides_training(entry: Disclosure) -> bool:
    """Whether it is what a site has trained, behind noise that hides the whole site, or that may, as it is told in a
    way that is not understood."""
    if entry.kind != "weights" or entry.protection is None:
        return False
    found = protection(entry)
    return found is None or (isinstance(found, DifferentialPrivacy) and found.unit == "site")


def summed(entry: Disclosure) -> bool:
    """Whether it left in a secure sum alone; of what has noise too its note tells that."""
    return isinstance(protection(entry), SecureSum) or SECURE_SUM in entry.note
