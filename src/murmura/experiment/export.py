"""Hand a finished run's model over: an adapter, a whole model, or a file for llama.cpp, each with a card."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

from murmura import atomic, models
from murmura.errors import CheckpointError, ConfigError
from murmura.experiment.canaries import NOT_FOR_RELEASE as WHY_NOT
from murmura.experiment.config import Experiment
from murmura.experiment.trained import adapter_of, finished
from murmura.federation.adapter_folder import CARD
from murmura.models.quiet import quiet
from murmura.report.card import run_card
from murmura.runs.folder import RunFolder
from murmura.runs.record import read

Form = Literal["adapter", "merged", "gguf"]
Precision = Literal["float32", "bfloat16", "float16"]
CONVERTER = "convert_hf_to_gguf.py"
GGUF_TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def export(
    run: Path,
    out: Path,
    form: Form,
    *,
    site: str | None = None,
    precision: Precision = "float32",
    converter: Path | None = None,
    overwrite: bool = False,
    canaries: bool = False,
) -> Path:
    """Write a finished run's model where it stands alone.

    Args:
        run: its folder.
        out: where it is written: a folder, or of "gguf" a file.
        form: adapter, a PEFT folder; merged, the base model with the adapter in its weights, for transformers; gguf,
            the same as a file for llama.cpp, made by its own converter.
        site: whose adapter, where sites keep their own.
        precision: of the weights of a whole model. The adapter is merged in float32.
        converter: llama.cpp's ``convert_hf_to_gguf.py``; looked for on the PATH if None.
        overwrite: replace what is there.
        canaries: also a model that was trained on an audit's random secrets.

    Returns:
        what was written.

    Raises:
        CheckpointError: the run is not finished, or something is there that is not to be replaced.
        ConfigError: it cannot be handed over in this form.
    """
    experiment = finished(run)
    folder = RunFolder(run)
    if experiment.audit.canaries and not canaries:
        what = "the model was trained on random secrets too (audit.canaries), and is not for release"
        raise ConfigError(what, where=str(run), fix="Run it without canaries; or say --with-canaries.")
    if out.exists() and not overwrite:
        raise CheckpointError("there is something already", where=str(out), fix="Give another --out, or --overwrite.")
    source = _source(experiment, folder, form, site)
    card = _card(experiment, folder, source, form)
    out.parent.mkdir(parents=True, exist_ok=True)
    if form == "gguf":
        script = converter or _converter()
        with atomic.replacing_folder(out.with_name(f".{out.name}.merged")) as draft:
            _merge(experiment, source, draft, precision)
            _convert(script, draft, out, precision)
        shutil.rmtree(out.with_name(f".{out.name}.merged"))
        return out
    with atomic.replacing_folder(out) as draft:
        if form == "adapter" or experiment.model.trainable == "all":
            shutil.copytree(source, draft, dirs_exist_ok=True)
        else:
            _merge(experiment, source, draft, precision)
        (draft / CARD).write_text(card, encoding="utf-8")
    return out


def _source(experiment: Experiment, folder: RunFolder, form: Form, site: str | None) -> Path:
    """The folder that is handed over, or merged.

    Raises:
        ConfigError: there is none that can be handed over in this form.
    """
    where = str(folder.path)
    if experiment.model.trainable == "all":
        if form == "adapter":
            fix = "Export it whole: --merged."
            raise ConfigError("all parameters were trained, so there is no adapter", where=where, fix=fix)
        return folder.model
    return adapter_of(folder, site)


def _card(experiment: Experiment, folder: RunFolder, source: Path, form: Form) -> str:
    """The card of what the run has left, with what its record tells."""
    begun = (source / CARD).read_text(encoding="utf-8")
    if form == "merged" and experiment.model.trainable == "adapter":
        begun = begun.replace("library_name: peft", "library_name: transformers").replace(
            "# An adapter for", "# All of"
        )
        head, _, rest = begun.partition("```python\n")
        loaded = rest.partition("```")[2]
        begun = f"{head}{_LOAD}{loaded}"
    remark = f"> **{WHY_NOT}**\n\n" if experiment.audit.canaries else ""
    return f"{begun.rstrip()}\n\n{remark}{run_card(read(folder.path))}"


_LOAD = """```python
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForCausalLM.from_pretrained(".")
```"""


def _merge(experiment: Experiment, adapter: Path, draft: Path, precision: Precision) -> None:
    """The base model with the adapter in its weights, and the adapter's tokenizer.

    The base is loaded without quantisation, in float32: what was trained beside a quantised base meets rounded weights
    no more, and answers a little otherwise.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoTokenizer

    if experiment.model.trainable == "all":
        loaded = models.load(str(adapter), experiment.model_task, "float32", "cpu", None)
        model = loaded.model
    else:
        loaded = models.load(experiment.model.name, experiment.model_task, "float32", "cpu", None)
        with quiet():
            model = PeftModel.from_pretrained(loaded.model, str(adapter)).merge_and_unload()
    model.to(getattr(torch, precision)).save_pretrained(draft)
    AutoTokenizer.from_pretrained(adapter).save_pretrained(draft)


def _converter() -> Path:
    """
    Raises:
        ConfigError: it is not installed.
    """
    found = shutil.which(CONVERTER)
    if found is None:
        fix = f"Get llama.cpp (github.com/ggml-org/llama.cpp), and give --converter llama.cpp/{CONVERTER}."
        raise ConfigError(f"llama.cpp's {CONVERTER} is not on the PATH", where="--gguf", fix=fix)
    return Path(found)


def _convert(script: Path, model: Path, out: Path, precision: Precision) -> None:
    """Have llama.cpp's converter write the file.

    Raises:
        ConfigError: it fails; with the end of what it says.
    """
    draft = atomic.draft_of(out)
    words = [sys.executable, str(script), str(model), "--outfile", str(draft), "--outtype", GGUF_TYPES[precision]]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode or not draft.is_file():
        draft.unlink(missing_ok=True)
        said = "\n".join((ended.stderr or ended.stdout).splitlines()[-5:])
        what = f"llama.cpp's converter does not make a file of this model:\n{said}"
        raise ConfigError(what, where=str(script), fix="Its requirements.txt says what it needs.")
    os.replace(draft, out)
