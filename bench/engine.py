"""What it costs that sites are on machines of their own: rounds over Flower against workers of one machine, and against
an application on stock Flower.

Ways: (p) Murmura, worker processes; (f) Murmura over Flower, TLS and keys, each site a process of its own; (s) stock
Flower: its SuperLink and a SuperNode for each site, an application that loads model and adapter for every message, TLS
and keys too. All on this machine's loopback interface, one thread a site. The work of a round is the same: each site
trains on its records once, and an adapter travels there and back. Of (f) the bytes are told too that really went over
the sites' connections, in the whole run.

    python bench/engine.py                        # SmolLM2-135M, 4 sites, 2 steps of 4 x 64 tokens: all three ways
    python bench/engine.py --megabytes 4 20       # a tiny model with adapters of so many MB: (p) and (f)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tomli_w
from proxy import Proxy
from shapes import SHAPES, Shape, save_random, save_tokenizer

from murmura.federation.engines.flower import environment, free_port
from murmura.federation.engines.flower.bundle import command, project
from murmura.federation.engines.flower.certificates import new_local, node_key
from murmura.federation.engines.flower.child import Child
from murmura.models.locate import resolve

SITES = ("a", "b", "c", "d")
ROUNDS = 4
RECORDS = 8
TEXT = "the film is a long slow look at how people of one small town live and what becomes of them in the end"
ALONE = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
MURMURA = (sys.executable, "-m", "murmura")


def write(folder: Path, model: str, rank: int) -> Path:
    """An experiment with records of about 64 tokens."""
    words = TEXT.split()
    for place, site in enumerate((*SITES, "heldout")):
        texts = [" ".join(words[(number * 5 + place + k) % len(words)] for k in range(58)) for number in range(RECORDS)]
        path = folder / ("heldout.jsonl" if site == "heldout" else f"sites/{site}.jsonl")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps({"text": f"{site} {text}"}) + "\n" for text in texts))
    table = {
        "run": {"name": "engine"},
        "model": {"name": model, "device": "cpu"},
        "lora": {"rank": rank, "alpha": 2 * rank, "targets": ["q_proj", "v_proj"]},
        "data": {
            "train": "sites",
            "heldout": "heldout.jsonl",
            "heldout_records": 1,
            "max_length": 64,
            "kind": "document",
        },
        "training": {"batch_size": 4, "precision": "float32", "lr": 1e-3},
        "method": {"name": "fedit", "rounds": ROUNDS},
        "evaluation": {"every": ROUNDS, "uploads": 0, "attacks": False},
    }
    path = folder / "experiment.toml"
    path.write_text(tomli_w.dumps(table))
    return path


def murmura(*words: object, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        [*MURMURA, *map(str, words)], env={**os.environ, **ALONE, **(environment or {})}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"murmura {' '.join(map(str, words))}: {done.stderr[-2000:]}")


def rounds_of(folder: Path) -> list[dict[str, float]]:
    """What is told of the rounds between the first, in which models load, and the last, which is measured."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][2:-1]


def workers(folder: Path, experiment: Path) -> list[dict[str, float]]:
    run = folder / "p"
    threads = ("--set", f"run.workers={len(SITES)}")
    murmura("run", experiment, "--overwrite", "--set", f"run.folder={run}", "--set", "run.engine=processes", *threads)
    return rounds_of(run)


def deployed(folder: Path, experiment: Path) -> list[dict[str, float]]:
    federation, run, port = folder / "federation", folder / "f", free_port()
    line = Proxy(port)
    murmura("federation", "new", experiment, "--out", federation, "--address", f"127.0.0.1:{line.port}")
    for site in SITES:
        murmura("site", "init", federation / site)
    murmura("federation", "add", federation, *(federation / site / "public.json" for site in SITES))
    for site in SITES:
        murmura("site", "consent", federation / site)
    with ExitStack() as opened:
        for site in SITES:
            words = [*MURMURA, "site", "start", str(federation / site)]
            opened.callback(Child(site, words, {**os.environ, **ALONE}, folder / f"{site}.log").end)
        murmura("serve", federation, "--listen", f"127.0.0.1:{port}", "--set", f"run.folder={run}")
    line.close()
    rows = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    for way, carried in {"up": line.up, "down": line.down}.items():
        sent = sum(row[f"bytes_{way}"] for row in rows)
        told = f"{carried / 1e6:.2f} MB, {carried / sent:.3f} times the bytes of what was sent"
        print(f"    on the wire {way}, TLS and all: {told}")
    return rounds_of(run)


