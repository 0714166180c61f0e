"""Drafting: a model writes new records after a site's few, for all sites of a cohort at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import NamedTuple

from murmura.data.records import Instruction
from murmura.drafting.filters import Copies, Similar, format_fault, response_fault
from murmura.drafting.plan import Drafting
from murmura.drafting.prompts import (
    EXAMPLE_STOP,
    INSTRUCTION_STOP,
    alternating,
    example_prompt,
    instruction_prompt,
    read_example,
    read_instruction,
)
from murmura.drafting.rejections import Rejection, counted
from murmura.drafting.tasks import as_task, from_task, shared_instruction
from murmura.generation.loops import goes_round
from murmura.generation.sampling import Sampling
from murmura.generation.writer import Completion
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.training.adapter import State

_ORDERS = 20  # of records, before there is none that differs from earlier ones


@dataclass(frozen=True)
class Order:
    """What is to be drafted for one site.

    Args:
        records: the site's own, shown to the model; at least one.
        known: other records that drafts must not repeat.
        adapter: the one that writes.
        stream: the site's randomness for this drafting.
    """

    records: Sequence[Instruction]
    known: Sequence[Instruction]
    adapter: State
    stream: Stream


@dataclass(frozen=True)
class Drafts:
    """What was written for one site, how many attempts met which rejection (``drafts.similar`` and the like), and what
    had been written of those that met one."""

    records: list[Instruction]
    counts: Counter[str]
    dropped: Sequence[tuple[str, Rejection]] = ()


def draft(runtime: ModelRuntime, orders: Sequence[Order], config: Drafting) -> list[Drafts]:
    """Draft ``config.drafts`` records for each site.

    An instruction whose example is dropped or given up is replaced by a new one, as long as attempts are left of both
    kinds; a site makes do with what it has then.

    Every attempt draws from a stream of its own, and attempts are judged in their order: sites and attempts that share
    a batch do not change each other's results.
    """
    desks = [_Desk(order, config, _token_count(runtime)) for order in orders]
    instructions = _Writing(_Desk.ask_instructions, _Desk.take_instruction, config.instruction_tokens, INSTRUCTION_STOP)
    examples = _Writing(_Desk.ask_examples, _Desk.take_example, config.example_tokens, EXAMPLE_STOP)
    while _in_waves(runtime, desks, instructions, config.sampling, "write instructions"):
        _in_waves(runtime, desks, examples, config.sampling, "write examples")
    return [Drafts(desk.finish(), desk.counts, desk.dropped) for desk in desks]


Prompt = Callable[[Sequence[Instruction]], str]


@dataclass
class _Task:
    """A new instruction on its way to a draft.

    Attributes:
        attempts: at its input and response, so far.
        draft: once one of them could be used.
        dropped: no further attempt is made.
        shown: the records of each attempt, in their order.
    """

    instruction: str
    attempts: int = 0
    draft: Instruction | None = None
    dropped: bool = False
    shown: set[tuple[Instruction, ...]] = field(default_factory=set)

    @property
    def waits(self) -> bool:
        return self.draft is None and not self.dropped


@dataclass(frozen=True)
class _Attempt:
    """Records to show, most of them if not all fit; how they become a prompt; the randomness of the answer, and what it
    belongs to."""

    shown: Sequence[Instruction]
    prompt: Prompt
    stream: Stream
    task: _Task | None = None


class _Desk:
    """One site's work in progress."""

    def __init__(self, order: Order, config: Drafting, token_count: Callable[[str], int]) -> None:
        self.order, self.config, self.token_count = order, config, token_count
        self.shared = shared_instruction(order.records)
        self.shown = [as_task(record, self.shared) for record in order.records]
        self.inputs = any(record.input for record in self.shown)
        self.in_ascii = all(record.instruction[:1].isascii() for record in self.shown)
        known = [as_task(record, self.shared) for record in order.known]
        self.similar = Similar((record.instruction for record in [*self.shown, *known]), config.rouge)
        self.copies = Copies([*self.shown, *known], config.rouge)
        self.counts: Counter[str] = Counter()
        self.dropped: list[tuple[str, Rejection]] = []
        self.tasks: list[_Task] = []
        self.instruction_attempts = self.example_attempts = 0  # so far
        self.seen: set[str] = set()

    # ---- instructions -------------------------------------------------------------------------------------------

    def ask_instructions(self) -> Iterator[_Attempt]:
        """As many attempts as instructions are missing, so that none is made in vain; no more than can be tried."""
        missing = self.config.drafts - sum(not task.dropped for task in self.tasks)
        wanted = min(missing, self._examples_left - sum(task.waits for task in self.tasks))
        most, asked = self.config.instruction_attempts * self.config.drafts, 0
        while asked < wanted and self.instruction_attempts < most:
            self.instruction_attempts += 1
            stream = self.order.stream / "instruction" / self.instruction_attempts
            shown = stream.python().sample(self.shown, min(self.config.instructions_shown, len(self.shown)))
            prompt = _instruction_prompt(shown)
            if prompt in self.seen and self.config.sampling is None:  # the same prompt gives the same answer
                self.counts[counted("same_prompt")] += 1
                continue
            self.seen.add(prompt)
            asked += 1
            yield _Attempt(shown, _instruction_prompt, stream / "tokens")

    def take_instruction(self, attempt: _Attempt, written: Completion) -> None:
        instruction, complete = read_instruction(written.text, written.finished)
        fault = format_fault(instruction, complete, self.config.alpaca_filters, in_ascii=self.in_ascii)
        if fault is None and instruction in self.similar:
            fault = "similar"
        if fault is not None:
            self._count(fault, instruction)
            return
        self.similar.add(instruction)
        self.tasks.append(_Task(instruction))

    # ---- input and response -------------------------------------------------------------------------------------

    def ask_examples(self) -> Iterator[_Attempt]:
        """One attempt for each instruction that waits for an example, while attempts are left."""
        for index, task in enumerate(self.tasks):
            stream = self.order.stream / "example" / index / (task.attempts + 1)
            shown = self._unlike(task, stream) if task.waits and self._examples_left else None
            if shown is not None:
                self.example_attempts += 1
                task.attempts += 1
                task.shown.add(tuple(shown))
                prompt = partial(example_prompt, task=task.instruction, inputs=self.inputs)
                yield _Attempt(shown, prompt, stream / "tokens", task)
            elif task.waits:
                self._drop(task, "no_response" if task.attempts else "not_tried")

    def _unlike(self, task: _Task, stream: Stream) -> list[Instruction] | None:
        """Records to show for it, not those of an earlier attempt in the same order, which would give the same answer;
        None where no others are found."""
        rng = stream.python()
        for _ in range(_ORDERS):
            shown = alternating(self.shown, self.config.examples_shown, rng)
            if self.config.sampling is not None or tuple(shown) not in task.shown:
                return shown
        return None

    @property
    def _examples_left(self) -> int:
        return self.config.example_attempts * self.config.drafts - self.example_attempts

    def take_example(self, attempt: _Attempt, written: Completion) -> None:
        task = attempt.task
        assert task is not None
        draft = read_example(task.instruction, written.text, written.finished, self.inputs)
        if draft is None:
            if task.attempts == self.config.example_attempts:
                self._drop(task, "no_response")
        elif draft in self.copies:
            self._drop(task, "copied", draft)
        elif fault := response_fault(draft, self.token_count(draft.output), self.config.rouge):
            self._drop(task, fault, draft)
        else:
            task.draft = draft

    def _drop(self, task: _Task, rejection: Rejection, draft: Instruction | None = None) -> None:
        task.dropped = True
        self._count(rejection, task.instruction if draft is None else "\n".join(filter(None, astuple(draft))))

    def _count(self, rejection: Rejection, written: str) -> None:
        self.counts[counted(rejection)] += 1
        self.dropped.append((written, rejection))

    def finish(self) -> list[Instruction]:
        """The drafts in the order of their instructions."""
        return [from_task(task.draft, self.shared) for task in self.tasks if task.draft is not None]


