"""Bars, lines and phase times."""

import json
import time

import pytest

from murmura import progress
from murmura.progress import bar, collect_phases, discreet, forget, once, phase, relay, say, show


@pytest.fixture
def often(monkeypatch):
    """A line for every step, instead of one now and then."""
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    yield
    assert progress._progress is None  # whatever happened, the display has been stopped


def test_lines_where_there_is_no_terminal(often, capsys):
    with bar("train", 3) as handle:
        handle.advance()
        handle.advance(2)
    with bar("fetch") as handle:
        handle.advance(0.5)
    say("round 1: [done]")
    lines = capsys.readouterr().err.splitlines()
    for line in lines:
        time.strptime(line[:19], "%Y-%m-%d %H:%M:%S")
    assert lines[0][19:].startswith(" train: 1/3, 0:0")  # what is left of a moment
    assert [line[19:] for line in lines[1:]] == [" train: 3/3, 0:00 left", " fetch: 0.5", " round 1: [done]"]


def test_lines_for_programs_are_objects(often, monkeypatch, capsys):
    monkeypatch.setenv("MURMURA_LOG", "json")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)  # not even a terminal is drawn on
    with bar("train", 4) as handle:
        handle.advance()
    say("said\nin two lines", event="round", round=1, epsilon=None)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("seconds_left") >= 0 and first.pop("time") and second.pop("time")
    assert first.pop("message").startswith("train: 1/4")
    assert first == {"event": "progress", "done": 1, "total": 4}
    assert second == {"message": "said\nin two lines", "event": "round", "round": 1}


def test_where_times_are_secret_objects_have_none(monkeypatch, capsys):
    monkeypatch.setenv("MURMURA_LOG", "json")
    aside = []
    with discreet(aside.append):
        say("round 1", public=True, round=1)
        say("who was asked")
    assert json.loads(capsys.readouterr().err) == {"message": "round 1", "round": 1} and len(aside) == 1


def test_of_blocks_that_overlap_none_ends_another(capsys):
    """Two runs in threads: what one keeps secret stays so when the other has ended; what comes later is neither's."""
    first, second = [], []
    begun, other = discreet(first.append), discreet(second.append)
    with once():
        begun.__enter__()
        other.__enter__()
        begun.__exit__(None, None, None)
        say("who was asked")
        assert capsys.readouterr().err == "" and len(second) == 1 and first == []
        other.__exit__(None, None, None)
    for _ in range(2):
        say("later")
    assert capsys.readouterr().err.count("later") == 2 and len(second) == 1


def test_time_left_is_at_the_rate_of_this_process(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    handle = progress.Bar("rounds", 20, done=10)
    assert handle.left is None and handle.left_in_words == ""
    now += 60
    assert handle.left is None
    handle.advance(2)
    assert handle.left == pytest.approx(8 * 30)
    assert handle.left_in_words == "4:00 left"
    now += 3600
    assert handle.left_in_words == "4:04:00 left"
    handle.advance(8)
    assert handle.left_in_words == "0:00 left"
    unknown = progress.Bar("fetch", None)
    unknown.advance()
    assert unknown.left is None


def test_few_lines_in_a_log(capsys):
    with bar("train", 1000) as handle:
        for _ in range(1000):
            handle.advance()
    assert capsys.readouterr().err == ""


def test_what_is_to_be_said_once_is_not_said_again(capsys):
    @once()
    def work():
        for line in ("one record is left out", "another", "one record is left out"):
            say(line)

    work()
    work()
    told = [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()]
    assert told == ["one record is left out", "another"] * 2


def test_bars_inside_each_other_on_a_terminal(terminal, capsys):
    with bar("rounds", 2) as outer:
        with bar("train", 5) as inner:
            inner.advance(5)
            assert [task.description for task in progress._progress.tasks] == ["rounds", "train"]
            assert progress._progress.tasks[1].completed == 5
            with progress._progress.console.capture() as shown:
                progress._progress.console.print(progress._progress.get_renderable())
            assert "0:00 left" in shown.get()
        outer.advance()
        assert [task.description for task in progress._progress.tasks] == ["rounds"]
        say("round 1: [loss] 0.5")
    assert "round 1: [loss] 0.5" in capsys.readouterr().err  # brackets are no markup


def test_an_error_takes_the_bars_away(terminal):
    def rounds():
        with bar("rounds", 3):
            yield 1

    def lead():
        for _ in rounds():
            with bar("train", 3):
                raise ValueError

    with pytest.raises(ValueError):
        lead()


def test_phases_add_up_and_the_outermost_counts(monkeypatch):
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    phases = collect_phases()
    for _ in range(2):
        with phase("attack"):
            now += 1
            with phase("generate"):
                now += 2
    with pytest.raises(ValueError), phase("train"):
        now += 4
        raise ValueError
    with phase("train"):
        now += 8
    assert phases.seconds == {"attack": 6, "train": 12}


def test_collecting_anew():
    first = collect_phases()
    with phase("train"):
        pass
    second = collect_phases()
    with phase("score"):
        pass
    assert (first.seconds.keys(), second.seconds.keys()) == ({"train"}, {"score"})


# ---- other processes ----------------------------------------------------------------------------------------------


@pytest.fixture
def sent(monkeypatch):
    """What this process sends to the one that shows its progress."""
    monkeypatch.setattr(progress, "_relay", None)
    told = []
    relay(told.append)
    return told


def test_nothing_of_a_process_is_told_to_another_but_its_phase_and_the_tenths_that_are_done(sent, capsys):
    say("ward 3 has 2 records")
    with bar("tokenising the records of ward 3", 2) as outside:
        outside.advance()
    with phase("train"), bar("train ward 3", 40) as handle:
        for _ in range(40):
            handle.advance()
    assert sent == [{"phase": "train", "tenths": tenths} for tenths in [*range(11), None]]
    assert capsys.readouterr().err == "ward 3 has 2 records\n"


def test_there_are_no_other_phases():
    with pytest.raises(ValueError, match="no phase is called 'ward 3'"), phase("ward 3"):
        pass


def test_how_far_another_process_is_stands_behind_its_name(often, capsys):
    for told in ({"phase": "train", "tenths": 0}, {"phase": "train", "tenths": 4}, {"phase": "score", "tenths": 1}):
        show(told, "worker 0")
    show({"phase": "score", "tenths": None}, "worker 0")
    show({"phase": "attack", "tenths": 9}, "worker 0")
    forget("worker 0")
    lines = [line[20:].split(", ")[0] for line in capsys.readouterr().err.splitlines()]
    assert "worker 0: train: 4/10" in lines and lines[-2:] == ["worker 0: score: 1/10", "worker 0: attack: 9/10"]
    assert not progress._others


@pytest.mark.parametrize(
    "told", [{"phase": "ward 3", "tenths": 1}, {"phase": "train", "tenths": "ward 3"}, {"line": "ward 3"}, {}]
)
def test_whatever_else_another_process_tells_is_not_shown(told, often, capsys):
    show(told, "worker 0")
    assert capsys.readouterr().err == "" and not progress._others
