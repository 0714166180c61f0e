"""What stands beside the code agrees with it."""

import re
import tomllib
from pathlib import Path

import yaml

import murmura
from murmura import __version__
from murmura.experiment import presets

ROOT = Path(__file__).parent.parent


def test_the_citation_names_this_version_and_licence():
    told = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert told["version"] == __version__ and told["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= told.keys() and all("name" in one for one in told["authors"])
    assert told["license"] in (ROOT / "pyproject.toml").read_text()


def test_the_changelog_has_this_version_and_what_is_to_come():
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert heads[0] == "Unreleased" and __version__ in heads


def test_hooks_run_what_make_runs():
    makefile = (ROOT / "Makefile").read_text()
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]  # nothing is fetched
    for hook in hooks[0]["hooks"]:
        program, *words = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        assert f"$(BIN)/{Path(program).name} {' '.join(words)}" in makefile, hook["entry"]


def test_experiments_of_papers_are_in_the_package_where_they_are_looked_for():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert build["force-include"] == {"examples/papers": f"murmura/{presets._PACKAGED.name}"}
    assert presets._PACKAGED.parent == Path(murmura.__file__).parent and presets.presets()


def test_links_between_documents_lead_somewhere():
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name}: {target}"
