"""What make shows when it installs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

MAKEFILE = Path(__file__).parents[1] / "Makefile"


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
