"""A server and three sites as processes of their own, of which one is killed at some moment, or all are cut off.

    python -m tests.integration.deployed --runs 20

kills a site, the server or Flower's SuperLink in each of so many runs, at a moment that is drawn, starts what an
operator would start again, and tells how each run ended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.proxy import Proxy
from murmura import Experiment
from murmura.federation.engines.flower import free_port
from tests.experiment.deployed import founded
from tests.experiment.small import write_data

SITES = {"heart": 4, "skin": 3, "lung": 2}
VICTIMS = ("site", "server", "superlink")
ROUNDS = 6
DEADLINE = 300
MURMURA = (sys.executable, "-m", "murmura")
EXPERIMENT = """\
[run]
name = "deployed"
[model]
name = "{model}"
[lora]
rank = 2
[data]
train = "sites"
heldout = "heldout.jsonl"
max_length = 128
[training]
batch_size = 2
[method]
name = "fedit"
rounds = {rounds}
[evaluation]
sample = 1
uploads = 0
attacks = false
every = {rounds}
"""
ENVIRONMENT = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Deployment:
    """Everything of one run, in a folder.

    Args:
        model: folder of a causal model.
    """

    def __init__(self, folder, model, patience=10):
        write_data(folder, SITES)
        (folder / "experiment.toml").write_text(EXPERIMENT.format(model=model, rounds=ROUNDS))
        self.folder, self.federation, self.run = folder, folder / "federation", folder / "run"
        self.processes, self.port, self.patience = {}, free_port(), patience
        self.line = Proxy(self.port)
        founded(Experiment.load(folder / "experiment.toml"), self.federation, f"127.0.0.1:{self.line.port}")

    def start(self, who, *options):
        """Start a site, or the server."""
        words = ("site", "start", f"federation/{who}")  # as people write it
        if who == "server":
            changes = ("--set", f"run.folder={self.run}", "--set", "run.answer_seconds=200")
            listen = ("--listen", f"127.0.0.1:{self.port}", "--patience", self.patience)
            words = ("serve", "federation", *changes, *listen, *options)
        with (self.folder / f"{who}.log").open("ab") as log:
            command = [*MURMURA, *map(str, words)]
            self.processes[who] = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT, cwd=self.folder)

    def kill(self, victim):
        """Kill -9, and start again what an operator would."""
        if victim == "superlink":
            mark = str(self.federation / "server" / "flower" / "state.db")
            for pid in with_word(mark):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        who = next(iter(SITES)) if victim == "site" else "server"
        self.processes[who].send_signal(signal.SIGKILL)
        self.processes[who].wait()
        time.sleep(1)
        self.start(who, *(["--resume"] if who == "server" and (self.run / "checkpoint").exists() else []))

    def lines(self):
        """What is told of each round."""
        path = self.run / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rounds(self):
        return [line["round"] for line in self.lines()]

    def wait(self, until):
        """Wait for something, or for the run's end; it must not take for ever."""
        end = time.monotonic() + DEADLINE
        while not until() and self.processes["server"].poll() is None:
            assert time.monotonic() < end, f"it hangs: {self.told('server')}"
            time.sleep(0.2)

    def told(self, who):
        return (self.folder / f"{who}.log").read_text(errors="replace")[-3000:]

    def close(self):
        self.line.close()
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
        end = time.monotonic() + 20
        while left := with_word(str(self.federation)):
            assert time.monotonic() < end, f"processes are left: {left}"
            time.sleep(0.5)


@contextmanager
def deployment(folder, model, patience=10):
    made = Deployment(folder, model, patience)
    try:
        yield made
    finally:
        made.close()


def with_word(word):
    """Processes with a word on their command line."""
    found = subprocess.run(["pgrep", "-f", word], capture_output=True, text=True, check=False).stdout
    return [int(pid) for pid in found.split() if int(pid) != os.getpid()]


def trial(folder, model, victim, round, after):
    """One run; returns what there is to tell of it.

    Args:
        round: after which the victim is killed.
        after: so many seconds later.
    """
    with deployment(folder, model) as one:
        for who in ("server", *SITES):
            one.start(who)
        one.wait(lambda: round in one.rounds())
        begun = time.monotonic()
        time.sleep(after)
        assert one.processes["server"].poll() is None, "the run was over before anybody was killed"
        one.kill(victim)
        one.wait(lambda: False)
        status = one.processes["server"].wait()
        rounds, took = one.rounds(), time.monotonic() - begun
        finished = (one.run / "summary.json").exists()
        assert status == 0 and finished and rounds == list(range(ROUNDS + 1)), one.told("server")
        events = [event for line in one.lines() for event in line.get("events", ())]
    told = f"{victim} killed {after:.1f} s after round {round}: all {ROUNDS} rounds, {took:.0f} s more"
    return "; ".join([told, *events])


def cut_off(folder, model, round, seconds):
    """One run in which no site can be reached for so long; returns what went otherwise than planned."""
    with deployment(folder, model, patience=2 * seconds) as one:
        for who in ("server", *SITES):
            one.start(who)
        one.wait(lambda: round in one.rounds())
        one.line.cut()
        time.sleep(seconds)
        assert one.processes["server"].poll() is None, "the run was over before anything was cut"
        before = one.rounds()
        one.line.mend()
        one.wait(lambda: False)
        assert one.processes["server"].wait() == 0 and one.rounds() == list(range(ROUNDS + 1)), one.told("server")
        assert before[-1] < ROUNDS, before
        return [event for line in one.lines() for event in line.get("events", ())]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from tests import conftest

    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        tokenizer = conftest.tokenizer.__wrapped__()
        conftest.make_llama(tokenizer).save_pretrained(model)
        tokenizer.save_pretrained(model)
        for number in range(options.runs):
            victim, round, after = VICTIMS[number % len(VICTIMS)], rng.randrange(ROUNDS - 1), rng.uniform(0, 4)
            one = Path(folder) / str(number)
            one.mkdir()
            print(f"{number + 1}: {trial(one, model, victim, round, after)}", flush=True)


if __name__ == "__main__":
    main()
