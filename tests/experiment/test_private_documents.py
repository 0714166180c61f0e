"""Whole runs on documents under differential privacy: one document, whatever its length, is one record."""

import json

import pytest
import torch

from murmura.data.records import Document
from murmura.experiment.run import run
from murmura.federation.site.store import SiteStore
from murmura.methods.dpfedavg.method import plan as dpfedavg_plan
from murmura.methods.dpftrl.method import plan as dpftrl_plan
from murmura.methods.dplora.guarantee import plan as dplora_plan
from murmura.privacy import odometer, run_ledgers
from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.runs.folder import RunFolder
from murmura.streams import Stream
from murmura.training.adapter import load_peft, subtract
from murmura.training.loop import train
from tests.experiment.small import context, experiment, write_lines
from tests.training.helpers import assert_close

pytestmark = pytest.mark.usefixtures("no_page")

MAX_LENGTH = 32
SHORT, LONGER = "the rash", "the patient takes the dose with food and calls the clinic"
CUT = " ".join(f"visit {number} the patient asks about the red rash and the blood test" for number in range(9))
SITES = {"heart": [SHORT, LONGER, CUT], "skin": [f"{word} {LONGER}" for word in ("help", "soon", "red", "no")]}
LR, ROUNDS, NOISE = 0.5, 2, 1.5
SGD = {"optimizer": "sgd", "schedule": "constant", "max_steps": 1, "batch_size": 3, "lr": LR}
SITE_LEVEL = {
    "dpfedavg": ({"name": "dpfedavg", "sampler": {"kind": "poisson", "sites_per_round": 1}}, dpfedavg_plan),
    "dpftrl": ({"name": "dpftrl", "noise": {"restart_every": 2}}, dpftrl_plan),
}


@pytest.fixture
def make(tmp_path, llama_folder):
    def build(method, sites=SITES, **sections):
        for name, texts in sites.items():
            write_lines(tmp_path / "sites" / f"{name}.jsonl", [{"text": text} for text in texts])
        write_lines(tmp_path / "heldout.jsonl", [{"text": "the letter is about the kidney"}])
        data = {"kind": "document", "max_length": MAX_LENGTH}
        return experiment(
            tmp_path,
            llama_folder,
            {"rounds": ROUNDS} | method,
            data=data,
            evaluation={"sample": 16, "uploads": 2},
            **sections,
        )

    return build


def adapters(chosen, folder):
    """The adapter before the first round and after the last one, and the tools of the run."""
    place = context(chosen)
    return place.model.bank.initial(Stream(chosen.run.seed) / "adapter"), load_peft(folder / "adapter")[0], place


def length(state):
    return torch.cat([tensor.flatten() for tensor in state.values()]).norm()


# ---- a record is a document -----------------------------------------------------------------------------------------


def test_each_document_is_clipped_as_a_whole(make):
    """By hand: the gradient of each document's mean token loss, shortened to C; their mean; one step."""
    norm = 0.05
    chosen = make(
        {"name": "dplora", "noise_multiplier": 0.0, "sampler": "fixed", "rounds": 1},
        {"heart": SITES["heart"]},
        training=SGD | {"clip": norm},
    )
    start, end, place = adapters(chosen, run(chosen).folder)
    items = place.runtime("site").tokenise_fitting(map(Document, SITES["heart"]))
    assert len({len(item.ids) for item in items}) == 3 and [item.truncated for item in items] == [False, False, True]
    alone = chosen.training.model_copy(update={"batch_size": 1, "clip": 0.0})
    gradients = [
        {name: -step / LR for name, step in subtract(trained.state, start).items()}
        for item in items
        for trained in train(place.model.bank, [[item]], [start], alone, LR, [Stream(0)])
    ]
    assert all(length(gradient) > norm for gradient in gradients)
    clipped = [{name: tensor * norm / length(one) for name, tensor in one.items()} for one in gradients]
    expected = {name: start[name] - LR * sum(one[name] for one in clipped) / len(clipped) for name in start}
    assert_close(end, expected, atol=1e-6)


def test_each_site_s_ledger_has_every_step_on_documents(make):
    chosen = make({"name": "dplora", "noise_multiplier": NOISE, "accountant": "rdp"}, training=SGD | {"clip": 1.0})
    result = run(chosen)
    spent = []
    for name, texts in SITES.items():
        planned = dplora_plan(chosen.method, chosen.training, len(texts))
        journal = SiteStore(RunFolder(result.folder).private_of(name), name).ledger
        assert len(journal.lines) == 1 + ROUNDS
        ledger = PrivacyLedger(planned, journal)
        assert planned.steps == ROUNDS
        assert ledger.epsilon("rdp").value == pytest.approx(planned.epsilon(accountant="rdp").value)
        spent.append(ledger.epsilon("rdp").value)
    told = result.rows[-1]["privacy"]
    assert told["epsilon"] == pytest.approx(max(spent)) and (told["unit"], told["refused"]) == ("record", None)
    left = run_ledgers.read(result.folder)
    assert set(left.sites) == set(SITES) and all(left.records.values()) and not left.damaged
    assert odometer.together([left], "record").value <= told["epsilon"]  # by the tightest accountant
    released = json.loads((result.folder / "disclosure.json").read_text())
    assert {row["field"] for row in released if row["verb"] == "train_private"} == {"adapter", "privacy"}


# ---- a site is all its documents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SITE_LEVEL)
def test_the_server_s_ledger_has_every_round_on_documents(make, name):
    method, plan_of = SITE_LEVEL[name]
    chosen = make(method | {"noise_multiplier": NOISE, "accountant": "rdp"})
    result = run(chosen)
    journal = Journal(result.folder / "checkpoint" / "privacy.journal")
    planned = plan_of(chosen.method, len(SITES))
    assert len(journal.lines) == 1 + ROUNDS
    told = result.rows[-1]["privacy"]
    assert told["epsilon"] == pytest.approx(planned.epsilon(accountant="rdp").value)
    assert PrivacyLedger(planned, journal).epsilon("rdp").value == pytest.approx(told["epsilon"])
    left = run_ledgers.read(result.folder)
    assert set(left.records) == set(SITES) and all(left.records.values())
    assert odometer.together([left], "site").value <= told["epsilon"]
    assert (told["unit"], told["refused"]) == ("site", None)


@pytest.mark.parametrize("name", ["dpfedavg", "dpftrl"])
def test_a_site_moves_the_model_by_its_norm_at_most_however_long_its_documents_are(make, name):
    """Two sites whose clipped updates are divided by two: one round moves the model by C at most."""
    norm, options = 0.01, {"momentum": 0.0} if name == "dpfedavg" else {}
    chosen = make({"name": name, "noise_multiplier": 0.0, "clip_norm": norm, "rounds": 1, **options})
    start, end, place = adapters(chosen, run(chosen).folder)
    bench, updates = place.runtime("site"), []
    for site, texts in SITES.items():
        shard = bench.tokenise_fitting(map(Document, texts))
        stream = Stream(chosen.run.seed) / "round" / 1 / "private" / site
        [trained] = train(place.model.bank, [shard], [start], chosen.training, chosen.training.lr, [stream])
        updates.append(subtract(trained.state, start))
    assert all(length(update) > norm for update in updates)
    moved = {name: sum(one[name] * norm / length(one) for one in updates) / 2 for name in start}
    assert_close(subtract(end, start), moved, atol=1e-6)
    assert length(moved) <= norm
