"""The run folder: what is in it, written and read in one place."""

from murmura.runs.folder import RunFolder
from murmura.runs.record import RunRecord, read, read_all

__all__ = ["RunFolder", "RunRecord", "read", "read_all"]
