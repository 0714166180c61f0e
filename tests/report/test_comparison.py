import io

import pytest
from rich.console import Console

from murmura import report
from murmura.report.comparison import differences, sentences
from murmura.report.page import render
from murmura.report.run_facts import facts
from murmura.report.sections.results import results
from murmura.runs import read_all
from murmura.runs.schema import MeasuredOn, RecordSet
from tests.report.runs import metrics, rows_of, write_run

DATA = 'train = "/data/clinic/sites"\nheldout = "/data/clinic/heldout.jsonl"\ntemplate = "chat"\nmax_length = 256\n'
ALL = ("Held-out loss", "Held-out ROUGE-L", "Leakage (AUC)", "Leakage of single uploads (AUC)")


def measured(digest="a" * 64, count=32, others=None):
    heldout = RecordSet(count, digest)
    return MeasuredOn(heldout, RecordSet(count, others) if others else heldout, RecordSet(0, "none"))


def pair(tmp_path, first=None, second=None):
    """Two methods, the second one with what is given."""
    one = {"more": DATA, "measured": measured()} | (first or {})
    other = one | (second or {})
    return write_run(tmp_path / "a", **one), write_run(tmp_path / "b", method="FewFedPIT", **other)


def what(folders):
    return {one.what: one.figures for one in differences(rows_of(*folders))}


def test_runs_on_the_same_records_stand_side_by_side_without_a_word(tmp_path):
    folders = pair(tmp_path)
    assert what(folders) == {} and sentences(rows_of(*folders)) == []
    assert "≠" not in render(read_all(folders))


@pytest.mark.parametrize(
    ("second", "named", "figures"),
    [
        ({"measured": measured("b" * 64, others="a" * 64)}, "held-out records", ALL[:2]),
        ({"measured": measured(others="c" * 64)}, "non-members", ALL[2:]),
        ({"more": DATA.replace("256", "512")}, "tokens of a record at most", ALL),
        ({"more": DATA.replace("chat", "alpaca")}, "template", ALL),
        ({"more": DATA.replace("clinic/sites", "bank/sites")}, "sites’ records", ALL),
        ({"model": "other"}, "model, and with it what a token is", ALL[:1]),
        ({"more": DATA + "[evaluation]\nsample = 6\n"}, "questions that the model answers", ("Held-out ROUGE-L",)),
    ],
)
def test_what_is_not_the_same_is_named_with_the_columns_that_it_concerns(tmp_path, second, named, figures):
    assert what(pair(tmp_path, second=second)) == {named: figures}


def test_a_fall_of_the_loss_is_by_token_as_the_loss_is(tmp_path):
    fell = {"rows": [metrics(0), metrics(2, heldout_fall=0.25)]}
    (figures,) = what(pair(tmp_path, fell, {"model": "other"})).values()
    assert figures == ("Held-out loss", "Fall of the held-out loss")


def test_the_engine_and_the_machine_concern_time_and_memory_alone(tmp_path):
    folders = pair(tmp_path)
    text = (folders[1] / "config.toml").read_text()
    (folders[1] / "config.toml").write_text(text.replace("[run]\n", '[run]\nengine = "processes"\n'))
    told = (folders[1] / "environment.json").read_text()
    (folders[1] / "environment.json").write_text(told.replace('"cpu"', '"cuda: NVIDIA H100"'))
    assert what(folders) == {"machine": ("Wall time", "Peak memory"), "engine": ("Wall time", "Peak memory")}


def test_a_column_of_one_row_alone_is_compared_with_nothing(tmp_path):
    without = [metrics(2, heldout_rouge=None, attack_auc=None, upload_auc=None)]
    folders = pair(tmp_path, second={"rows": without, "more": DATA.replace("256", "512")})
    assert what(folders) == {"tokens of a record at most": ("Held-out loss",)}


