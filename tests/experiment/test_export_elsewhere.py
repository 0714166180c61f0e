"""What is handed over writes the same elsewhere: transformers, PEFT, llama.cpp and an OpenAI-protocol server.

Needs llama-cpp-python with its extra "server", and llama.cpp's converter in ``MURMURA_GGUF_CONVERTER``.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch

from murmura import Experiment, models
from murmura.data.records import Instruction
from murmura.experiment.export import export
from murmura.experiment.run import run
from murmura.experiment.trained import Trained
from tests.experiment import small

QUESTION = "Why is the sky blue?"
TOKENS = 16
CONVERTER = os.environ.get("MURMURA_GGUF_CONVERTER")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of SmolLM2 that was trained enough for its answer to be another one than before."""
    place = tmp_path_factory.mktemp("smollm")
    small.write_data(place)
    table = {
        "run": {"name": "small", "folder": str(place / "run"), "decode_dtype": "model"},
        "model": {"name": "smollm2-135m", "dtype": "float32", "device": "cpu"},
        "lora": {"rank": 4},
        "method": {"name": "fedit", "rounds": 1},
        "data": {"train": "sites", "heldout": "heldout.jsonl", "max_length": 128, "template": "chat"},
        "training": {"lr": 2e-3, "batch_size": 2, "max_steps": 4, "precision": "float32"},
        "evaluation": {"sample": 2, "attacks": False},
    }
    return run(Experiment.of(table, base=place)).folder


@pytest.fixture(scope="module")
def ours(folder):
    """What Murmura's own writer answers, after and before training."""
    trained = Trained.load(folder)
    after, before = trained.answers([Instruction(QUESTION)], [trained.after, trained.before], TOKENS)
    assert after.text != before.text  # else nothing would be shown
    return after.text.strip()


def asked():
    return [{"role": "user", "content": QUESTION}]


def written(model, tokenizer):
    prompt = tokenizer.apply_chat_template(asked(), add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        ids = model.generate(**prompt, max_new_tokens=TOKENS, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    return tokenizer.decode(ids, skip_special_tokens=True).strip()


@pytest.mark.real
def test_transformers_and_peft_write_what_murmura_writes(folder, ours, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = models.load("smollm2-135m", "causal", "float32", "cpu").model
    adapter = export(folder, tmp_path / "adapter", "adapter")
    tokenizer = AutoTokenizer.from_pretrained(adapter)
    assert written(PeftModel.from_pretrained(base, adapter), tokenizer) == ours
    merged = export(folder, tmp_path / "merged", "merged")
    assert written(AutoModelForCausalLM.from_pretrained(merged), AutoTokenizer.from_pretrained(merged)) == ours


@pytest.fixture(scope="module")
def gguf(folder, tmp_path_factory):
    pytest.importorskip("llama_cpp")
    if CONVERTER is None:
        pytest.skip("MURMURA_GGUF_CONVERTER names no converter")
    place = tmp_path_factory.mktemp("gguf") / "given"
    return export(folder, place, "gguf", converter=Path(CONVERTER)) / "model.gguf"


@pytest.mark.real
def test_llama_cpp_reads_the_same_tokens_and_writes_what_murmura_writes(folder, ours, gguf):
    from llama_cpp import GGML_TYPE_F32, Llama
    from transformers import AutoTokenizer

    whole = {"type_k": GGML_TYPE_F32, "type_v": GGML_TYPE_F32}  # by default it keeps keys and values in float16
    model = Llama(str(gguf), n_ctx=512, verbose=False, logits_all=True, **whole)
    tokenizer = AutoTokenizer.from_pretrained(folder / "adapter")
    text = tokenizer.apply_chat_template(asked(), add_generation_prompt=True, tokenize=False)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert model.tokenize(text.encode(), add_bos=False, special=True) == ids

    model.eval(ids)
    trained = Trained.load(folder)
    trained.runtime.bank.load([trained.after])
    trained.runtime.bank.route(torch.zeros(1, dtype=torch.long))
    with torch.no_grad():
        wanted = trained.runtime.bank.model(torch.tensor([ids])).logits[0]
    found = torch.tensor(model.scores[: len(ids)])
    assert (found - wanted).abs().max() < 0.01  # of logits up to 30; other kernels

    model.reset()
    answer = model.create_chat_completion(asked(), max_tokens=TOKENS, temperature=0.0)
    assert answer["choices"][0]["message"]["content"].strip() == ours


@pytest.mark.real
def test_a_server_of_openais_protocol_writes_what_murmura_writes(ours, gguf):
    openai = pytest.importorskip("openai")
    for part in ("sse_starlette", "starlette_context", "pydantic_settings"):
        pytest.importorskip(part)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--model", str(gguf), "--port", str(port), "--host", "127.0.0.1", "--n_ctx", "512"]
    server = subprocess.Popen([sys.executable, "-m", "llama_cpp.server", *words], stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/v1"
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{url}/models").close()
                break
            except urllib.error.URLError:
                assert server.poll() is None, "the server ended"
                time.sleep(0.5)
        client = openai.OpenAI(base_url=url, api_key="none")
        answer = client.chat.completions.create(model="any", messages=asked(), max_tokens=TOKENS, temperature=0.0)
        assert answer.choices[0].message.content.strip() == ours
    finally:
        server.terminate()
        server.wait()
