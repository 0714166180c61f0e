"""DP-Prompt: paraphrases that are private by themselves, made where the documents are (Utpala et al. 2023, arXiv
2310.16111).

Each token is drawn by the exponential mechanism: with logits in [b₁, b₂] and temperature T it is 2(b₂ − b₁)/T-locally
differentially private, and n tokens of each of m documents are 2mn(b₂ − b₁)/T by composition, whatever the model, the
prompt and the documents.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from murmura.data.tokenising import Tokenised
from murmura.errors import ConfigError, PrivacyError
from murmura.generation.sampling import Sampling
from murmura.model_runtime import ModelRuntime
from murmura.privacy.entropy import Entropy
from murmura.privacy.local_text import VOCABULARY
from murmura.progress import bar
from murmura.synthesis.prompts import Wording, unbroken
from murmura.training.batch import collate, micro_batches


@dataclass(frozen=True)
class DPPrompt:
    """How documents are paraphrased.

    Args:
        tokens: n, that each document spends. The end is a token like any other. So a paraphrase that ends sooner is as
            one of which the rest was drawn and thrown away.
        low: b₁, and ``high`` b₂, to which logits are clipped before they are divided by the temperature. They must not
            come from private texts; see ``logit_bounds``.
        temperature: T.

    Raises:
        ConfigError: a number is out of its range.
    """

    tokens: int
    low: float
    high: float
    temperature: float

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ConfigError(f"a paraphrase of {self.tokens} tokens says nothing", fix="Use at least 1.")
        _ = self.sampling

    @property
    def sampling(self) -> Sampling:
        """From all tokens: to leave some out would depend on the document."""
        return Sampling(self.temperature, clip=(self.low, self.high))


def paraphrased(
    runtime: ModelRuntime, sites: Sequence[Sequence[str]], how: DPPrompt, entropy: Entropy
) -> list[list[str]]:
    """A paraphrase of each document of each site; some may be empty.

    A site's documents are written together, and sites apart: in a batch each document moves the last digits of the
    others' logits, and so how likely their tokens are. So ε is that of all documents of a site, and no document has a
    smaller one of its own.

    A document loses its end where it would not leave room for all n tokens in the model's context, so that how many
    tokens may be written tells nothing of its length.

    Args:
        runtime: of a causal model, which writes without an adapter.
        sites: the documents of each.
        entropy: what draws the tokens: whoever could draw the same would know more of the logits than ε allows.

    Raises:
        PrivacyError: the entropy is no secret, or the model has more tokens than ε is for.
        ConfigError: the prompt is too long for the model.
    """
    if not entropy.is_secret:
        fix = "Draw them by OSEntropy()."
        raise PrivacyError("paraphrases whose tokens are drawn from a known seed protect nothing", fix=fix)
    if len(runtime.tokenizer) > VOCABULARY // 2:  # a model's logits may be more than its tokenizer's tokens
        raise PrivacyError(f"ε is for models of {VOCABULARY // 2} tokens at most", fix="Name another paraphraser.")
    wording = Wording(runtime.tokenizer)
    room = _room(runtime, wording, how.tokens)
    prompts = [[_fitting(runtime, wording, document, room) for document in documents] for documents in sites]
    found = []
    with bar("paraphrase", sum(map(len, prompts))) as progress, runtime.writing():
        for own in prompts:
            found.append(_written(runtime, own, how, entropy))
            progress.advance(len(own))
    return found


def _written(runtime: ModelRuntime, prompts: list[list[int]], how: DPPrompt, entropy: Entropy) -> list[str]:
    """Of one site's prompts."""
    count = len(prompts)
    completions = runtime.write(
        [runtime.bank.untrained] * count,
        prompts,
        [how.tokens] * count,
        sampling=how.sampling,
        streams=[entropy] * count,
        description="paraphrase",
    )
    return [" ".join(unbroken(one.text, one.finished).split()) for one in completions]


def _room(runtime: ModelRuntime, wording: Wording, written: int) -> int:
    """Most tokens of a prompt that leaves room for so many."""
    room = sys.maxsize if runtime.context is None else runtime.context - written
    if len(runtime.prompt_ids(wording.prompt(""))) > room:
        what = f"the prompt leaves no room for {written} tokens in the model's context of {runtime.context}"
        raise ConfigError(what, fix="Write fewer tokens.")
    return room


def _fitting(runtime: ModelRuntime, wording: Wording, document: str, room: int) -> list[int]:
    """A prompt of at most so many tokens, with as much of the document's beginning as fits."""
    tokenizer = runtime.tokenizer
    ids = tokenizer(document, add_special_tokens=False).input_ids
    while len(prompt := runtime.prompt_ids(wording.prompt(document))) > room:
        ids = ids[: room - len(prompt)]
        document = tokenizer.decode(ids)
    return prompt


@torch.no_grad()
def logit_bounds(
    runtime: ModelRuntime, documents: Sequence[str], written: int, *, tokens_per_pass: int = 4096
) -> tuple[float, float]:
    """The smallest and the largest logit when public documents are read behind the prompt to paraphrase them: b₁, b₂.

    Args:
        runtime: of the model that is to paraphrase.
        documents: public ones, like the private ones in kind. They lose their ends as private ones do.
        written: how many tokens a paraphrase has.
        tokens_per_pass: padded tokens that go through the model at once.

    Raises:
        ConfigError: no document has any text, or the prompt is too long for the model.
    """
    bench, wording = runtime, Wording(runtime.tokenizer)
    texts = [bench.tokenizer(document, add_special_tokens=False).input_ids for document in documents]
    room = _room(bench, wording, written)
    prompts = [_fitting(bench, wording, document, room) for document in documents]
    items = [
        Tokenised([*prompt, *ids][: bench.context], len(prompt), truncated=False)
        for prompt, ids in zip(prompts, texts, strict=True)
        if ids
    ]
    found: list[torch.Tensor] = []
    bench.load([bench.bank.untrained])
    for group in micro_batches(items, tokens_per_pass):
        bench.bank.route(torch.zeros(len(group), dtype=torch.long))
        [ends], _ = bench.bank.head.measured(*collate([items[i] for i in group], bench.bank.device), [_ends])
        found.append(ends)
    if not sum(map(len, found)):
        raise ConfigError("no public document has text to bound logits by", fix="Give documents that have some.")
    ends = torch.cat(found)
    return float(ends[:, 0].min()), float(ends[:, 1].max())


def _ends(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The smallest and the largest logit of each row, [n, 2]; those that rule a token out do not count."""
    finite = logits.isfinite()
    least, most = logits.masked_fill(~finite, torch.inf).amin(-1), logits.masked_fill(~finite, -torch.inf).amax(-1)
    return torch.stack([least, most], 1)
