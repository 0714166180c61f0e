"""Hand a finished run's model over: an adapter, a whole model, or a file for llama.cpp, each with a card."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from os.path import realpath
from pathlib import Path
from typing import Any, Literal

from murmura import atomic, models
from murmura.errors import CheckpointError, ConfigError, explaining
from murmura.experiment.canaries import WHY_NOT, has_learnt, is_marked
from murmura.experiment.config import Experiment
from murmura.experiment.inputs import require_same_base
from murmura.experiment.trained import finished, model_of
from murmura.federation.adapter_folder import as_readable_as_config, given_as, name_ends
from murmura.methods import section
from murmura.models.quiet import quiet
from murmura.report.card import run_card
from murmura.runs import files
from murmura.runs.card import CARD, is_tagged
from murmura.runs.folder import RunFolder
from murmura.runs.locks import making
from murmura.runs.names import CLASSIFIER, NOT_FOR_RELEASE, OUTCOMES
from murmura.runs.previous import is_run
from murmura.runs.record import read
from murmura.runs.schema import PatternWeights
from murmura.training.adapter import PEFT_PREFIX, load_peft
from murmura.units import decimal, listing

Form = Literal["adapter", "merged", "gguf"]
Precision = Literal["float32", "bfloat16", "float16"]
CONVERTER = "convert_hf_to_gguf.py"
GGUF_TYPES = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
GGUF = "model.gguf"
_WRITTEN = ("adapter_config.json", "config.json", GGUF)
"""One of these is in every folder that is written here."""
_WEIGHTS = (
    *("adapter_model.safetensors", "model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json"),
    "generation_config.json",
)
_TOKENIZER = (
    *("tokenizer.json", "tokenizer_config.json", "tokenizer.model.*", "*.model", "*.tokenizer", "merges.txt"),
    *("vocab.json", "vocab.txt", "vocab-???.json", "*_vocab.json", "dict.txt", "*.codes"),
    *("special_tokens_map.json", "added_tokens.json", "chat_template.*"),
    *("emoji.json", "normalizer.json", "byte_maps.json", "word_*.json"),
)
_OURS = (CARD, NOT_FOR_RELEASE, *_WRITTEN, *_WEIGHTS, *_TOKENIZER)
"""What exports consist of, as patterns; what a tokenizer's files are called depends on its kind."""
_FOLDER = "additional_chat_templates"
"""The only folder that a tokenizer may have."""
_UNQUANTISED = (
    "The adapter was trained beside a base model that was quantised ({}), and is merged into the weights as they were "
    "before: the figures below are of the quantised model, and this one answers a little otherwise."
)

_CLASSIFIES = (
    "Patterns, words of labels and how these are reduced stand below, under `[method]`. The scores that a text has in "
    "each pattern are put together by these weights, in the order of patterns: {}."
)