def stock(folder: Path, experiment: Path) -> list[dict[str, float]]:
    """Rounds of an application that is as such applications are (``way_stock.py``)."""
    home = folder / "stock"
    app = project(home / "app")
    config = tomllib.loads((app / "pyproject.toml").read_text())
    config["tool"]["flwr"]["app"]["components"] = {
        part: f"way_stock:{part[:-3]}_app" for part in ("serverapp", "clientapp")
    }
    (app / "pyproject.toml").write_text(tomli_w.dumps(config))
    tls, port = (home / "local.crt", home / "local.key"), free_port()
    new_local(*tls)
    there = {"address": f"127.0.0.1:{port}", "root-certificates": str(tls[0])}
    (home / "config.toml").write_text(tomli_w.dumps({"superlink": {"default": "there", "there": there}}))
    found = environment(home) | ALONE | {"PYTHONPATH": str(Path(__file__).parent)}
    del found["FLWR_SUPEREXEC_TASK_POLL_INTERVAL"]  # which is no part of what is stock
    os.environ["PYTHONPATH"] = found["PYTHONPATH"]
    told = {"model": str(resolve(tomllib.loads(experiment.read_text())["model"]["name"])), "folder": str(folder)}
    with ExitStack() as opened:
        link = ["flower-superlink", "--host", "127.0.0.1", "--port", str(port), "--enable-supernode-auth"]
        link += ["--ssl-certfile", str(tls[0]), "--ssl-keyfile", str(tls[1]), "--ssl-ca-certfile", str(tls[0])]
        link += ["--disable-runtime-dependency-installation"]
        opened.callback(Child("SuperLink", link, found, home / "log").end)
        time.sleep(15)
        for site in SITES:
            (home / f"{site}.pub").write_text(node_key(home / site))
            command(["flwr", "supernode", "register", str(home / f"{site}.pub"), "there"], home)
            node = ["flower-supernode", "--root-certificates", str(tls[0]), "--superlink", f"127.0.0.1:{port}"]
            node += [
                "--auth-supernode-private-key",
                str(home / site),
                "--host",
                "127.0.0.1",
                "--port",
                str(free_port()),
            ]
            node += ["--node-config", f'site="{site}"']
            opened.callback(Child(site, node, found, home / f"{site}.log").end)
        (home / "run.toml").write_text(tomli_w.dumps({"murmura": json.dumps(told)}))
        command(["flwr", "run", str(app), "there", "--run-config", str(home / "run.toml")], home)
        end, out = time.monotonic() + 900, folder / "stock.json"
        while not out.exists():
            if time.monotonic() > end:
                raise SystemExit(f"stock Flower has not ended; its logs are in {home}")
            time.sleep(1)
    return [{"wall": seconds} for seconds in json.loads(out.read_text())[1:]]


@contextmanager
def prepared(megabytes: float | None) -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if megabytes is None:
            yield folder, write(folder, "smollm2-135m", 16)
            return
        shape = Shape(**{**vars(SHAPES["tiny"]), "hidden": 256, "layers": 4})
        save_random(folder / "model", shape, "float32")
        save_tokenizer(folder / "model", TEXT)
        rank = round(megabytes * 1e6 / (4 * 4 * 2 * 2 * 256))
        yield folder, write(folder, str(folder / "model"), rank)


def main(options: argparse.Namespace) -> None:
    ways = {"p": workers, "f": deployed, "s": stock}
    for megabytes in options.megabytes or [None]:
        chosen = [way for way in options.ways if way != "s" or megabytes is None]
        print(
            f"\n{'SmolLM2-135M' if megabytes is None else f'{megabytes:g} MB'}: seconds of a round, {len(SITES)} sites"
        )
        seconds: dict[str, float] = {}
        for way in chosen:
            with prepared(megabytes) as (folder, experiment):
                rows = ways[way](folder, experiment)
            seconds[way] = statistics.median(row["wall"] for row in rows)
            sent = f"   {rows[0]['bytes_up'] / 1e6:.2f} MB up" if "bytes_up" in rows[0] else ""
            each = ", ".join(f"{row['wall']:.2f}" for row in rows)
            print(f"({way}) {seconds[way]:8.2f} s   of {each}{sent}", flush=True)
        if {"p", "f"} <= seconds.keys():
            more = seconds["f"] - seconds["p"]
            print(f"(f) over (p): {more:.2f} s a round, {more / len(SITES):.2f} s a round and site")
        if {"s", "f"} <= seconds.keys():
            print(f"(s) takes {seconds['s'] / seconds['f']:.2f} times as long as (f)")


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways", default="p,f,s", type=lambda text: text.split(","))
    parser.add_argument("--megabytes", type=float, nargs="+", help="adapters of so many MB, of a tiny model")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(parsed())
