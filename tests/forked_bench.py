"""Runs a benchmark whose processes are forks of this one, so that what takes long to import is imported once.

Called as ``forked_bench.py FILE``, where FILE holds the benchmarks to run as JSON: [[PROGRAM, OPTION, ...], ...].
Prints a list of what each of them printed, and its exit status, as JSON.
"""

import contextlib
import importlib
import io
import json
import os
import resource
import runpy
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

BENCH = Path(__file__).parents[1] / "bench"


class Fork:
    """As much of ``subprocess.Popen`` as the benchmarks use, for Python programs.

    Attributes:
        used: What the last one that was waited for used. Of all children together the system tells the peak of the
            largest only, and that may be another benchmark's.
    """

    used = None

    def __init__(self, command, env, stdout, stderr):
        self._process = os.fork()
        if self._process:
            return
        for number in (1, 2):
            os.dup2(stdout.fileno(), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        os.environ.update(env)
        sys.argv = list(command[1:])
        status = 1
        try:
            runpy.run_path(command[1], run_name="__main__")
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def wait(self):
        _, status, Fork.used = os.wait4(self._process, 0)
        return os.waitstatus_to_exitcode(status)


def main():
    sys.path.insert(0, str(BENCH))
    for name in ("opacus", "peft", "transformers.models.llama.modeling_llama", "murmura.experiment.run", "work"):
        importlib.import_module(name)
    measure = importlib.import_module("measure")
    measure.subprocess = SimpleNamespace(**vars(subprocess) | {"Popen": Fork})
    measure.resource = SimpleNamespace(**vars(resource) | {"getrusage": lambda _: Fork.used})
    measure.HAS_PSS = False  # which goes by the environment that a process began with: a fork's is this one's
    found = []
    for program, *options in json.loads(Path(sys.argv[1]).read_text()):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = importlib.import_module(program.removesuffix(".py")).main(options)
        found.append([printed.getvalue(), status])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