def test_records_are_told_by_what_is_in_them_and_not_by_where_they_lie(tmp_path):
    moved = pair(tmp_path, second={"more": DATA.replace("heldout.jsonl", "copy.jsonl")})
    assert what(moved) == {}
    edited = pair(tmp_path / "edited", second={"measured": measured("b" * 64)})
    [heldout] = differences(rows_of(*edited))
    assert heldout.words == (
        f"Held-out records and non-members: 32 of clinic/heldout.jsonl: {'a' * 12} in FedAvg; "
        f"32 of clinic/heldout.jsonl: {'b' * 12} in FewFedPIT"
    )


def test_of_runs_that_do_not_say_what_they_were_measured_on_their_options_tell(tmp_path):
    older = {"measured": None}
    assert what(pair(tmp_path / "same", older)) == {}
    other = pair(tmp_path / "other", older, {"more": DATA.replace("heldout.jsonl", "other.jsonl")})
    assert what(other) == {"held-out records and non-members": ALL}
    drawn = pair(tmp_path / "drawn", older | {"more": f"{DATA}heldout_records = 20\n"}, {"seed": 1})
    assert what(drawn) == {"held-out records and non-members": ALL}


def test_seeds_that_draw_records_of_their_own_are_compared_seed_by_seed(tmp_path):
    folders = []
    for method in ("FedAvg", "FedProx"):
        for seed in (0, 1):
            told = {"more": f"{DATA}heldout_records = 20\n", "measured": measured(f"{seed}" * 64)}
            folders.append(write_run(tmp_path / f"{method}-{seed}", method, seed, **told))
    assert [len(row.runs) for row in rows_of(*folders)] == [2, 2]
    assert what(folders) == {}
    assert what(folders[:3]) == {"held-out records and non-members": ALL}


def test_terminal_and_markdown_say_so_below_the_table(tmp_path):
    rows = rows_of(*pair(tmp_path, second={"more": DATA.replace("256", "512")}))
    [sentence] = sentences(rows)
    assert sentence.startswith("Not to be compared from row to row: Held-out loss, Held-out ROUGE-L, Leakage")
    assert sentence.endswith("(AUC). Tokens of a record at most: 256 in FedAvg; 512 in FewFedPIT.")
    console = Console(file=io.StringIO(), width=500)
    report.show(rows, console)
    assert sentence in console.file.getvalue() and sentence in report.markdown(rows)


def test_the_page_warns_above_the_table_and_marks_the_columns(tmp_path):
    folders = pair(tmp_path, second={"more": DATA.replace("256", "512")})
    warning, table, *_ = results(rows_of(*folders)).blocks
    [item] = warning.items
    assert "256 in FedAvg; 512 in FewFedPIT." in item.text and table.marked == frozenset(ALL)
    assert render(read_all(folders)).count('<span class="alert">≠</span></th>') == len(ALL)


def test_the_head_names_the_data(tmp_path):
    more = f'{DATA}heldout_records = 20\n[data.sites]\nby = "file"\nrecords = 8\n'
    rows = rows_of(write_run(tmp_path / "a", more=more, measured=measured(count=20)))
    told = {
        "Data": "clinic/sites",
        "Sites": "2, a file each, 8 records at most",
        "Held-out records": "20 of clinic/heldout.jsonl, drawn with seed 0",
        "Read as": "template ‘chat’, 256 tokens at most",
    }
    assert facts(rows).items() >= told.items()


def test_what_a_run_was_run_with_is_in_its_name(tmp_path):
    added = '[augment]\nstrategy = "feddca"\n[aggregation]\nsecure = true\n'
    folders = [write_run(tmp_path / "plain"), write_run(tmp_path / "augmented", more=added)]
    engine = write_run(tmp_path / "engine")
    text = (engine / "config.toml").read_text()
    (engine / "config.toml").write_text(text.replace("[run]\n", '[run]\nengine = "processes"\n'))
    assert [row.label for row in rows_of(*folders)] == ["FedAvg", "FedAvg + feddca, secure sums"]
    assert [row.label for row in rows_of(folders[0], engine)] == [
        "FedAvg (run.engine = –)",
        "FedAvg (run.engine = processes)",
    ]
