"""Way (l): llama.cpp writes greedily from the same weights, all texts as sequences of one batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import numpy.typing as npt
from work import WritingWork, finish, timed, tokens_of

_MOST = 512  # tokens that go through the model at once


def main(work: WritingWork, out: str, way: str) -> None:
    file = Path(out) / "model.gguf"
    convert(Path(work.model), file)
    prompts, limits = work.prompts(), work.limits()
    with_room = max(len(prompt) + limit for prompt, limit in zip(prompts, limits, strict=True))
    writer = Writer(file, min(work.texts, max(work.batches)), with_room, work.cores)
    writer.write(prompts[:2], [2, 2])
    written, seconds = timed(lambda: writer.write(prompts, limits), 1)
    finish(out, {"tokens": tokens_of(written)}, seconds, 0)


class Writer:
    """A context with a sequence for each text that is written at once.

    Args:
        rows: most texts at once.
        length: most tokens of a text, its prompt included.
    """

    def __init__(self, file: Path, rows: int, length: int, threads: int) -> None:
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx, options.n_seq_max, options.kv_unified = rows * -(-length // 256) * 256, rows, False
        options.n_batch = options.n_ubatch = _MOST
        options.n_threads = options.n_threads_batch = threads
        options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
        self._context: Any = llama_cpp.llama_init_from_model(model, options)
        self._batch = llama_cpp.llama_batch_init(_MOST, 0, 1)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self._rows = rows

    def write(self, prompts: Sequence[Sequence[int]], limits: Sequence[int]) -> list[list[int]]:
        """Continue each prompt by its number of tokens."""
        written: list[list[int]] = [[] for _ in prompts]
        waiting, texts = list(range(len(prompts)))[::-1], dict[int, int]()  # sequence -> text
        while waiting or texts:
            while waiting and len(texts) < self._rows:
                sequence = next(k for k in range(self._rows) if k not in texts)
                text = texts[sequence] = waiting.pop()
                written[text].append(self._read(sequence, prompts[text]))
            places = {k: len(prompts[text]) + len(written[text]) - 1 for k, text in texts.items()}
            found = self._decode([(written[texts[k]][-1], place, k, True) for k, place in places.items()])
            for (sequence, text), token in zip(list(texts.items()), found, strict=True):
                written[text].append(token)
                if len(written[text]) >= limits[text]:
                    del texts[sequence]
                    self._forget(sequence)
        return [ids[:limit] for ids, limit in zip(written, limits, strict=True)]

    def _read(self, sequence: int, prompt: Sequence[int]) -> int:
        last = len(prompt) - 1
        [token] = self._decode([(token, place, sequence, place == last) for place, token in enumerate(prompt)])
        return token

    def _decode(self, tokens: Sequence[tuple[int, int, int, bool]]) -> list[int]:
        """Take in tokens (id, place, sequence, whether the next one is wanted); returns the likeliest next ones."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, (token, place, sequence, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, place, wanted
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
        status = llama_cpp.llama_decode(self._context, batch)
        if status:
            raise SystemExit(f"llama_decode ended with {status}")
        return [int(self._logits(i).argmax()) for i, (*_, wanted) in enumerate(tokens) if wanted]

    def _logits(self, place: int) -> npt.NDArray[np.float32]:
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._context, place), (self._vocabulary,))

    def _forget(self, sequence: int) -> None:
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self._context), sequence, -1, -1)


def convert(folder: Path, file: Path) -> None:
    """A model of Llama's architecture as a GGUF file in float32, without its tokenizer: texts are token ids here."""
    from transformers import AutoModelForCausalLM

    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
    made = gguf.GGUFWriter(file, "llama")
    made.add_context_length(config["max_position_embeddings"])
    made.add_embedding_length(config["hidden_size"])
    made.add_block_count(config["num_hidden_layers"])
    made.add_feed_forward_length(config["intermediate_size"])
    made.add_head_count(heads)
    made.add_head_count_kv(keys)
    made.add_layer_norm_rms_eps(config["rms_norm_eps"])
    made.add_rope_freq_base((config.get("rope_parameters") or config).get("rope_theta", 10_000.0))
    made.add_vocab_size(config["vocab_size"])
    made.add_tokenizer_model("no_vocab")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        weight = tensor.numpy()
        for part, count in (("q_proj.weight", heads), ("k_proj.weight", keys)):
            if name.endswith(part):  # llama.cpp rotates neighbours, transformers halves of a head
                pairs = weight.reshape(count, 2, -1, weight.shape[1])
                weight = pairs.swapaxes(1, 2).reshape(weight.shape)
        made.add_tensor(names.get_name(name, try_suffixes=(".weight",)), np.ascontiguousarray(weight))
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


if __name__ == "__main__":
    main(WritingWork.read(sys.argv[1]), *sys.argv[2:])
