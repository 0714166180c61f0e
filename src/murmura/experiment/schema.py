"""The JSON schema of an experiment file, for editors that complete and check TOML (``murmura schema``)."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Field, create_model

from murmura import methods
from murmura.experiment.config import Experiment

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """Every section with what its options mean; ``[method]`` is one of all methods, by its name.

    What only a run can find out, such as options that exclude one another, is not in it.
    """
    sections = [methods.section(name) for name in methods.METHODS]
    some: Any = Annotated[reduce(or_, sections), Field(discriminator="name")]
    every = create_model("Experiment", __base__=Experiment, method=(some, ...))
    found = every.model_json_schema()
    for place in found["properties"]["method"]["discriminator"]["mapping"].values():
        options = found["$defs"][place.removeprefix("#/$defs/")]
        options["required"] = sorted({*options.get("required", []), "name"})
    return {"$schema": DIALECT, **found}
