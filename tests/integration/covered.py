"""Registers the method ``covering`` beside the built-in ones; called as a program, it is a worker that knows it."""

import sys
from pathlib import Path

from murmura import methods
from murmura.experiment import worker
from murmura.registry import Origin

LINE = {"covering": Origin("covering.config:CoveringConfig")}


def register():
    """Have the folder beside this file found as a package of its own, and add the line that every method has."""
    sys.path.insert(0, str(Path(__file__).parent))
    methods.METHODS.builtin.update(LINE)


if __name__ == "__main__":
    register()
    worker.main(int(sys.argv[1]))
