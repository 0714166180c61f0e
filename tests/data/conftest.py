"""Tokenizers that differ in what they put around a text, and a way to write small files."""

import copy
import json

import pytest


@pytest.fixture(scope="session")
def bos_tokenizer(tokenizer):
    """As ``tokenizer``, but it sets a beginning- and an end-of-sequence token around a text, as BERT's do."""
    from tokenizers.processors import TemplateProcessing

    framed = copy.deepcopy(tokenizer)
    framed.bos_token = "<|endoftext|>"
    framed.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A <|im_end|>",
        special_tokens=[("<|endoftext|>", framed.bos_token_id), ("<|im_end|>", framed.eos_token_id)],
    )
    framed.chat_template = "{{ bos_token }}" + tokenizer.chat_template
    return framed


@pytest.fixture
def jsonl(tmp_path):
    """Write objects (or raw lines) to a JSON lines file."""

    def write(*rows, name="site.jsonl"):
        lines = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path = tmp_path / name
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return write
