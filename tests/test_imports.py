"""Imports point down one list, and the command line starts without heavy libraries."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import murmura
from murmura.methods import METHODS

ORDER = (
    ("cli",),
    ("compare",),
    ("audit", "evaluate", "judge"),
    ("experiment",),
    ("methods",),
    ("augment",),
    ("personal",),
    ("report",),
    ("status",),
    ("tasks",),
    ("drafting",),
    ("measure",),
    ("federation",),
    ("synthesis",),
    ("model_runtime",),
    ("generation",),
    ("reading",),
    ("aggregation",),
    ("training",),
    ("resources",),
    ("retrieval",),
    ("privacy",),
    ("data",),
    ("models",),
    ("tracking",),
    ("runs",),
    (
        "config",
        "progress",
        "streams",
        "atomic",
        "finite",
        "harmless",
        "overlapping",
        "third_party",
        "precision",
        "registry",
        "units",
        "words",
        "errors",
    ),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
HEAVY = ("torch", "transformers", "sklearn", "datasets", "sentence_transformers", "matplotlib", "peft", "numpy")
HEAVY += ("scipy", "dp_accounting", "jinja2")

SOURCE = Path(murmura.__file__).parent


def test_imports_point_down_the_list():
    assert list(breaches(SOURCE)) == []


def test_neither_side_of_the_federation_knows_the_other():
    """Both stand on the wire alone, and so does the wire on neither."""
    known = {
        side: {
            name.split(".")[2]
            for path in (SOURCE / "federation" / side).glob("*.py")
            for name in modules(ast.parse(path.read_text(encoding="utf-8")), ("federation", side, path.stem))
            if name.startswith("murmura.federation.")
        }
        for side in ("server", "site", "wire")
    }
    assert known == {"server": {"server", "wire"}, "site": {"site", "wire"}, "wire": {"wire"}}


@pytest.mark.parametrize(
    ("side", "foreign"),
    [
        ("server_side", ("federation.site", "federation.engines.", "experiment.site", "experiment.simulation")),
        ("site_side", ("federation.server", "federation.engines.", "experiment.server", "measure.monitor", "report")),
    ],
)
def test_a_side_is_assembled_without_a_module_of_the_other(side, foreign):
    """Whatever the method: of what runs at the other side, all that a side has is the class that declares it."""
    classes = {path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.glob("methods/*/method.py")}
    named = {source.path.split(".")[2] for source in METHODS.builtin.values()}
    assert {name.split("/")[1] for name in classes} >= named
    needed = below(SOURCE, f"experiment/{side}", *classes)
    assert "murmura.federation.method" in needed and "murmura.measure.verbs" in needed
    assert [name for name in needed if name.removeprefix("murmura.").startswith(foreign)] == []


def test_what_a_module_needs_is_found_through_packages_and_functions(tmp_path):
    write(tmp_path, "__init__.py", "")
    write(tmp_path, "data/__init__.py", "from murmura.data.files import read")
    write(tmp_path, "data/files.py", "def read():\n    import murmura.errors")
    write(tmp_path, "data/hub.py", "")
    write(tmp_path, "errors.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import murmura.data.hub")
    write(tmp_path, "cli.py", "from murmura.data import hub")
    assert below(tmp_path, "cli") - {"murmura"} == {
        "murmura.cli",
        "murmura.data",
        "murmura.data.hub",
        "murmura.data.files",
        "murmura.errors",
    }


def test_no_two_modules_that_measure_stand_on_one_another():
    """Not even for a type checker."""
    needs = {}
    for path in (SOURCE / "measure").glob("*.py"):
        tree, module = ast.parse(path.read_text(encoding="utf-8")), ("measure", path.stem)
        found = [name for node in ast.walk(tree) if is_import(node) for name in modules(node, module)]
        needs[path.stem] = {name.split(".")[2] for name in found if name.startswith("murmura.measure.")} - {path.stem}
    order = list(TopologicalSorter(needs).static_order())  # raises CycleError
    assert order.index("labelled") < order.index("evaluation_set") < order.index("heldout") < len(order)


def test_every_part_has_a_place_in_the_list():
    parts = {path.stem for path in SOURCE.glob("*.py")} | {path.parent.name for path in SOURCE.glob("*/*.py")}
    assert parts - {"__init__", "__main__"} <= RANK.keys()


def test_an_upward_import_is_found_however_it_is_written(tmp_path):
    write(tmp_path, "data/files.py", "import murmura.training.bank")
    write(tmp_path, "data/hub.py", "from murmura import training")
    write(tmp_path, "data/deep/own.py", "from ...training import bank\nfrom .. import files")
    write(tmp_path, "errors.py", "def late():\n    from murmura.models import load")
    write(tmp_path, "training/bank.py", "from murmura.data import files\nfrom murmura import __version__")
    write(tmp_path, "models.py", "from murmura.nowhere import x")
    write(
        tmp_path,
        "streams.py",
        "import typing\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from murmura.cli import app\nelse:\n    from murmura.report import page\n"
        "if typing.TYPE_CHECKING:\n    import murmura.cli",
    )
    assert sorted(breaches(tmp_path)) == [
        "data/deep/own.py: training",
        "data/files.py: training",
        "data/hub.py: training",
        "errors.py: models",
        "models.py: nowhere",
        "streams.py: report",
    ]


def test_help_and_the_command_line_load_nothing_heavy():
    program = (
        "import sys\nfrom murmura.cli import app\n"
        "try:\n    app(['--help'], prog_name='murmura')\nexcept SystemExit as end:\n    assert end.code in (None, 0)\n"
        f"print('LOADED', *(name for name in {HEAVY!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Usage: murmura" in done.stdout
    assert done.stdout.splitlines()[-1].split() == ["LOADED"]


@pytest.mark.parametrize(
    ("modules", "loaded"),
    [("cli.audit", []), ("cli.report, murmura.report", ["numpy"]), ("cli.privacy, murmura.privacy", [])],
)
def test_what_parts_of_the_command_line_import_is_not_heavy(modules, loaded):
    program = f"import sys, murmura.{modules}\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == loaded


def test_the_names_that_murmura_exports_are_there_and_no_others():
    for name in murmura.__all__:
        assert getattr(murmura, name)
    assert murmura.Experiment.__name__ == "Experiment"
    assert callable(murmura.run)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        murmura.nothing  # noqa: B018


def breaches(source: Path) -> Iterator[str]:
    """Imports that do not point down, as ``file: part``; what only a type checker reads is free."""
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source).with_suffix("").parts
        if module in (("__init__",), ("__main__",)):
            continue
        for part in imported(ast.parse(path.read_text(encoding="utf-8")), module):
            if part != module[0] and RANK.get(part, -1) < RANK[module[0]]:
                yield f"{path.relative_to(source).as_posix()}: {part}"


def below(source: Path, *names: str) -> set[str]:
    """The modules, by their full names, that importing these leads to, and whatever their functions import."""
    found: set[str] = set()
    waiting = [f"murmura.{name.replace('/', '.')}" for name in names]
    while waiting:
        parts = waiting.pop().split(".")
        for length in range(1, len(parts) + 1):  # packages are imported before what is in them
            place = source.joinpath(*parts[1:length])
            path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            name = ".".join(parts[:length])
            if name not in found and path.exists():
                found.add(name)
                tree = ast.parse(path.read_text(encoding="utf-8"))
                waiting += [one for one in modules(tree, tuple(parts[1:length])) if one.startswith("murmura")]
    return found


def imported(tree: ast.AST, module: tuple[str, ...]) -> Iterator[str]:
    """The parts of murmura that a module imports, anywhere in it."""
    for name in modules(tree, module):
        top, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if top == "murmura" and part not in ("", "__version__"):
            yield part


def is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def modules(node: ast.AST, module: tuple[str, ...]) -> Iterator[str]:
    """What a module imports, by its full name, anywhere in it."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        package = ("murmura", *module)[: -node.level] if node.level else ()
        start = ".".join((*package, *([node.module] if node.module else [])))
        names = [f"{start}.{alias.name}" for alias in node.names]
    else:
        names = []
    yield from names
    for child in children(node):
        yield from modules(child, module)


def children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        yield from node.orelse
    else:
        yield from ast.iter_child_nodes(node)


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
