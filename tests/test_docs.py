"""The index of equations in docs/methods/index.md names what there is, and what it names cites its paper."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAD = "## Where each equation is"
AUTHOR = re.compile(r"\b([A-Z][\w-]+)(?: et al\.| and [A-Z]\w+)? \d{4}")  # "Zhang et al. 2024", "Honaker 2015"


def rows():
    """(heading, what the row says, file, names) of each row of the index."""
    index = (ROOT / "docs" / "methods" / "index.md").read_text().split(HEAD)[1].split("\n## ")[0]
    found, heading = [], ""
    for line in index.splitlines():
        if line.startswith("### "):
            heading = line[4:]
        elif line.startswith("| ") and "`" in line.rsplit("|", 2)[1]:
            said, where = line.strip("|").rsplit("|", 1)
            file, *names = re.findall(r"`([^`]+)`", where)
            found.append((heading, said, file, names))
    return found


def defined(tree, name):
    """The definition of ``function`` or ``Class.method``, and the docstrings that speak for it; None if missing."""
    documented, node = [tree], tree
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef)
        node = next((child for child in node.body if isinstance(child, kinds) and child.name == part), None)
        if node is None:
            return None
        documented.append(node)
    return " ".join(ast.get_docstring(one) or "" for one in documented)


def test_the_index_is_read():
    assert len(rows()) > 60
    assert all(names for _, _, _, names in rows())


@pytest.mark.parametrize(("heading", "said", "file", "names"), rows())
def test_what_the_index_names_exists_and_cites_the_paper(heading, said, file, names):
    tree = ast.parse((ROOT / "src" / "murmura" / file).read_text())
    authors = AUTHOR.findall(said) or AUTHOR.findall(heading)
    assert authors, "a row of an index without a source"
    for name in names:
        docstrings = defined(tree, name)
        assert docstrings is not None, f"{file} has no {name}"
        assert any(author in docstrings for author in authors), f"{file}: {name} does not cite {authors}"


def test_modules_that_pages_name_are_there():
    there = [f"/{path.relative_to(ROOT)}" for path in ROOT.rglob("*.py")]
    for page in [*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"`(\w+/[\w/]+\.py)`", page.read_text()):
            assert any(path.endswith(f"/{name}") for path in there), f"{page.name}: {name}"


def test_no_part_of_the_repository_speaks_of_a_specification_that_it_does_not_hold():
    for path in [
        *ROOT.glob("*.md"),
        *(p for d in ("src", "docs", "tests", "bench", "examples") for p in (ROOT / d).rglob("*")),
    ]:
        if path.suffix in (".py", ".md", ".toml", ".j2") and path != Path(__file__):
            assert not re.search(r"\bspec(ification)?s? §|methods specification", path.read_text()), path
