"""Texts to unit vectors, by a sentence encoder that runs where the texts are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from murmura.errors import ModelError
from murmura.progress import bar

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

_OFF = 1e-3  # how far from 1 the length of a vector may be
_ANOTHER = "They are zero, or not numbers: use another encoder."


class Encoder:
    """A sentence encoder (Reimers and Gurevych, 2019), loaded when the first text is embedded.

    Args:
        name: An alias, a folder or a hub id, as in ``murmura.models``.
        batch_size: Texts in one forward pass.
        device: As torch names it; None takes a GPU where there is one.
    """

    def __init__(self, name: str = "minilm", *, batch_size: int = 64, device: str | None = None) -> None:
        self.name, self._batch_size, self._device = name, batch_size, device

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """The vectors of the texts, float32 [n, d], each of length 1, so that a dot product is a cosine.

        A text longer than the encoder's window is cut there.

        Raises:
            ModelError: The encoder cannot be found or fetched, or gives something that is no vector of length 1.
        """
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        with bar("encoding", len(texts)) as progress:
            for batch, found in self.batches(texts):
                vectors[batch] = found
                progress.advance(len(batch))
        return vectors

    def embed_each(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """As ``embed``, each text in a pass of its own, so that no vector depends on what other texts there are, in any
        bit. One that has no direction comes back as it is: to stop would tell of a single text.

        Raises:
            ModelError: The encoder cannot be found or fetched.
        """
        return np.concatenate([np.zeros((0, self.dimension), np.float32), *self.embed_apart([[one] for one in texts])])

    def embed_apart(self, groups: Sequence[Sequence[str]]) -> list[npt.NDArray[np.float32]]:
        """As ``embed_each``, each group of texts in passes of its own: no vector depends on other groups.

        Raises:
            ModelError: The encoder cannot be found or fetched.
        """
        found = []
        with bar("encoding", len(groups)) as progress:
            for group in groups:
                own = np.zeros((len(group), self.dimension), np.float32)
                for batch, vectors in self._passes(group):
                    own[batch] = vectors
                found.append(own)
                progress.advance()
        return found

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], npt.NDArray[np.float32]]]:
        """As ``embed``, a batch at a time: which texts, and their vectors.

        Raises:
            ModelError: As ``embed``.
        """
        for batch, vectors in self._passes(texts):
            if not (np.abs(np.linalg.norm(vectors, axis=1) - 1) < _OFF).all():  # nor where one is not a number
                raise ModelError(f"the encoder '{self.name}' gives vectors that have no direction", fix=_ANOTHER)
            yield batch, vectors

    def _passes(self, texts: Sequence[str]) -> Iterator[tuple[list[int], npt.NDArray[np.float32]]]:
        # Texts of like length together: a batch costs as much as its longest text. Long ones first, so that a batch
        # that does not fit into memory is met at once and not at the end.
        order = sorted(range(len(texts)), key=lambda index: -len(texts[index]))
        for first in range(0, len(order), self._batch_size):
            batch = order[first : first + self._batch_size]
            yield batch, self._encode([texts[index] for index in batch])

    def _encode(self, texts: list[str]) -> npt.NDArray[np.float32]:
        found: npt.NDArray[np.float32] = self._model.encode(
            texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False
        )
        return found

    @cached_property
    def dimension(self) -> int:
        """d, the length of a vector."""
        return int(self._model.encode("a", show_progress_bar=False).shape[-1])

    @property
    def parameters(self) -> int:
        """Numbers in its weights."""
        return sum(one.numel() for one in self._model.parameters())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of what its vectors come of: weights, tokenizer, window, pooling.

        Where they were fetched from, and in which format, makes no difference.

        Raises:
            ModelError: The encoder cannot be found or fetched.
        """
        import torch

        model: Any = self._model  # a module of torch, whose own types say nothing of what else it has
        behind = [[type(module).__name__, module.get_config_dict()] for module in list(model)[1:]]
        prompt = model.prompts.get(model.default_prompt_name or "")
        about = [model.max_seq_length, model.truncate_dim, prompt, behind, _reading(model.tokenizer)]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
        for name, weights in sorted(model.state_dict().items()):
            digest.update(f"{name} {list(weights.shape)}".encode())
            digest.update(weights.detach().to("cpu", torch.float32).contiguous().numpy().data)
        return digest.hexdigest()

    @cached_property
    def _model(self) -> SentenceTransformer:
        from sentence_transformers import SentenceTransformer

        from murmura.models import resolve
        from murmura.models.quiet import line, quiet

        place = resolve(self.name)
        try:
            with quiet():
                return SentenceTransformer(str(place), device=self._device)
        except Exception as error:  # whatever a library, or a file of somebody's own, does
            raise ModelError(f"cannot be loaded as a sentence encoder: {line(error)}", where=self.name) from error


def dimension_of(name: str) -> int | None:
    """d of an encoder's vectors by its config alone, without its weights; None where that cannot be had."""
    from transformers import AutoConfig

    from murmura.models import ALIASES, cached
    from murmura.models.quiet import quiet

    source = str(cached(name) or ALIASES[name].hub) if name in ALIASES else name
    try:
        with quiet():
            return int(AutoConfig.from_pretrained(source).hidden_size)
    except (OSError, ValueError, AttributeError):
        return None


def _reading(tokenizer: Any) -> list[Any]:
    """What it depends on which tokens a text becomes, whatever it is padded to."""
    rules = json.loads(tokenizer.backend_tokenizer.to_str()) if tokenizer.is_fast else {}
    steps = [rules.get(step) for step in ("normalizer", "pre_tokenizer", "post_processor")]
    return [sorted(tokenizer.get_vocab().items()), tokenizer.truncation_side, *steps]