def _token_count(runtime: ModelRuntime) -> Callable[[str], int]:
    """How many tokens a text has, without what the tokenizer sets before any text."""
    opening = len(runtime.prompt_ids(""))
    return lambda text: len(runtime.prompt_ids(text)) - opening


class _Writing(NamedTuple):
    """What desks ask for and take, and where it ends."""

    ask: Callable[[_Desk], Iterator[_Attempt]]
    take: Callable[[_Desk, _Attempt, Completion], None]
    limit: int
    stop: Sequence[str]


def _in_waves(
    runtime: ModelRuntime, desks: Sequence[_Desk], kind: _Writing, sampling: Sampling | None, description: str
) -> bool:
    """All desks' attempts in one batch, again and again until no desk has another. Whether there was any."""
    asked = False
    while wave := [(desk, attempt) for desk in desks for attempt in kind.ask(desk)]:
        asked = True
        written = runtime.write(
            [desk.order.adapter for desk, _ in wave],
            [_fitting(runtime, desk, attempt, kind.limit) for desk, attempt in wave],
            [kind.limit] * len(wave),
            sampling=sampling,
            streams=[attempt.stream for _, attempt in wave],
            stop=kind.stop,
            halt=goes_round,
            nonempty=True,
            description=description,
        )
        for (desk, attempt), completion in zip(wave, written, strict=True):
            kind.take(desk, attempt, completion)
    return asked


def _fitting(runtime: ModelRuntime, desk: _Desk, attempt: _Attempt, limit: int) -> list[int]:
    """The prompt's ids; where they leave no room to write in the model's context, fewer records are shown."""
    for count in range(len(attempt.shown), -1, -1):
        ids = runtime.prompt_ids(attempt.prompt(attempt.shown[:count]))
        if runtime.context is None or len(ids) + limit <= runtime.context:
            break
    if count < len(attempt.shown):
        desk.counts["prompts.shortened"] += 1
    return ids


def _instruction_prompt(shown: Sequence[Instruction]) -> str:
    return instruction_prompt([record.instruction for record in shown])
