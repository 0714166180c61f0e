"""Unpacking SmolLM2; what comes out is tested with the real file in ``test_real.py``."""

import transformers
from tqdm.auto import tqdm

from murmura.models import smollm
from tests.conftest import make_llama


def test_the_converters_bar_does_not_reach_the_terminal(tokenizer, tmp_path, monkeypatch, capfd):
    def convert(folder, **options):
        for _ in tqdm(range(3), desc="Converting"):
            pass
        return make_llama(tokenizer)

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", convert)
    assert smollm._weights(tmp_path / "weights.gguf").config.model_type == "llama"
    assert capfd.readouterr() == ("", "")
