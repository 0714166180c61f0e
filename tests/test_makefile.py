"""What make shows when it installs, and what it runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAKEFILE = ROOT / "Makefile"


def test_of_pip_only_errors_are_shown(tmp_path):
    text = MAKEFILE.read_text(encoding="utf-8")
    assert re.findall(r"^\t.*pip install.*$", text, re.MULTILINE) == []  # all through the one variable
    (options,) = re.findall(r"^INSTALL := \S+ -m pip install (.*?) -c \S+$", text, re.MULTILINE)
    # A package that is nowhere, and a local index that does not exist, of which pip warns.
    nowhere = ["--dry-run", "--no-index", "--find-links", str(tmp_path / "nowhere"), "murmura-that-is-nowhere"]
    command = [sys.executable, "-m", "pip", "install", *shlex.split(options), *nowhere]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    lines = (done.stdout + done.stderr).splitlines()
    assert lines and all(line.startswith("ERROR: ") for line in lines), lines


def test_results_are_made_by_the_commands_on_their_pages():
    command = ["make", "--dry-run", "results", "DATA=FOLDER"]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    made = {frozenset(line.replace(".venv/bin/", "").split()) for line in told.splitlines()}
    pages = sorted((ROOT / "docs" / "results").glob("*.md"))
    given = {
        (page.name, line)
        for page in pages
        for line in re.findall(
            r"^    ((?:python|murmura compare) [^#\n]*?)\s*$", page.read_text(encoding="utf-8"), re.MULTILINE
        )
        if "FILE" not in line
    }
    assert len(given) > 12 and [one for one in sorted(given) if frozenset(one[1].split()) not in made] == []