def export(
    run: Path,
    out: Path,
    form: Form,
    *,
    site: str | None = None,
    precision: Precision | None = None,
    converter: Path | None = None,
    overwrite: bool = False,
    canaries: bool = False,
) -> Path:
    """Write a finished run's model into a folder that stands alone.

    Args:
        run: its folder.
        out: the folder that is written, whole or not at all.
        form: adapter, a PEFT folder; merged, the base model with the adapter in its weights, for transformers; gguf,
            the same as a file for llama.cpp (``model.gguf``), made by its own converter.
        site: whose adapter, where sites keep their own.
        precision: of the weights of a whole model, float32 if not given. The adapter is merged in float32.
        converter: llama.cpp's ``convert_hf_to_gguf.py``; looked for on the PATH if None.
        overwrite: replace what was exported there before; nothing else is ever replaced.
        canaries: also a model that was trained on an audit's random secrets.

    Returns:
        what was written.

    Raises:
        CheckpointError: the run is not finished, its base model is another now, something is there that is not to be
            replaced, or the place cannot be written.
        ConfigError: it cannot be handed over in this form.
    """
    from safetensors import SafetensorError

    experiment = finished(run)
    folder = RunFolder(run)
    if form == "adapter" and precision is not None:
        what = "an adapter is handed over as it was trained; a precision is for a whole model"
        raise ConfigError(what, where="--precision", fix="Remove it, or give --merged or --gguf.")
    whole: Precision = precision or "float32"
    _require_apart(experiment, run, out)
    source = _source(experiment, folder, form, site)
    secrets = has_learnt(experiment) or is_marked(source.absolute())
    if secrets and not canaries:
        what = "the model, or what it began with, has learnt random secrets (audit.canaries), and is not for release"
        raise ConfigError(what, where=str(run), fix="Run it without canaries; or say --with-canaries.")
    script = _converter(converter) if form == "gguf" else None
    said = [f"> **{' '.join(WHY_NOT.split())}**"] * secrets + [f"The weights are in {whole}."] * (form != "adapter")
    card = _card(experiment, folder, source, form, site, said)
    told = explaining("it cannot be written", out, "or give another --out", SafetensorError)
    with told, making(out, "exporting to this folder", CheckpointError) as place:
        _require_replaceable(out, overwrite)
        with atomic.replacing_folder(place) as draft:
            if site is not None:
                atomic.make_private(draft)  # as the site's own folder is, before anything is in it
            if script is not None:
                _merge(experiment, folder, source, draft / "merged", whole)
                _convert(script, draft / "merged", draft / GGUF, whole)
                shutil.rmtree(draft / "merged")
            elif form == "merged":
                _merge(experiment, folder, source, draft, whole)
            else:
                for file in filter(Path.is_file, source.iterdir()):
                    shutil.copyfile(file, draft / file.name)  # without its rights: a run may be read-only
            (draft / CARD).write_text(card, encoding="utf-8")
            if secrets:
                (draft / NOT_FOR_RELEASE).write_text(WHY_NOT, encoding="utf-8")
    return out


def _require_apart(experiment: Experiment, run: Path, out: Path) -> None:
    """Refuse a place that is a run's, or that the run needs."""
    where, place = str(out), Path(realpath(out))
    if place.is_relative_to(run.resolve()) or run.resolve().is_relative_to(place):
        raise CheckpointError("this is the run's own folder, or holds it", where=where, fix="Give another --out.")
    if any(map(is_run, (place, *place.parents))):
        raise CheckpointError("this is in the folder of another run", where=where, fix="Give another --out.")
    if any(one and Path(one).resolve() == place for one in (experiment.model.name, experiment.model.adapter)):
        raise CheckpointError("the run began with the model that is here", where=where, fix="Give another --out.")


def _require_replaceable(out: Path, overwrite: bool) -> None:
    """Refuse a place where something is that was not exported, or that is not to be replaced."""
    where = str(out)
    if not out.exists() and not out.is_symlink():
        return
    exported = out.is_dir() and not out.is_symlink() and is_tagged(out / CARD)
    exported = exported and any((out / name).is_file() for name in _WRITTEN)
    if not overwrite:
        fix = f"Give another --out{', or --overwrite' if exported else ''}."
        raise CheckpointError("this path already exists", where=where, fix=fix)
    if not exported:
        what = "--overwrite replaces what was exported before, and this was not"
        raise CheckpointError(what, where=where, fix="Give another --out.")
    if others := sorted(path.name for path in out.iterdir() if not _is_ours(path)):
        what = f"--overwrite would remove {listing(others)}, which no export has written"
        raise CheckpointError(what, where=where, fix="Move it away, or give another --out.")


def _is_ours(path: Path) -> bool:
    return path.name == _FOLDER if path.is_dir() else any(fnmatchcase(path.name, ours) for ours in _OURS)


def _source(experiment: Experiment, folder: RunFolder, form: Form, site: str | None) -> Path:
    """The folder that is handed over, or merged."""
    whole = experiment.model.trainable == "all"
    if whole and form == "adapter":
        fix = "Export it whole: --merged."
        raise ConfigError("all parameters were trained, so there is no adapter", where=str(folder.path), fix=fix)
    found = model_of(experiment, folder, site)
    if not whole:
        load_peft(found)  # so that no damaged one is handed over
    return found


