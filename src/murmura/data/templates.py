"""How an instruction record becomes text. One template serves training, scoring, attack and evaluation.

A template that differs by one byte between two of these uses changes leakage and IFS without a sign, so every
template here is fixed to the byte by a test, and the prompt ends exactly where the response begins.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from murmura.data.records import Instruction
from murmura.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TASK = "Below is an instruction that describes a task"
_WITH_INPUT = ", paired with an input that provides further context"
_ANSWER = "Write a response that appropriately completes the request."
_HEADER = "### Response:"
# Some chat templates print the day on which they are used. A prompt must not change overnight, in the middle of a run,
# so we define the function that they call before they do. The day is the one that Llama 3's template falls back on; the
# line's end is eaten by Jinja's trim_blocks, so that nothing else of the text changes.
_FIXED_DAY = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}\n"
_PROBE, _INPUT = "murmura", "murmurinput"
_ROLES = "this model was trained to answer instructions: messages are of the roles user and assistant"
_OTHER = "Use the template 'alpaca'."


class Template(ABC):
    """Text around a record.

    Attributes:
        name: What ``template`` calls it.
        response_prefix: The response header, the end of every prompt. It is the only context of L(y) in the IFS and IFD
            scores, so that the first token of y has a context (Li et al., "From Quantity to Quality", 2024).
    """

    name: str
    response_prefix: str

    @abstractmethod
    def prompt(self, record: Instruction) -> str:
        """Everything before the response, the response header and its separator included; ``output`` is not read."""

    @property
    def opening(self) -> str:
        """What stands before the instruction, whatever that is."""
        return self.prompt(Instruction(_PROBE)).partition(_PROBE)[0]

    @property
    def jinja(self) -> str:
        """The same as a tokenizer's chat template, so that whoever has the tokenizer asks as was trained.

        An instruction is a message ``{"role": "user", "content": instruction}``, with ``"input": input`` where it has
        one.
        """
        before, after = self.prompt(Instruction(_PROBE)).split(_PROBE)
        given, rest = self.prompt(Instruction(_PROBE, _INPUT)).split(_PROBE)
        between, behind = rest.split(_INPUT)
        plain = _joined(before, "message['content']", after.removesuffix(self.response_prefix))
        both = (given, "message['content']", between, "message['input']", behind.removesuffix(self.response_prefix))
        header = json.dumps(self.response_prefix)
        return (
            "{% for message in messages %}{% if message['role'] == 'user' %}"
            f"{{% if message['input'] %}}{_joined(*both)}{{% else %}}{plain}{{% endif %}}"
            f"{{% elif message['role'] == 'assistant' %}}{{{{ {header} + message['content'] + eos_token }}}}"
            f"{{% else %}}{{{{ raise_exception({json.dumps(_ROLES)}) }}}}{{% endif %}}{{% endfor %}}"
            f"{{% if add_generation_prompt %}}{{{{ {header} }}}}{{% endif %}}"
        )

    def full(self, record: Instruction) -> str:
        """Prompt and response, without the end-of-sequence token."""
        return self.prompt(record) + record.output


def _joined(*parts: str) -> str:
    """A Jinja expression: text and values, by turns. Text is quoted, since Jinja would eat ends of lines."""
    quoted = [part if place % 2 else json.dumps(part) for place, part in enumerate(parts)]
    return f"{{{{ {' + '.join(quoted)} }}}}"


class _Alpaca(Template):
    """Stanford Alpaca (Taori et al., 2023): two forms, with and without input; nothing between header and response."""

    name = "alpaca"
    response_prefix = _HEADER

    def prompt(self, record: Instruction) -> str:
        if not record.input:
            return f"{_TASK}. {_ANSWER}\n\n### Instruction:\n{record.instruction}\n\n{_HEADER}"
        return (
            f"{_TASK}{_WITH_INPUT}. {_ANSWER}\n\n### Instruction:\n{record.instruction}\n\n"
            f"### Input:\n{record.input}\n\n{_HEADER}"
        )


class _Merged(Template):
    """OpenFedLLM (Ye et al., 2024) and its FedDCA fork: the form without input, the input appended to the instruction,
    and a space after it, before the line ends. They differ in what stands between the header and the response."""

    def __init__(self, name: str, separator: str) -> None:
        self.name, self.response_prefix = name, _HEADER + separator

    def prompt(self, record: Instruction) -> str:
        return f"{_TASK}. {_ANSWER}\n\n### Instruction:\n{record.question} \n\n{self.response_prefix}"


class _FlowerTune(Template):
    """FlowerTune's (Gao et al., 2025): single ends of lines, the input appended to the instruction.

    The space before the response is left to the tokenizer. One that puts a space before every text, as Mistral's does,
    gives the ids that FlowerTune trains on; with the space in the prompt there would be two.
    """

    name = "flowertune"
    response_prefix = _HEADER

    def prompt(self, record: Instruction) -> str:
        return f"{_TASK}. {_ANSWER}\n### Instruction:\n{record.question}\n{_HEADER}"


class _Chat(Template):
    """The tokenizer's own chat template: one turn of the user, then the header that opens the model's turn."""

    name = "chat"

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise DataError("the tokenizer has no chat template", fix=_OTHER)
        text = tokenizer.get_chat_template()
        self._tokenizer, self._text = tokenizer, _FIXED_DAY + text if "strftime_now" in text else text
        self.response_prefix = self._header()

    @property
    def jinja(self) -> str:
        return self._text

    def prompt(self, record: Instruction) -> str:
        said = f"{record.instruction}\n\n{record.input}" if record.input else record.instruction
        return self._render(said, open_answer=True)

    def _header(self) -> str:
        """What the generation prompt adds; where the template always writes it, what follows the user's words."""
        try:
            closed, opened = self._render(_PROBE, open_answer=False), self._render(_PROBE, open_answer=True)
        except Exception as error:  # a template is a program: whatever stops it, it cannot be used
            raise DataError(f"the tokenizer's chat template takes no single user turn ({error})", fix=_OTHER) from error
        if opened.startswith(closed) and opened != closed:
            return opened.removeprefix(closed)
        _, found, after = opened.rpartition(_PROBE)
        if not found or not after:
            raise DataError("the tokenizer's chat template does not mark where the response begins", fix=_OTHER)
        return after

    def _render(self, said: str, *, open_answer: bool) -> str:
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": said}],
            chat_template=self._text,
            tokenize=False,
            add_generation_prompt=open_answer,
        )
        return str(text)


_PLAIN: Mapping[str, Template] = {
    "alpaca": _Alpaca(),
    "alpaca-merged": _Merged("alpaca-merged", " "),
    "feddca": _Merged("feddca", ""),
    "flowertune": _FlowerTune(),
}
TEMPLATES = (*_PLAIN, "chat")


def template(name: str, tokenizer: PreTrainedTokenizerBase | None = None) -> Template:
    """The template called ``name``, one of ``TEMPLATES``.

    * ``alpaca``: Stanford's, byte for byte.
    * ``alpaca-merged``: OpenFedLLM's; one space before the response.
    * ``feddca``: as before, nothing before the response.
    * ``flowertune``: FlowerTune's; the tokenizer puts the space before the response.
    * ``chat``: the chat template of ``tokenizer``, which only this one needs. Where that template prints the date, a
      fixed one is given to it.

    Raises:
        DataError: The tokenizer has no chat template, or one that takes no single turn of a user.
    """
    if name != "chat":
        return _PLAIN[name]
    assert tokenizer is not None, "'chat' is asked for with a tokenizer"
    return _Chat(tokenizer)
