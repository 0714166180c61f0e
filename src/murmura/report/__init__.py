"""One self-contained HTML page, and the table, of runs (``murmura.runs.read``)."""

from murmura.measure.catalogue import CATALOGUE, figure
from murmura.report.markdown import markdown
from murmura.report.page import write
from murmura.report.sheet import write_sheet
from murmura.report.table import Row, table
from murmura.report.terminal import show

__all__ = ["CATALOGUE", "Row", "figure", "markdown", "show", "table", "write", "write_sheet"]
