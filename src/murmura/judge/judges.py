"""Who judges: a model of this process, or one behind an endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from murmura import models
from murmura.errors import ConfigError
from murmura.generation.writer import complete
from murmura.model_runtime import bank_of
from murmura.models.declared import context_of
from murmura.precision import in_bfloat16
from murmura.synthesis.generators import Answer, Request

_ROWS = 16


class LocalJudge:
    """An instruction model of this process, asked in its own chat template, greedily, where its context has room for a
    verdict.

    Args:
        name: an alias, a folder or a Hugging Face id.
        tokens: most of a verdict.

    Raises:
        ModelError: it cannot be loaded.
        ConfigError: its tokenizer has no chat template, so it was not made to be asked.
    """

    def __init__(self, name: str, tokens: int) -> None:
        loaded = models.load(name, "causal", "auto", "auto", None)
        if not loaded.tokenizer.chat_template:
            what = f"'{name}' has no chat template, so it was not made to be asked"
            raise ConfigError(what, where="--by", fix="Name an instruction model.")
        self._bank = bank_of(loaded, None)
        self._bank.load([self._bank.untrained])
        self._tokenizer, self._name, self._tokens = loaded.tokenizer, name, tokens

    @property
    def described(self) -> Mapping[str, Any]:
        """See ``Generator``."""
        return {"model": self._name, "max_tokens": self._tokens}

    def answers(self, requests: Iterable[Request]) -> Iterator[list[Answer]]:
        """See ``Generator``."""
        waiting = iter(requests)
        context = context_of(self._bank.model.config)
        while wave := list(islice(waiting, _ROWS)):
            prompts = [self._ids(request.prompt) for request in wave]
            room = [
                self._tokens if context is None else max(0, min(self._tokens, context - len(ids))) for ids in prompts
            ]
            written = complete(
                self._bank,
                self._tokenizer,
                prompts,
                [0] * len(wave),
                room,
                rows=_ROWS,
                bfloat16=in_bfloat16("auto", self._bank.device),
                description="verdicts",
            )
            yield [
                Answer(request, one.text if limit else None, one.finished)
                for request, one, limit in zip(wave, written, room, strict=True)
            ]

    def _ids(self, prompt: str) -> list[int]:
        asked = [{"role": "user", "content": prompt}]
        found = self._tokenizer.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
        return list(self._tokenizer(found, add_special_tokens=False)["input_ids"])
