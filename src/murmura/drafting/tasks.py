"""What a site's records ask: their instructions, or their inputs where all have the same instruction.

Some data sets put one sentence such as "answer the patient's question" before every record, and the question into the
input. New instructions after these would all be that sentence again, and every draft a duplicate. So the input is then
what is shown to the model as the task, and what it writes becomes an input under the same instruction.
"""

from __future__ import annotations

from collections.abc import Sequence

from murmura.data.records import Instruction


def shared_instruction(records: Sequence[Instruction]) -> str | None:
    """The instruction that all of two or more records have, if each has an input and these differ; else None."""
    instructions, inputs = {r.instruction for r in records}, {r.input for r in records}
    return records[0].instruction if len(instructions) == 1 and len(inputs) > 1 and "" not in inputs else None


def as_task(record: Instruction, shared: str | None) -> Instruction:
    """The record as it is shown and judged while drafting: with what it asks as its instruction."""
    return Instruction(record.input, "", record.output) if record.instruction == shared else record


def from_task(draft: Instruction, shared: str | None) -> Instruction:
    """A draft as a record like the site's own."""
    return draft if shared is None else Instruction(shared, draft.question, draft.output)
