"""Kinds of record. Each is one object: how it is read, fitted to a model, trained on, measured, attacked and worded."""

from __future__ import annotations

from murmura.data.records import Kind
from murmura.tasks.document import DOCUMENT
from murmura.tasks.instruction import INSTRUCTION
from murmura.tasks.labelled import LABELLED
from murmura.tasks.preference import PREFERENCE
from murmura.tasks.task import Task

TASKS: dict[Kind, Task] = {task.kind: task for task in (INSTRUCTION, LABELLED, DOCUMENT, PREFERENCE)}
"""By the name that ``data.kind`` gives them."""

__all__ = ["DOCUMENT", "INSTRUCTION", "LABELLED", "PREFERENCE", "TASKS", "Task"]
