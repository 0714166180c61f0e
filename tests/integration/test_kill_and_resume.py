"""A run that was killed, at whatever moment, and resumed ends as one that was never killed: bit for bit."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from filelock import FileLock

from murmura import Experiment
from murmura.federation.site.store import SiteStore
from murmura.methods.dplora.guarantee import plan
from murmura.runs.folder import RunFolder
from tests.augment.public import embedded_pool, public, save_encoder
from tests.federation.world import instructions

VICTIM = Path(__file__).with_name("victim.py")
EXPERIMENT = """
[run]
seed = 1
slots = 2
{run}
[model]
name = "{model}"
device = "cpu"
[lora]
rank = 2
alpha = 4
dropout = 0.1
[data]
train = "sites"
heldout = "heldout.jsonl"
template = "chat"
max_length = 96
[training]
lr = 0.02
batch_size = 2
[method]
rounds = 3
{method}
[evaluation]
every = 2
sample = 2
uploads = 1
{augment}
"""
AUGMENT = """
[augment]
pool = "pool"
records = 4
clusters = 2
alpha = 0
every = 2
focus = "hardest"
domain = "heart"
"""
# By algorithm, where runs are killed; several moments: killed again after it was resumed. See victim.py.
STORIES = {
    # the server remembers a momentum
    "fedavgm": [
        "train:1",  # after round 0, which is before training
        "write:1 write:4 train:1 write:2",  # a file is half written: before anything was saved, later, and again
        "rename:2 renamed:2",  # a checkpoint is whole but has no name yet; has one and the one before is still there
        "remove:1",  # the one before the one before is half removed
        "metrics:4",  # the last checkpoint is there, the last row of the metrics is not
        "describe:1 finish:1",  # before the first round; after the last
        "0.3 0.3 0.6",
        # the newest checkpoint is damaged: before the last round, while it is made good, and after the last round
        "train:3 flip:server.safetensors train:1 finish:1 flip:run.json",
    ],
    # the sites remember their control variates, the server its own
    "scaffold": ["write:7 train:1", "0.5", "train:3 flip:private/*/round-*"],
    # the server has told what it chose, the sites keep public records: killed as a choice is made, and as it is told,
    # when the sites have taken theirs; the same in the third round, when records are chosen again
    "augmented": ["send:1 told:2 train:1", "told:3 send:1"],
    # the sites keep their adapters
    "local": ["train:2 rename:2", "finish:2 flip:private/*/round-*"],
}
# Random moments: at a file that is synced to the disk, where all sites are in one process; at a message, where they are
# in worker processes, of the server, a worker, or both.
DRAWN = random.Random(20)
SYNCS = [f"sync@{DRAWN.random():.3f}" for _ in range(4)]
FRAMES = [f"{who}@{DRAWN.random():.3f}" for who in ("server", "worker", "both") * 2]
STORIES["scaffold"] += SYNCS[:2]
STORIES["local"] += SYNCS[2:]
STORIES["scaffold in workers"] = FRAMES[:3]
STORIES["local in workers"] = FRAMES[3:]
IN_WORKERS = 'engine = "processes"\nworkers = 2\nmin_replies = 2'  # of two: a round without one is another round
ALGORITHMS = {
    "fedavgm": 'name = "fedit"\nsites_per_round = 2\n[aggregation]\nserver = "fedavgm"',
    "scaffold": 'name = "fedit"\nsites_per_round = 2\n[aggregation]\nlocal = "scaffold"',
    "augmented": 'name = "fedit"\nsites_per_round = 2',
    "local": 'name = "local"\nsites_per_round = 2',
}
METHODS = {name: ALGORITHMS[name.split()[0]] for name in STORIES}
PROTECTED = 'name = "dplora"\nnoise_multiplier = 2.0\naccountant = "rdp"'
METHODS |= dict.fromkeys(("dplora", "dplora in workers"), PROTECTED)
# In the third round two uploads have reached the server, then one, then two again; then the round is done.
PRIVATE = {"dplora": ["upload:8 upload:1 upload:2"], "dplora in workers": ["server@0.6 worker@0.3"]}
PRIVATE["dplora in workers"] += [f"{who}@{DRAWN.uniform(0.3, 1):.3f}" for who in ("server", "worker", "both")]
PRIVATE["dplora in workers"] += [" ".join(f"{who}@{DRAWN.random():.3f}" for who in ("both", "server", "both"))]
UPLOADS = {"ward 0": 3 + 3, "ward 1": 3 + 3, "ward 2": 3}  # two sites train together, and spend together
FORKING = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}  # one thread only
TIMES = {"seconds", "at_sites", "wall", "peak_memory"}


pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # the first test makes all runs


@pytest.fixture(scope="module")
def runs(tmp_path_factory, llama_folder, tokenizer):
    """All runs, as {name: folder}, made once however many processes share the tests."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root /= "killed"
    with FileLock(f"{root}.lock"):
        if not (root / "made").exists():
            make(root, llama_folder, tokenizer)
            (root / "made").touch()
    return {name: root / name for name in METHODS}


