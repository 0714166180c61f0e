"""What trackers hold after a run, read back by their own libraries."""

import struct
import sys
import time
from types import SimpleNamespace

import pytest

from murmura.tracking.mlflow import MLflow
from murmura.tracking.sink import Tracked
from murmura.tracking.tensorboard import TensorBoard
from murmura.tracking.wandb import WeightsAndBiases

ROWS = {0: {"loss": 2.5, "seconds/train": 0.5}, 1: {"loss": 2.25}, 2: {"loss": 2.0}}
BLOCK = 32768  # of LevelDB's log
OPTIONS = {"method.name": "fedit", "training.lr": "0.0003"}


def told(sink, folder):
    """A run that is stopped after its second round and resumed."""
    for rows, after, report in (((0, 1), -1, None), ((2,), 1, folder / "report.html")):
        made = sink(Tracked("0123456789abcdef", "my run", "flock", folder, None, OPTIONS, after))
        for round in rows:
            made.log(round, ROWS[round])
        made.close(report)
        if sink is WeightsAndBiases and after == -1:
            time.sleep(1.1)  # its folders are called by the second in which they are made


def test_tensorboard_has_a_scalar_of_each_round(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told(TensorBoard, tmp_path)
    [place] = (tmp_path / "tensorboard").iterdir()
    found = EventAccumulator(str(place)).Reload()
    assert [(one.step, one.value) for one in found.Scalars("loss")] == [(0, 2.5), (1, 2.25), (2, 2.0)]
    assert [one.value for one in found.Scalars("seconds/train")] == [0.5]
    texts = [found.Tensors(f"{name}/text_summary")[-1].tensor_proto.string_val[0] for name in ("options", "report")]
    assert b"| training.lr | 0.0003 |" in texts[0] and texts[1].endswith(b"report.html")


@pytest.mark.slow
def test_mlflow_has_one_run_with_options_and_figures(tmp_path):
    from mlflow.tracking import MlflowClient

    told(MLflow, tmp_path)
    client = MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    [run] = client.search_runs([client.get_experiment_by_name("flock").experiment_id])
    assert run.data.params == OPTIONS and run.info.run_name == "my run" and run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(one.step, one.value) for one in history] == [(0, 2.5), (1, 2.25), (2, 2.0)]
    assert run.data.tags["murmura.report"] == str(tmp_path / "report.html")


@pytest.mark.slow
def test_mlflow_takes_figures_and_options_whatever_they_are_called_to_a_store_that_is_given(tmp_path):
    """As figures of lm-evaluation-harness are, by its filters, and a user's own labels."""
    from mlflow.tracking import MlflowClient

    options = {"verbaliser.C++": "a", "verbaliser.C--": "b", "verbaliser.C__": "c", "verbaliser.R&D": "d"}
    uri = f"sqlite:///{tmp_path / 'my.db'}"
    made = MLflow(Tracked("0123456789abcdef", "my run", "flock", tmp_path, uri, options))
    made.log(1, {"gsm8k.exact_match,strict-match": 0.5, "loss": 2.0})
    made.close(tmp_path / "report.html")
    client = MlflowClient(uri)
    [run] = client.search_runs([client.get_experiment_by_name("flock").experiment_id])
    assert run.data.params == {
        "verbaliser.C__": "a",
        "verbaliser.C--": "b",
        "verbaliser.C___2": "c",
        "verbaliser.R_D": "d",
    }
    assert run.data.metrics == {"gsm8k.exact_match_strict-match": 0.5, "loss": 2.0} and run.info.status == "FINISHED"


@pytest.mark.slow
def test_wandb_has_the_same_run_offline(tmp_path, monkeypatch):
    """Two parts of one run, each a file that `wandb sync` sends."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    made, init = [], wandb.init
    monkeypatch.setattr(wandb, "init", lambda **options: made.append(init(**options)) or made[-1])
    told(WeightsAndBiases, tmp_path)
    assert [one.settings.program for one in made] == ["murmura"] * 2  # which is not in the file, but sent with it
    parts = sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert [part.stem for part in parts] == ["run-0123456789abcdef"] * 2
    until = time.monotonic() + 60  # a process of its own writes, the end of a run after `finish` returns
    while sum(record.WhichOneof("record_type") == "exit" for part in parts for record in read(part)) < 2:
        assert time.monotonic() < until
        time.sleep(0.05)
    records = [record for part in parts for record in read(part)]
    [run, *_] = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    options = {item.key: item.value_json for item in run.config.update}
    assert run.project == "flock" and run.display_name == "my run" and options["method.name"] == '"fedit"'
    rows = [
        {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert [(int(row["_step"]), float(row["loss"])) for row in rows] == [(0, 2.5), (1, 2.25), (2, 2.0)]
    kinds = {record.WhichOneof("record_type") for record in records}
    assert not run.host and not kinds & {"files", "stats", "output", "output_raw"}  # nothing of the machine


def test_wandb_has_in_its_summary_what_it_is_told_of_a_round_again(tmp_path, monkeypatch):
    """Its server takes nothing more of a step that it has, as an ε that counts more by now."""
    steps, summary = {1: {"epsilon": 1.0}}, {"epsilon": 1.0}

    def log(figures, step):
        if step > max(steps):
            steps[step] = figures
            summary.update(figures)

    made = SimpleNamespace(log=log, summary=summary)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Settings=dict, init=lambda **options: made))
    sink = WeightsAndBiases(Tracked("0123456789abcdef", "my run", "flock", tmp_path, None, OPTIONS, 1))
    sink.log(1, {"epsilon": 2.0})
    assert summary["epsilon"] == 2.0 and steps[1] == {"epsilon": 1.0}
    sink.log(2, {"epsilon": 3.0})
    assert summary["epsilon"] == steps[2]["epsilon"] == 3.0


def read(path):
    """The records of a file in LevelDB's log format, behind wandb's header of 7 bytes."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = BLOCK - at % BLOCK
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # all of a record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""
