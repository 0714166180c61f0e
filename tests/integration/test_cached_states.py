"""With adapters in the last layers only, what the layers below compute is kept; no result of any method changes."""

import pytest
from safetensors.torch import load_file

from murmura.experiment.run import run
from murmura.methods.averaging import Averaging
from murmura.runs.folder import RunFolder
from tests.experiment import small
from tests.experiment.small import METHODS, texts
from tests.training.helpers import EPS, assert_close, assert_same

LAST = {"layers": "last 1", "rank": 2}
# What is kept is read where the model is: in training, in writing, record by record, and with words left out. What
# else methods do, they do with what comes of that.
CHOSEN = ("fedavg", "fewfedpit", "dplora", "lpfl")
TOO_SMALL = 3000  # bytes: for half of a record


@pytest.fixture
def go(tmp_path, deep_folder, no_page):
    """Runs a method so that it keeps so many bytes; returns its adapters, and what it measured."""
    small.write_data(tmp_path, {"heart": 4, "skin": 3})
    for k in range(2):
        rows = [{"text": one.text, "label": one.label} for one in texts(6, k + 1)]
        small.write_lines(tmp_path / "labelled" / f"ward {k}.jsonl", rows)
    small.write_lines(tmp_path / "public.jsonl", [{"text": one.text, "label": one.label} for one in texts(6, 9)])

    def trained(method, cache, name="run", *, resume=False, **options):
        is_lpfl = method.get("name") == "lpfl"
        made = small.experiment(
            tmp_path,
            deep_folder,
            {"rounds": 2} | method,
            lora=LAST,
            training={"eps": EPS, "epochs": 2},
            run={"cache_bytes": cache, "folder": str(tmp_path / name), **options},
            data={"train": "labelled", "heldout": "public.jsonl"} if is_lpfl else {},
            evaluation={"uploads": 0, "every": 2, "sample": 16 if is_lpfl else 1},
        )
        result = run(made, resume=resume, overwrite=not resume)
        assert not list(result.folder.rglob("states"))
        assert all(any(place.iterdir()) for place in (result.folder / "private").iterdir() if place.is_dir())
        files = sorted(result.folder.rglob("adapter_model.safetensors"))
        assert files
        state = {f"{n} {key}": value for n, file in enumerate(files) for key, value in load_file(file).items()}
        assert all("layers.1." in key for key in state)
        return state, result.rows[-1]["heldout_loss"]

    return trained


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_every_method_comes_to_the_same(go, name):
    kept, loss = go(METHODS[name], 2**20)
    small_kept, small_loss = go(METHODS[name], TOO_SMALL)
    assert_same(small_kept, kept)
    assert small_loss == loss
    whole, whole_loss = go(METHODS[name], 0)
    assert_close(kept, whole)
    assert loss == pytest.approx(whole_loss, rel=1e-4)


@pytest.mark.slow
def test_workers_keep_their_own(go, forked_workers):
    local, _ = go({}, 2**20)
    workers, _ = go({}, TOO_SMALL, "workers", engine="processes", workers=2)
    assert_close(workers, local)


def test_a_resumed_run_is_the_same_to_the_bit(go, monkeypatch):
    straight, loss = go({}, 2**20, "straight")

    class KilledError(Exception):
        """As a power cut would."""

    average = Averaging.average

    def killed(self, server, *asked):
        if server.round == 2:
            raise KilledError
        average(self, server, *asked)

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr(Averaging, "average", killed)
        go({}, 2**20, "resumed")
    resumed, resumed_loss = go({}, TOO_SMALL, "resumed", resume=True)
    assert_same(resumed, straight)
    assert resumed_loss == loss


def test_beyond_memory_a_sites_states_are_in_its_own_folder_while_the_run_goes_on(go, tmp_path, monkeypatch):
    seen = {}
    drop = RunFolder._drop_states

    def look(folder):
        for place in folder.private.glob("*/states"):
            assert place.stat().st_mode & 0o077 == 0
            seen[place.parent.name] = len(list(place.iterdir()))
        drop(folder)

    monkeypatch.setattr(RunFolder, "_drop_states", look)
    monkeypatch.setattr("murmura.federation.site.store.SiteStore._drop_states", lambda store: None)
    go({}, TOO_SMALL)
    assert seen.keys() == {"heart", "skin", "@run"}
    assert seen["heart"] in (3, 4) and seen["skin"] in (2, 3)
