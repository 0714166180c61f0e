"""A model known by its config and tokenizer alone: its shapes, without its weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from murmura import models
from murmura.errors import ModelError
from murmura.models.declared import is_masked, named
from murmura.models.quiet import line, quiet
from murmura.resources import KINDS, Kind


class OutOfReachError(ModelError):
    """The model seems to be named correctly, but is unavailable here and now."""


def config_and_tokenizer(name: str) -> tuple[Any, Any]:
    """As transformers reads them; of what is not on this machine, nothing else is fetched.

    Raises:
        OutOfReachError: neither this machine nor the hub has them.
        ModelError: there is no such folder, or they cannot be read.
    """
    from transformers import AutoConfig, AutoTokenizer

    alias = models.ALIASES.get(name)
    folder = Path(os.path.expanduser(name))
    is_folder = (folder / "config.json").is_file() or name.startswith((".", "~", os.sep))
    if is_folder:
        source = str(models.resolve(name))
    elif alias and (kept := models.cached(name)):
        source = str(kept)
    else:
        source = alias.hub if alias else name
    try:
        with quiet():
            config = AutoConfig.from_pretrained(source)
            return config, AutoTokenizer.from_pretrained(source, config=config)
    except Exception as error:  # whatever a library, or a file of somebody's own, does
        what = f"config and tokenizer of '{name}' are unavailable ({line(error).rstrip('.')})"
        if is_folder:
            raise ModelError(what) from error
        raise OutOfReachError(what, fix=f"'murmura models fetch {name}' gets the whole model.") from error


def skeleton_of(name: str, config: Any, kind: Kind) -> Any:
    """A model without numbers, on torch's meta device.

    Raises:
        ModelError: it is not of this kind.
    """
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    if kind == "causal" and is_masked(config):  # transformers would build it, with attention to both sides
        raise ModelError(f"is a masked language model ({named(config)}), not a causal one", where=name)
    auto: Any = {"encoder": AutoModel, "masked": AutoModelForMaskedLM, "causal": AutoModelForCausalLM}[kind]
    try:
        with torch.device("meta"), quiet():
            return auto.from_config(config)
    except Exception as error:  # as above
        raise ModelError(f"cannot be built as a {KINDS[kind]} ({line(error)})", where=name) from error
