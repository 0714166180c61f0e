"""What is advised where a file holds chats (lists of turns): what a record needs of them goes into its columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from murmura.data.records import Instruction, Preference

_COLUMNS = ("messages", "conversations", "conversation")  # as others call them


def advice(kind: type[Any], columns: Mapping[str, str], held: Collection[str]) -> str:
    """A sentence for whoever lacks a column, without its full stop; nothing where no chats are seen.

    Args:
        kind: of the records.
        columns: field to column.
        held: the columns that are there.
    """
    column = next((name for name in _COLUMNS if name in held), None)
    if kind is Instruction and column is not None:
        return f"Column '{column}' seems to hold chats: {_instructions(column)}"
    if kind is Preference and columns["prompt"] not in held and {columns["chosen"], columns["rejected"]} <= {*held}:
        made = _preferences(columns, '.["{chosen}"][-2].content')
        return f"If the answers are chats: {made}"
    return ""


def advice_on(value: Any, kind: type[Any], columns: Mapping[str, str], field: str) -> str:
    """The same where a field holds something else than text.

    Args:
        value: that the field holds.
        field: its name.
    """
    if not (isinstance(value, list) and value and all(isinstance(turn, dict) for turn in value)):
        return ""
    if kind is Preference:
        prompt = '.["{prompt}"]' + "[-1].content" * (field == "prompt")
        return f"'{columns[field]}' seems to be a chat: {_preferences(columns, prompt)}"
    return f"'{columns[field]}' seems to be a chat: {_instructions(columns[field])}" if kind is Instruction else ""


def _instructions(column: str) -> str:
    made = f'.["{column}"][-2:] | map(.content // .value) | {{instruction: .[0], output: .[1]}}'
    return f"make records of the last question and answer of each, of JSON lines with jq -c '{made}' OLD > NEW"


def _preferences(columns: Mapping[str, str], prompt: str) -> str:
    """
    Args:
        prompt: where jq finds it, with fields for columns.
    """
    made = f'prompt: {prompt}, chosen: .["{{chosen}}"][-1].content, rejected: .["{{rejected}}"][-1].content'
    made = f"{{{made.format(**columns)}}}"
    return f"make records of the last question and answers of each, of JSON lines with jq -c '{made}' OLD > NEW"
