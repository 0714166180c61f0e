"""Methods stand beside one another: what two of them share has a place of its own."""

import ast
from pathlib import Path

import pytest

from murmura import methods
from murmura.aggregation.config import AggregationConfig
from murmura.errors import ConfigError
from murmura.training.config import LocalTraining

FOLDERS = {path.parent.name for path in Path(methods.__file__).parent.glob("*/__init__.py")}
SHARED = {"site_level"}
NEEDED = {"pretext": {"public": "public.jsonl"}}  # what a method cannot do without


def test_every_folder_is_a_method_or_is_shared_by_methods():
    assert {source.path.split(".")[2] for source in methods.METHODS.values()} == FOLDERS - SHARED


def test_no_method_imports_another():
    found = [
        f"{path.parent.name}/{path.name}: {module}"
        for name in FOLDERS
        for path in (Path(methods.__file__).parent / name).glob("*.py")
        for module in imported(path)
        if module in FOLDERS - SHARED - {name}
    ]
    assert found == []


@pytest.mark.parametrize("name", sorted(FOLDERS - SHARED))
@pytest.mark.parametrize("noise", [None, 0.0, 1.0])
def test_a_method_that_promises_an_epsilon_has_a_plan_of_it(name, noise):
    table = {"name": name, **NEEDED.get(name, {})} | ({} if noise is None else {"noise_multiplier": noise})
    try:
        config = methods.parse_config(table, "experiment [method]")
    except ConfigError:
        assert noise is not None  # it has no such option
        return
    method = methods.build(config, AggregationConfig())
    assert (method.protects is None) == (method.guarantee([60, 50], LocalTraining()) is None)


def imported(path):
    """Folders of methods that a file imports from."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("murmura.methods."):
            yield node.module.split(".")[2]
