"""The resident model with one adapter, as lm-evaluation-harness asks for a model.

It sees what the harness's own ``HFLM`` sees: the same ids (but for options in a template, see ``_encode_pair``), cut
from the left where they do not fit the model (but for one token, see ``max_length``). What differs is what computes:
the bank, with whichever adapter, many requests in one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import has_bos_prefix, normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from murmura.data.records import Instruction
from murmura.data.tokenising import Tokenised
from murmura.errors import RunError

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime
    from murmura.training.adapter import State

_CONTEXT = 2048  # tokens, as the harness has it where a model does not say
_ANSWER = 256  # most tokens of an answer, as the harness has it where a task does not say


def longest(context: int | None) -> int:
    """``ResidentModel.max_length`` of a model that was made for so many tokens."""
    return (context or _CONTEXT) - 1


def options_of(task: Any) -> dict[str, Any]:
    """How a task wants answers to be written, as ``Request.of`` will understand it."""
    return dict(normalize_gen_kwargs(getattr(task.config, "generation_kwargs", None) or {}, _ANSWER))


class ResidentModel(TemplateLM):
    """What tasks of the harness ask: how likely texts are, and what follows on them.

    Args:
        runtime: with the model.
        adapter: that is active.
        templated: questions are asked in the run's template.
    """

    def __init__(self, runtime: ModelRuntime, adapter: State, *, templated: bool = False) -> None:
        super().__init__()
        self.runtime, self.adapter, self.tokenizer = runtime, adapter, runtime.tokenizer
        self._templated = templated

    @property
    def max_length(self) -> int:
        """Most tokens of a text that the model reads to predict the next: one less than it was made for, since the bank
        reads the last one too."""
        return longest(self.runtime.context)

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.eos_token_id)

    @property
    def prefix_token_id(self) -> int:
        opening = self.tokenizer.bos_token_id
        return self.eot_token_id if opening is None else int(opening)

    @property
    def tokenizer_name(self) -> str:
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """A text's ids, with the special tokens that the tokenizer adds, unless the text begins with one already."""
        if add_special_tokens is None:
            add_special_tokens = not has_bos_prefix(string, self.tokenizer.decode(self.prefix_token_id))
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens, verbose=False))

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """What is asked, in the run's template; behind it what begins the answer, where that is given."""
        begun = "" if add_generation_prompt else chat_history[-1]["content"]
        asked = chat_history if add_generation_prompt else chat_history[:-1]
        question = "\n\n".join(message["content"] for message in asked)
        return self.runtime.template.prompt(Instruction(question)) + begun

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """The ids of both. What follows right on the template's header is tokenised apart, as in training: together
        the end of the header and a short answer may be one token."""
        if self._templated and context.endswith(self.runtime.template.response_prefix):
            return self.tok_encode(context), self.tok_encode(continuation, add_special_tokens=False)
        return super()._encode_pair(context, continuation)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        """Sum of log-probabilities in nats of each continuation, and whether greedy writing gives it."""
        return super().loglikelihood(requests, disable_tqdm=True)

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        items = [self._fitted(context, continuation) for _, context, continuation in requests]
        scores = self.runtime.token_scores([self.adapter] * len(items), items, description="likelihoods")
        return [(-float(one.nll.sum(dtype=np.float64)), bool(one.first.all())) for one in scores]

    def _fitted(self, context: list[int], continuation: list[int]) -> Tokenised:
        """Both, without the context's beginning where they are too long."""
        if not continuation:
            what = "a text to be judged has no token of its own behind its question, and would be certain"
            raise RunError(what, where="evaluation.benchmarks.tasks", fix="Leave the task out.")
        if len(continuation) > self.max_length:
            what = f"a text of {len(continuation)} tokens is to be judged, and the model reads {self.max_length}"
            raise RunError(what, where="evaluation.benchmarks.tasks", fix="Leave the task out.")
        ids = (context + continuation)[-(self.max_length + 1) :]
        return Tokenised(ids, len(ids) - len(continuation), len(ids) < len(context) + len(continuation))

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Log-probability in nats of whole texts; long ones in windows that predict each token once."""
        windows_of = partial(
            get_rolling_token_windows, prefix_token=self.prefix_token_id, max_seq_len=self.max_length, context_len=1
        )
        texts = [[make_disjoint_window(one) for one in windows_of(self.tok_encode(r.args[0]))] for r in requests]
        windows = [(None, context, continuation) for text in texts for context, continuation in text]
        found = iter(self._loglikelihood_tokens(windows))
        return [sum(next(found)[0] for _ in text) for text in texts]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """What the model writes behind each prompt, greedily, up to the first of the request's stop strings."""
        asked = [Request.of(*request.args) for request in requests]
        written: dict[int, str] = {}
        for stop in dict.fromkeys(one.stop for one in asked):
            chosen = [place for place, one in enumerate(asked) if one.stop == stop]
            found = self.runtime.write(
                [self.adapter] * len(chosen),
                [self._prompt(asked[place]) for place in chosen],
                [asked[place].tokens for place in chosen],
                stop=stop,
                description="answers",
            )
            written.update((place, one.text) for place, one in zip(chosen, found, strict=True))
        return [written[place] for place in range(len(asked))]

    def _prompt(self, one: Request) -> list[int]:
        """The ids of a prompt, without its beginning where it leaves no room for the answer."""
        room = self.max_length - one.tokens
        if room < 1:
            what = f"answers may have {one.tokens} tokens, and the model reads {self.max_length} with the question"
            raise RunError(what, where="evaluation.benchmarks.tasks", fix="Lower the task's max_gen_toks.")
        return self.tok_encode(one.prompt)[-room:]


@dataclass(frozen=True, slots=True)
class Request:
    """A request for an answer.

    Attributes:
        prompt: What the answer follows on.
        stop: Strings that end it.
        tokens: Most tokens of it.
    """

    prompt: str
    stop: tuple[str, ...]
    tokens: int

    @classmethod
    def of(cls, prompt: str, options: dict[str, Any]) -> Request:
        """A request as the harness has it.

        Raises:
            RunError: the answer is to be drawn at random.
        """
        known = normalize_gen_kwargs(options, _ANSWER)
        if known.get("do_sample"):
            raise RunError(
                "the task draws answers at random, and here they are written greedily",
                where="evaluation.benchmarks.tasks",
                fix="Leave the task out, or set do_sample = false in a YAML file of your own.",
            )
        until = known.get("until") or []
        return cls(prompt, tuple(filter(None, [until] if isinstance(until, str) else until)), known["max_gen_toks"])
