"""What a run leaves of a model: a folder that stands alone. Beside the weights lie the tokenizer, which asks as was
trained, and a card that says how to load it and what is promised."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura.generation.ending import end_tokens
from murmura.models.quiet import quiet
from murmura.runs.card import CARD, TAG
from murmura.training.adapter import State, fold, save_peft

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime

_LOADED = {
    "adapter": ("base = {auto}.from_pretrained(resolve({name}))\nmodel = PeftModel.from_pretrained(base, folder)"),
    "whole": "model = {auto}.from_pretrained(folder)",
}
_ASKED = """\
asked = [{"role": "user", "content": "What helps against a cough?"}]
prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True)
"""
_BEGUN = """\
prompt = tokenizer("It was", return_tensors="pt")
"""
_WRITTEN = """\
written = model.generate(**prompt, max_new_tokens=128, eos_token_id=ENDS)
answer = written[0, prompt["input_ids"].shape[1] :]
print(tokenizer.decode(answer, skip_special_tokens=True))
"""
_LLAMA = """\
from llama_cpp import Llama

model = Llama("model.gguf", n_ctx=2048, verbose=False)
"""
_CHATTED = """\
answer = model.create_chat_completion(asked, max_tokens=128, temperature=0.0)
print(answer["choices"][0]["message"]["content"])
"""
_CONTINUED = """\
print(model("It was", max_tokens=128, temperature=0.0)["choices"][0]["text"])
"""
_SERVED = {
    "merged": "`vllm serve .` serves it with OpenAI's protocol, as `vllm` reads folders of transformers.",
    "gguf": "`llama-server -m model.gguf` serves it with OpenAI's protocol, and so does "
    "`python -m llama_cpp.server --model model.gguf`.",
}


def nbytes_of(tokenizer: Any) -> int:
    """About how many bytes it takes on disk; 0 for one of those, hardly in use any more, that do not say."""
    fast = getattr(tokenizer, "backend_tokenizer", None)
    return 0 if fast is None else len(fast.to_str().encode())


def leave_adapter(folder: Path, state: State, runtime: ModelRuntime, told: str) -> None:
    """Write a PEFT folder with a tokenizer and a card.

    Args:
        folder: created if missing.
        state: an adapter, with its residual if it has one.
        told: who made it, and what is guaranteed: the end of the card.
    """
    bank = runtime.bank
    assert bank.lora is not None, "where all parameters train there is no adapter"
    plain, spec = fold(state, bank.lora)
    save_peft(
        folder,
        plain,
        spec,
        runtime.base,
        fan_in_fan_out=bank.fan_in_fan_out,
        task_type="CAUSAL_LM" if bank.head.is_decoder else "",
    )
    _leave(folder, runtime, told, "adapter")


def leave_model(folder: Path, state: State, runtime: ModelRuntime, told: str) -> None:
    """The same for a model all parameters of which were trained."""
    runtime.bank.load([state])
    with quiet():
        runtime.bank.model.save_pretrained(folder)
    as_readable_as_config(folder)
    name_ends(folder, runtime.bank.model, runtime.tokenizer)
    _leave(folder, runtime, told, "whole")


def as_readable_as_config(folder: Path) -> None:
    """safetensors writes files that only their owner can read, and a model is handed over."""
    mode = (folder / "config.json").stat().st_mode
    for file in folder.glob("*.safetensors"):
        file.chmod(mode)


def name_ends(folder: Path, model: Any, tokenizer: Any) -> None:
    """Name all tokens that end a text where others than Murmura look for them: a base's own may lack the tokenizer's,
    with which training ends. In the file, since transformers saves no changed settings that contradict one another."""
    place = folder / "generation_config.json"
    if place.is_file():  # a model that fills in blanks has none
        settings = json.loads(place.read_text(encoding="utf-8"))
        settings["eos_token_id"] = sorted(end_tokens(model, tokenizer))
        place.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _leave(folder: Path, runtime: ModelRuntime, told: str, part: str) -> None:
    tokenizer = copy.deepcopy(runtime.tokenizer)
    tokenizer.chat_template = runtime.reading.chat_template
    tokenizer.save_pretrained(folder)
    (folder / CARD).write_text(_card(runtime, told, part), encoding="utf-8")


def given_as(form: str, card: str) -> str:
    """The card of an adapter as that of what is made of it; one of a model that was trained whole stays as it is, but
    for what llama.cpp loads.

    Args:
        form: "adapter", "merged" (for transformers) or "gguf".
    """
    if form == "adapter":
        return card
    library = {"merged": "transformers", "gguf": "gguf"}[form]
    card = re.sub(r"^library_name: .*$", f"library_name: {library}", card, count=1, flags=re.M)
    card = card.replace("- lora\n", "", 1).replace("\n# An adapter for ", "\n# All of ", 1)
    card = re.sub(r"^The base model lies where `.*?` says\. ", "", card, count=1, flags=re.M)
    before, _, rest = card.partition("```python\n")
    code, _, after = rest.partition("```")
    if form == "gguf":
        asked = re.search(r"^asked = .*$", code, re.M)
        code = _LLAMA + (f"{asked[0]}\n{_CHATTED}" if asked else _CONTINUED)
    else:
        code = code.replace("from peft import PeftModel\n", "").replace("from murmura.models import resolve\n\n", "")
        code = re.sub(r"^base = (\w+)\..*\nmodel = .*$", r"model = \1.from_pretrained(folder)", code, flags=re.M)
    served = "" if "AutoModelForMaskedLM" in code else f"\n\n{_SERVED[form]}"  # what fills blanks writes no answers
    return f"{before}```python\n{code}```{served}{after}"


def _card(runtime: ModelRuntime, told: str, part: str) -> str:
    adapts = part == "adapter"
    library = "library_name: peft" if adapts else "library_name: transformers"
    lines = [library, "license: unknown", "tags:", TAG, *(["- lora"] if adapts else [])]
    if not Path(runtime.base).is_absolute():  # an id, and no folder of this machine
        lines.insert(0, f"base_model: {runtime.base}")
    what = "An adapter for" if adapts else "All of"
    begin = f"The base model lies where `murmura path {runtime.model}` says. " if adapts else ""
    begin += f"What was trained came from: {runtime.source}.\n\n"
    return (
        "---\n" + "".join(f"{line}\n" for line in lines) + f"---\n\n# {what} {runtime.base}\n\n{begin}"
        f"```python\n{_snippet(runtime, part)}```\n\n{_how(runtime)}\n\n{told}\n"
    )


def _snippet(runtime: ModelRuntime, part: str) -> str:
    """How to load it, and to ask it something; it runs as it is in the folder."""
    auto = "AutoModelForCausalLM" if runtime.bank.head.is_decoder else "AutoModelForMaskedLM"
    adapts, reading = part == "adapter", runtime.reading
    use = ""
    if reading.cloze is None:
        ends = sorted(end_tokens(runtime.bank.model, runtime.tokenizer))
        use = (_ASKED if reading.template else _BEGUN) + _WRITTEN.replace("ENDS", str(ends))
    return (
        ("from peft import PeftModel\n" if adapts else "")
        + f"from transformers import {auto}, AutoTokenizer\n\n"
        + ("from murmura.models import resolve\n\n" if adapts else "")
        + 'folder = "."  # this one\ntokenizer = AutoTokenizer.from_pretrained(folder)\n'
        + f"{_LOADED[part].format(auto=auto, name=json.dumps(runtime.model))}\n{use}"
    )


def _how(runtime: ModelRuntime) -> str:
    """How it is to be asked."""
    reading = runtime.reading
    if reading.template is not None:
        own = reading.template.name == "chat"
        with_input = 'instruction + "\\n\\n" + input' if own else 'instruction, and `"input": input` beside it'
        return (
            f"It was trained with the template '{reading.template.name}', which is the tokenizer's chat template here: "
            "`apply_chat_template` asks as was trained. Where there is an input, the message's content is "
            f"{with_input}."
        )
    if reading.cloze is not None:
        return (
            "It was trained to fill the blank of patterns about a text, which are in the run's `config.toml` with the "
            "words of each label: `murmura predict RUN FILE` reads them there and labels texts."
        )
    return "It was trained on plain texts, and continues one; it answers no questions and has no chat template."
