"""The audit of a finished run: what its model, and what else was kept of it, gives away about the sites' records."""

from murmura.registry import Registry

BROUGHT = Registry("murmura.attacks", {})
"""Attacks of other packages by name: functions of ``measure.attacks.Passes``, which an audit tries beside its own."""