def _card(
    experiment: Experiment, folder: RunFolder, source: Path, form: Form, site: str | None, said: Sequence[str]
) -> str:
    """The card of what the run has left, with what its record tells.

    Args:
        said: of just this, in paragraphs.
    """
    begun = given_as(form, (source / CARD).read_text(encoding="utf-8")).rstrip()
    parts = [*said]
    if form != "adapter" and experiment.model.quantization is not None:
        parts.append(_UNQUANTISED.format(experiment.model.quantization))
    if told := files.value(folder.path / OUTCOMES / CLASSIFIER, PatternWeights):
        parts.append(_CLASSIFIES.format(", ".join(map(decimal, told.weights))))
    method = " ".join((section(experiment.method.name).__doc__ or "").split())
    about = ["## This copy", *parts] if parts else []
    text = "\n\n".join([begun, *about, run_card(read(folder.path), method, site)])
    base = experiment.model.name
    return text.replace(base, Path(base).name) if form != "adapter" and Path(base).is_absolute() else text


def _merge(experiment: Experiment, folder: RunFolder, source: Path, place: Path, precision: Precision) -> None:
    """The base model with the adapter in its weights, or the model that was trained whole; and its tokenizer.

    The base is loaded without quantisation, in float32.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoTokenizer

    whole = experiment.model.trainable == "all"
    name = str(source) if whole else experiment.model.name
    model = models.load(name, experiment.model_task, "float32", "cpu", None).model
    if getattr(model, "is_quantized", False):
        what = "the base model is published quantised, and no adapter is merged into such weights"
        raise ConfigError(what, where=name, fix="Export it with --adapter.")
    with quiet():
        if not whole:
            require_same_base(folder, experiment)
            _untie(model, source)
            model = PeftModel.from_pretrained(model, str(source)).merge_and_unload()
        model.to(getattr(torch, precision)).save_pretrained(place)
        as_readable_as_config(place)
        tokenizer = AutoTokenizer.from_pretrained(source)
        name_ends(place, model, tokenizer)
        tokenizer.save_pretrained(place)


def _untie(model: Any, source: Path) -> None:
    """Give the output head a weight and bias of its own where an adapter is on it and it shares the embeddings'
    weight: merged into both, the adapter would change what the model reads, too."""
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    adapted = {name.removeprefix(PEFT_PREFIX).rpartition(".lora_")[0] for name in load_peft(source)[0]}
    # Asked in this order, since transformers does not know the head of every model.
    if any(model.get_submodule(name) is head for name in adapted) and head.weight is embeddings.weight:
        for name, shared in [*head.named_parameters()]:
            setattr(head, name, type(shared)(shared.detach().clone(), requires_grad=False))
        model.config.tie_word_embeddings = False


def _converter(named: Path | None) -> Path:
    found = shutil.which(CONVERTER) if named is None else str(named) if named.is_file() else None
    if found is None:
        what = f"llama.cpp's {CONVERTER} is not on the PATH" if named is None else f"there is no {named}"
        fix = (
            f"Give --converter llama.cpp/{CONVERTER}. It is in llama.cpp (github.com/ggml-org/llama.cpp), and in "
            "vendor/llama.cpp of what `pip download --no-deps --no-binary llama-cpp-python llama-cpp-python` fetches."
        )
        raise ConfigError(what, where="--gguf", fix=fix)
    return Path(found)


def _convert(script: Path, model: Path, out: Path, precision: Precision) -> None:
    """Have llama.cpp's converter write the file."""
    made = json.loads((model / "config.json").read_text(encoding="utf-8")).get("architectures") or []
    if any(name.endswith("ForMaskedLM") for name in made):
        what = "the model fills in blanks, and llama.cpp writes on from a prompt"
        raise ConfigError(what, where="--gguf", fix="Export it with --merged.")
    words = [sys.executable, str(script), str(model), "--outfile", str(out), "--outtype", GGUF_TYPES[precision]]
    ended = subprocess.run(words, capture_output=True, text=True)
    if ended.returncode or not out.is_file():
        said = "\n".join((ended.stderr or ended.stdout).splitlines()[-5:])
        what = f"llama.cpp's converter does not make a file of this model:\n{said}"
        raise ConfigError(what, where=str(script), fix="Its requirements.txt says what it needs.")
