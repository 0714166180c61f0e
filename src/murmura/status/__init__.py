"""Watching a run: its round, whom it waits for, what has travelled, what it has spent, the time left."""

from murmura.status.status import Status, look

__all__ = ["Status", "look"]