def make(root, model, tokenizer):
    (root / "sites").mkdir(parents=True)
    embedded_pool(root / "pool", save_encoder(root / "encoder", tokenizer), public(12))
    for k in range(3):
        write(root / "sites" / f"ward {k}.jsonl", instructions(3 + k, seed=k + 1))
    write(root / "heldout.jsonl", instructions(3, seed=100))
    for name, method in METHODS.items():
        run = IN_WORKERS if "in workers" in name else ""
        augment = AUGMENT if name == "augmented" else ""
        (root / f"{name}.toml").write_text(EXPERIMENT.format(model=model, method=method, run=run, augment=augment))
    done = subprocess.run(
        [sys.executable, str(VICTIM), str(root)],
        input=json.dumps(STORIES | PRIVATE),
        text=True,
        capture_output=True,
        timeout=900,
        env=os.environ | FORKING,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def write(path, records):
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records))


def left_behind(folder):
    """Adapters, metrics, summary, sites of a run and what it has told of public records, without times."""
    files = sorted(folder.rglob("adapter_model.safetensors"))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    for row in [*rows, summary["final"], summary]:
        for name in TIMES & row.keys():
            del row[name]
    sites = json.loads((folder / "sites.json").read_text())
    told = [path.read_text() for path in folder.glob("augment.json")]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}, rows, summary, sites, told


def messages(folder):
    """How often each field of each verb has left a site, joining apart, which is asked each time that a run goes on."""
    rows = json.loads((folder / "disclosure.json").read_text())
    return {(row["verb"], row["field"]): row["messages"] for row in rows if row["verb"] != "join"}


@pytest.mark.parametrize("algorithm", STORIES)
def test_a_run_that_was_killed_ends_as_one_that_was_not(runs, algorithm):
    adapters, rows, *rest = left_behind(runs[algorithm] / "whole")
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert len(adapters) == (3 if algorithm.startswith("local") else 1)
    assert left_behind(runs[algorithm] / "again") == (adapters, rows, *rest)
    for number, story in enumerate(STORIES[algorithm]):
        killed = left_behind(runs[algorithm] / str(number))
        assert killed[0].keys() == adapters.keys(), story
        assert all(killed[0][name] == adapters[name] for name in adapters), f"{story}: another adapter"
        if not story.startswith("worker"):  # a worker that dies while a round is measured leaves figures out
            assert killed[1:] == (rows, *rest), story
            left, repeated = messages(runs[algorithm] / "whole"), messages(runs[algorithm] / str(number))
            assert left.keys() == repeated.keys() and all(repeated[field] >= left[field] for field in left), story


def test_every_upload_counts_though_its_round_was_lost(runs):
    folder = RunFolder(runs["dplora"] / "0")
    experiment = Experiment.load(folder.path / "config.toml")
    spent = []
    for size, (site, uploads) in enumerate(UPLOADS.items(), start=3):
        entered = SiteStore(folder.private_of(site), site).ledger.lines[1:]
        assert len(entered) == uploads and [line["round"] for line in entered][-1] == 3
        promised = plan(experiment.method, experiment.training, size)
        spent.append(promised.epsilon(uploads * promised.steps // 3, "rdp").value)
    assert messages(folder.path)["train_private", "adapter"] == 2 * 3 + 2 + 1 + 2 + 3
    _, rows, *_ = left_behind(folder.path)
    assert rows[-1]["epsilon"] == pytest.approx(max(spent)) and rows[-1]["privacy"]["refused"] is None
    whole = left_behind(runs["dplora"] / "whole")[1]
    assert [row["epsilon"] for row in rows[:3]] == [row["epsilon"] for row in whole[:3]]
    assert rows[-1]["epsilon"] > whole[-1]["epsilon"]


@pytest.mark.parametrize("number", range(len(PRIVATE["dplora in workers"])))
def test_every_upload_that_left_a_worker_counts_whenever_something_died(runs, number):
    """A site enters an upload before it leaves. So its ledger has every one that came, and ε is of all that it has."""
    folder = RunFolder(runs["dplora in workers"] / str(number))
    received = Counter(
        (runs["dplora in workers"].parent / f"dplora in workers {number}.uploads").read_text().split("\n")
    )
    experiment = Experiment.load(folder.path / "config.toml")
    spent = {}  # by site: ε after each of its uploads
    for size, site in enumerate(UPLOADS, start=3):
        promised = plan(experiment.method, experiment.training, size)
        entered = SiteStore(folder.private_of(site), site).ledger.lines[1:]
        assert len(entered) >= received[site]
        assert all(sum(one["steps"] for one in line["spent"]) == promised.steps // 3 for line in entered)
        counts = range(1, len(entered) + 1)
        spent[site] = [promised.epsilon(count * promised.steps // 3, "rdp").value for count in counts]
    assert sum(received.values()) - received[""] >= 3 * 2  # a worker's death may leave one site out
    last = left_behind(folder.path)[1][-1]
    assert last["privacy"]["refused"] is None
    most = max(one[-1] for one in spent.values() if one)
    if "worker" in PRIVATE["dplora in workers"][number]:  # one may be lost on its way, and counts as if it was not
        assert last["epsilon"] > most or last["epsilon"] == pytest.approx(most)
    else:
        assert last["epsilon"] == pytest.approx(most)


def test_nothing_but_the_last_two_checkpoints_is_left(runs):
    for name, folder in runs.items():
        kept = [] if name in PRIVATE else ["round-0002", "round-0003"]  # none, where privacy was promised
        for run in folder.iterdir():
            found = {path.name for path in (run / "checkpoint").iterdir()} - {
                "id",
                "reported.journal",
                "withheld.json",
                "sent.json",
            }
            assert sorted(found) == kept, run
            assert not [path for path in run.rglob("*") if path.name.endswith(".partial")], run
