"""``murmura export``: hand a run's model over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from click.core import ParameterSource

from murmura.cli.of_run import Run, Site
from murmura.errors import ConfigError


def export(
    context: typer.Context,
    run: Run,
    adapter: Annotated[bool, typer.Option("--adapter", help="As a PEFT folder.")] = False,
    merged: Annotated[
        bool, typer.Option("--merged", help="As a whole model for transformers, vLLM and others.")
    ] = False,
    gguf: Annotated[bool, typer.Option("--gguf", help="As a file for llama.cpp, made by its own converter.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where to. Default: NAME-FORM here.")
    ] = None,
    site: Site = None,
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"] | None,
        typer.Option("--precision", help="Of a whole model's weights. Default: float32."),
    ] = None,
    converter: Annotated[
        Path | None,
        typer.Option(
            "--converter",
            metavar="FILE",
            envvar="MURMURA_GGUF_CONVERTER",
            help="llama.cpp's convert_hf_to_gguf.py. Default: the one on the PATH.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what was exported there before.")] = False,
    canaries: Annotated[
        bool, typer.Option("--with-canaries", help="Also a model that was trained on an audit's random secrets.")
    ] = False,
) -> None:
    """Export a run's model as a self-contained folder, with tokenizer, chat template and a card.

    The card says what it was trained on, how good it is, what is guaranteed, what left the sites and what was attacked.
    """
    from murmura.experiment.export import export as hand_over

    forms: dict[Literal["adapter", "merged", "gguf"], bool] = {"adapter": adapter, "merged": merged, "gguf": gguf}
    chosen = [name for name, given in forms.items() if given]
    if len(chosen) != 1:
        raise ConfigError("one form is needed", where="export", fix="Give one of --adapter, --merged and --gguf.")
    if context.get_parameter_source("converter") == ParameterSource.COMMANDLINE and not gguf:
        raise ConfigError("only --gguf is made by a converter", where="--converter", fix="Remove it, or give --gguf.")
    [form] = chosen
    place = out or Path(f"{run.resolve().name}-{form}")
    made = hand_over(
        run, place, form, site=site, precision=precision, converter=converter, overwrite=overwrite, canaries=canaries
    )
    typer.echo(f"Written: {made}")
