"""What a plan looks like."""

import io

from rich.console import Console

from murmura.experiment.forecast.dry_run import DryRun, dry_run
from murmura.experiment.forecast.view import show
from tests.experiment.small import write_data, write_lines


def shown(found):
    console = Console(file=io.StringIO(), width=80, highlight=False)
    show(found, console)
    return console.file.getvalue()


def line(text, name):
    return next(each for each in text.splitlines() if each.strip().startswith(name))


def test_the_figures_are_there(make):
    some = {"method": {"sites_per_round": 1, "rounds": 4}, "evaluation": {"sample": 1}}
    text = shown(dry_run(make(model={"device": "cpu"}, **some)))
    assert "What the run 'small' would do. Nothing is trained or written." in text
    assert "FedAvg" in line(text, "method")
    assert line(text, "precision").split()[1:] == ["float32", "in", "training,", "float32", "in", "writing"]
    assert "4; sites in each: 1" in line(text, "rounds")
    assert "at most 2 to 3 a round" in line(text, "optimiser steps") and "in all" in line(text, "optimiser steps")
    assert "tokens to write" not in text and "at most 4, 5 times" in line(text, "tokens to measure")
    assert "at most 26, 5 times" in line(text, "records to attack")
    assert "224 parameters a site" in line(text, "trainable")
    assert "896 B a round, 3.58 kB in all" in line(text, "sent down")
    assert "896 B a round, 3.58 kB in all" in line(text, "sent up")
    for part in ("an estimate", "Python and libraries", "frozen base", "moments", "activations"):
        assert part in text
    assert line(text, "heart").split() == ["heart", "6", "6", "0", "0", "3"]
    assert line(text, "all 2").split() == ["all", "2", "9", "9", "0", "0", "5"]
    assert not text.partition(line(text, "all 2"))[0].splitlines()[-1].strip()  # an empty line sets it apart
    assert line(text, "train ").split()[:2] == ["train", "adapter"]
    assert "template 'alpaca'" in text and "### Instruction:" in text and "kidney" in text
    assert "Not known" not in text and text.count("To be noted") == 1


def test_where_all_of_the_model_trains_none_of_it_is_said_to_be_frozen(make):
    found = [shown(dry_run(make(model={"trainable": "all", "device": device}))) for device in ("cpu", "cuda")]
    texts = [" ".join(text.split()) for text in found]
    assert ["frozen base" in text for text in texts] == [False, False]
    assert ["other copies of the model" in text for text in texts] == [True, False]


def test_texts_that_need_no_template_are_said_to_be_as_they_are(make, tmp_path):
    for name in ("train", "heldout"):
        write_lines(tmp_path / f"{name}.jsonl", [{"text": f"{name} note {place} on hives"} for place in range(4)])
    data = {"kind": "document", "train": str(tmp_path / "train.jsonl"), "heldout": str(tmp_path / "heldout.jsonl")}
    text = shown(dry_run(make(data=data | {"sites": {"by": "partition", "count": 2}}, evaluation={"sample": 16})))
    assert line(text, "text").split()[:4] == ["text", "as", "it", "is,"] and "template" not in text


def test_what_is_not_known_is_a_dash_and_a_reason(make):
    text = shown(dry_run(make(model={"name": "nobody/nothing"})))
    for name in ("trainable", "sent down", "sent up", "memory", "disk"):
        assert line(text, name).split()[-1] == "–"
    assert line(text, "heart").split() == ["heart", "6", "–", "–", "–", "3"]
    assert "Not known here" in text and "murmura models fetch nobody/nothing" in " ".join(text.split())
    assert "To be noted" in text


def test_records_out_of_reach_leave_no_table_of_sites(make):
    hub = {"train": "nobody/nothing", "heldout": None, "heldout_records": 5}
    text = shown(dry_run(make(data=hub | {"sites": {"by": "column", "column": "owner"}})))
    assert "Sites" not in text
    assert "–" in line(text, "rounds") and "–" in line(text, "optimiser steps")


def test_many_sites_and_long_texts_are_cut(make, tmp_path, monkeypatch):
    write_data(tmp_path, {f"clinic-{k:02d}": 1 for k in range(30)})
    monkeypatch.setattr(DryRun, "example", "\n".join(["x" * 300] * 50))
    text = shown(dry_run(make()))
    assert "and 12 more" in text and "clinic-19" in text and "clinic-20" not in text
    assert line(text, "all 32").split()[2:4] == ["39", "39"]
    assert max(map(len, text.splitlines())) <= 120
    assert text.count("x" * 50) < 20
