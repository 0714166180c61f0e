"""Reading rows of a data set of the Hugging Face hub, by its id."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from murmura.data.files import READERS, ending
from murmura.data.layout import ColumnLayout, FileRow, Place, Rows
from murmura.errors import DataError

_ID = re.compile(r"(?P<id>[\w.-]+/[\w.-]+)(:(?P<config>[\w.-]+))?")


class UnavailableError(DataError):
    """A data set seems to be named correctly, but is unavailable here and now."""


def is_hub_id(source: str) -> bool:
    """Whether ``source`` means a hub data set: ``owner/name`` or ``owner/name:configuration``, and nothing here.

    A path whose first folder exists, or whose name ends like a data file's, is taken for a file that is missing.
    """
    path = Path(source)
    if not _ID.fullmatch(source) or path.exists() or ending(path) in READERS:
        return False
    return path.parts[0] not in (".", "..") and not path.parent.exists()


def read_hub_rows(source: str, split: str, layout: ColumnLayout[Any]) -> Rows:
    """The rows of one split, in order; ``where`` is the id, the split and the row's number from 1.

    Raises:
        UnavailableError: The data set, its configuration or its split.
        DataError: A column is missing.
    """
    match = _ID.fullmatch(source)
    if match is None:
        raise DataError("not the id of a Hugging Face data set", where=source, fix="Expected owner/name.")
    # Looked up at the call: `datasets` takes a second to import, and most runs read files.
    import datasets

    try:
        rows = datasets.load_dataset(match["id"], match["config"], split=split)
    except Exception as error:  # besides the library's own, those of whatever it reaches the network with
        raise _unavailable(source, match["id"], split, error) from error
    where = f"{source} ({split})"
    header = rows.column_names
    layout.check_header(header, where)
    for number, values in enumerate(rows.select_columns(layout.wanted(header)), start=1):
        yield FileRow(Place(where, number, "row"), values)


def _unavailable(source: str, name: str, split: str, error: Exception) -> UnavailableError:
    reason = str(error).strip().splitlines()
    return UnavailableError(
        f"there is no such path here, and the Hugging Face data set cannot be loaded, split '{split}' "
        f"({reason[0].rstrip('.') if reason else type(error).__name__})",
        where=source,
        fix="Check the id, the split and, where there are several, the configuration (owner/name:configuration). "
        f"Without a network: where there is one, run `hf download --repo-type dataset {name} --local-dir FOLDER`, "
        "copy the folder here, and give the path of its Parquet, JSONL or CSV file.",
    )
