"""A judgement by the command line, of a server that speaks the protocol."""

import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from murmura import runs
from murmura.cli import MISTAKE, app
from murmura.experiment import Experiment
from murmura.experiment.run import run
from murmura.judge.conclusion import costs
from murmura.report.page import render
from murmura.report.sheet import sheet
from murmura.report.table import table
from murmura.runs.folder import RunFolder
from murmura.runs.judgement import Posted
from tests.experiment import small
from tests.judge.answers import lines


class Judge(BaseHTTPRequestHandler):
    """Prefers what stands first."""

    asked: list

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        message = {"role": "assistant", "content": lines(4, 2)}
        data = json.dumps({"id": "1", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    Judge.asked = []
    found = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_address[1]}/v1"
    found.shutdown()


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("judged") / "run"


@pytest.fixture
def folder(tmp_path, llama_folder, kept):
    """A copy of a finished run, which is made once, beside data as it was made of."""
    small.write_data(tmp_path)
    if not kept.exists():
        shutil.copytree(run(small.experiment(tmp_path, llama_folder, method={"rounds": 1})).folder, kept)
    return shutil.copytree(kept, tmp_path / "run", dirs_exist_ok=True)


def invoke(*words):
    return CliRunner().invoke(app, ["judge", *map(str, words)])


def test_a_run_against_its_own_model_before_training(folder, server):
    words = (folder, "--endpoint", server, "--model", "m", "--tokens", 5, "--yes")
    found = invoke(*words)
    assert found.exit_code == 0, found.output
    assert "Against its model before training, by m, on 4 held-out questions:" in found.output
    [told] = runs.read(folder).judged
    assert told.counts["overall"] == {"win": 0, "tie": 4, "lose": 0} and told.turned == 4 and told.first == 1.0
    assert all(body["temperature"] == 0 and body["model"] == "m" for body in Judge.asked)
    assert "the answer that stood first won 100%" in render([runs.read(folder)])
    first = len(Judge.asked)
    assert invoke(*words).exit_code == 0 and len(Judge.asked) == first  # nothing is asked twice


def test_a_judge_is_more_than_its_name(folder, server):
    """The same name at another server is the same judge, which is not asked again; one with other options is not."""
    words = (folder, "--model", "m", "--tokens", 5, "--most", 2, "--yes")
    assert invoke(*words, "--endpoint", server).exit_code == 0
    asked = len(Judge.asked)
    assert invoke(*words, "--endpoint", server.replace("127.0.0.1", "localhost")).exit_code == 0
    [told] = runs.read(folder).judged
    assert len(Judge.asked) == asked and told.where == server and runs.read(folder).posted == (Posted(server, False),)
    assert invoke(*words[:-2], 1, "--yes", "--endpoint", server.replace("127.0.0.1", "localhost")).exit_code == 0
    assert len(Judge.asked) == asked and {one.where for one in runs.read(folder).judged} == {server}
    assert invoke(*words, "--endpoint", server, "--verdict-tokens", 900).exit_code == 0
    assert Judge.asked[-1]["max_tokens"] == 900 and len(runs.read(folder).judged) == 3


def test_a_question_that_leaves_no_room_is_not_judged(folder, server, tmp_path):
    questions = [{"instruction": "which dose"}, {"instruction": "heart " * 600}]
    small.write_lines(tmp_path / "questions.jsonl", questions)
    words = (folder, "--endpoint", server, "--model", "m", "--tokens", 5, "--yes", "--questions")
    found = invoke(*words, tmp_path / "questions.jsonl")
    assert found.exit_code == 0 and runs.read(folder).judged[0].questions == 1
    assert "1 question left no room for an answer" in found.stderr
    small.write_lines(tmp_path / "long.jsonl", questions[1:])
    assert "no question leaves room for an answer" in invoke(*words, tmp_path / "long.jsonl").output


def test_while_another_process_works_in_a_run_nothing_is_asked(folder, server):
    with RunFolder(folder).locked():
        found = invoke(folder, "--endpoint", server, "--model", "m", "--yes")
    assert found.exit_code != 0 and "another" in found.stderr and Judge.asked == []


def test_what_it_costs_is_told_in_about_as_many_tokens_as_there_are():
    assert "about 375 tokens" in costs(["x" * 1500], "there", 200)
    assert "about 1,125 tokens" in costs(["\u75c5" * 1500], "there", 200)  # a sign each, or nearly
    assert "at most 400 back" in costs(["x", "y"], "there", 200)


def test_runs_whose_folders_have_the_same_name_are_judged_apart(folder, server, tmp_path):
    others = [tmp_path / place / folder.name for place in ("a", "b")]
    for other in others:
        shutil.copytree(folder, other)
        assert invoke(folder, other, "--endpoint", server, "--model", "m", "--tokens", 5, "--yes").exit_code == 0
        assert runs.read(folder).posted == runs.read(other).posted == (Posted(server, False),)
    assert [one.against for one in runs.read(folder).judged] == [folder.name] * 2
    assert len(list((folder / "private" / "@run" / "judged").iterdir())) == 2


def test_of_sites_that_keep_their_adapters_one_is_named(folder, tmp_path, llama_folder, server, monkeypatch):
    plain = shutil.move(folder, tmp_path / "plain")
    small.write_data(tmp_path)
    kept = run(small.experiment(tmp_path, llama_folder, {"name": "local", "rounds": 1})).folder
    judge = ("--endpoint", server, "--model", "m", "--tokens", 2, "--yes")
    words = (kept, *judge)
    with monkeypatch.context() as patch:  # before anything is answered, which takes long
        patch.setattr("murmura.judge.pairs.answered", None)
        assert "--site heart | skin" in invoke(*words).output
        assert "--site heart | skin" in invoke(plain, kept, *judge).output
    refused = invoke(*words, "--site", "heart")
    assert refused.exit_code == 2 and "keeps for itself" in refused.output and Judge.asked == []
    assert "none is called 'lung'" in invoke(*words, "--site", "lung").output
    for site in ("heart", "skin"):
        found = invoke(*words, "--site", site, "--send-private")
        assert found.exit_code == 0, found.output
        assert f"Against its model before training, at site {site}, by m" in found.output
    assert len(runs.read(kept).judged) == 2
    assert runs.read(kept).posted == (Posted(server, False, "heart"), Posted(server, False, "skin"))
    assert "one of them by the adapter that site ‘heart’ keeps for itself" in render([runs.read(kept)])


def test_an_endpoint_is_not_asked_without_a_yes(folder, server, monkeypatch):
    monkeypatch.setattr("murmura.judge.pairs.answered", None)
    found = invoke(folder, "--endpoint", server, "--model", "m", "--tokens", 5)
    assert found.exit_code == 2 and "Give --yes" in found.output
    assert Judge.asked == []  # nor was an answer written, which takes long


def test_a_server_that_refuses_everything_is_told_and_later_asked_again(folder, server, monkeypatch):
    words = (folder, "--endpoint", server, "--model", "m", "--tokens", 5, "--most", 2, "--yes")
    with monkeypatch.context() as patch:
        patch.setattr(Judge, "do_POST", lambda self: self.send_error(400))
        found = invoke(*words)
    assert found.exit_code == MISTAKE and "refuses every prompt" in found.stderr and runs.read(folder).judged == ()
    assert invoke(*words).exit_code == 0 and runs.read(folder).judged[0].refused == 0


def test_questions_that_a_filter_refuses_are_counted_each_time(folder, server, tmp_path, monkeypatch):
    """They come first, and when they are asked again there is nothing else to ask."""
    small.write_lines(tmp_path / "questions.jsonl", [{"instruction": f"which dose {n}"} for n in range(10)])
    words = (folder, "--endpoint", server, "--model", "m", "--tokens", 2, "--yes", "--at-once", 1)
    judge = Judge.do_POST

    def filtered(self):
        read = self.rfile.read(int(self.headers["Content-Length"]))
        self.rfile = BytesIO(read)
        self.send_error(400) if any(b"which dose %d" % n in read for n in range(8)) else judge(self)

    monkeypatch.setattr(Judge, "do_POST", filtered)
    for _ in range(2):
        found = invoke(*words, "--questions", tmp_path / "questions.jsonl")
        assert found.exit_code == 0, found.output
        [told] = runs.read(folder).judged
        assert (told.refused, told.asked) == (16, 20)


def test_private_questions_leave_only_where_that_is_said(tmp_path, llama_folder, server, monkeypatch):
    small.write_data(tmp_path)
    taken = {"train": "sites", "heldout": None, "heldout_records": 2, "max_length": 128}
    table = {"run": {"folder": str(tmp_path / "own")}, "model": {"name": str(llama_folder)}, "lora": {"rank": 2}}
    data = {key: value for key, value in taken.items() if value is not None}
    sections = {"data": data, "method": {"name": "fedit", "rounds": 1}, "evaluation": {"sample": 1, "uploads": 0}}
    folder = run(Experiment.of(table | sections, base=tmp_path)).folder
    words = (folder, "--endpoint", server, "--model", "m", "--tokens", 3, "--yes")
    refused = invoke(*words)
    assert refused.exit_code == 2 and "private records" in refused.output and Judge.asked == []
    assert "one adapter for all sites. Leave --site out" in invoke(*words, "--site", "heart").output
    assert runs.read(folder).posted == ()
    with monkeypatch.context() as patch:
        promising = SimpleNamespace(last=SimpleNamespace(privacy={"epsilon": 1.0}))
        patch.setattr("murmura.judge.conclusion.read", lambda folder: promising)
        judged = invoke(*words, "--send-private")
    assert judged.exit_code == 0 and len(Judge.asked) > 0
    assert "No ε covers these figures: the questions come out of the sites’ records." in judged.output
    (folder / "public.jsonl").write_text('{"instruction": "what is rash", "output": ""}\n')
    assert invoke(*words, "--questions", folder / "public.jsonl").exit_code == 0
    assert runs.read(folder).posted == (Posted(server, True), Posted(server, False))
    _sheet_and_page_name(folder, server)
    _only_the_owner_sees_them(folder, "explain the")
    small.write_data(tmp_path, {"heart": 6, "skin": 4})
    changed = invoke(*words, "--send-private")
    assert changed.exit_code == 2 and "not those that the run was trained on" in changed.output


def _sheet_and_page_name(folder, server):
    found = runs.read(folder)
    page, seen = render([found]), " ".join(sheet(table([found])[0])[1].blocks[0].items)
    for one in (page, seen):
        assert f"Whoever runs {server}, where answers were judged: questions that come out of the sites" in one
        assert f"Whoever runs {server}, where answers were judged: questions that do not come out of the sites" in one


def test_what_was_sent_before_a_judgement_failed_is_noted(folder, server, monkeypatch):
    monkeypatch.setattr(Judge, "do_POST", lambda self: self.send_error(401))
    assert invoke(folder, "--endpoint", server, "--model", "m", "--tokens", 5, "--yes").exit_code != 0
    assert runs.read(folder).posted == (Posted(server, False),) and runs.read(folder).judged == ()


def _only_the_owner_sees_them(folder, question):
    """What a run publishes is all but ``private`` and ``checkpoint``."""
    [kept] = (folder / "private" / "@run" / "judged").iterdir()
    assert question in kept.read_text() and kept.stat().st_mode & 0o077 == kept.parent.stat().st_mode & 0o077 == 0
    assert [one.suffix for one in (folder / "judged").iterdir()] == [".json"] * 2  # held-out questions, and the file's
    sources = {one.source for one in runs.read(folder).judged}
    assert sources == {"held-out questions", "questions of public.jsonl"}


def test_options_that_do_not_go_together_are_named(folder):
    assert "judge: no judge is named. Give --by MODEL" in invoke(folder).output
    both = invoke(folder, "--by", "smollm2-135m", "--endpoint", "http://localhost:1/v1").output
    assert "--by and --endpoint exclude each other. Give" in both
    assert "Give --model NAME" in invoke(folder, "--endpoint", "http://localhost:1/v1").output
    for more in (("--model", "m"), ("--at-once", 2), ("--yes",), ("--send-private",)):
        assert "are for --endpoint" in invoke(folder, "--by", "smollm2-135m", *more).output
    told = invoke(folder, "--endpoint", "http://me:s3cret@localhost:1/v1", "--model", "m", "--yes").output
    assert "a name or a password in the address would be written down" in told and "s3cret" not in told


def test_a_run_is_not_judged_against_itself(folder):
    for same in (folder, folder / ".." / folder.name):
        done = invoke(folder, same, "--by", "smollm2-135m")
        assert done.exit_code == MISTAKE and "a run is not compared with itself" in done.stderr


def test_a_run_is_not_asked_what_it_was_trained_on(tmp_path, llama_folder, server):
    """Runs of two seeds hold out different records, of one seed the same."""
    small.write_data(tmp_path)
    same = {"model": {"name": str(llama_folder)}, "lora": {"rank": 2}, "method": {"name": "fedit", "rounds": 1}}
    same |= {
        "data": {"train": "sites", "heldout_records": 4, "max_length": 128},
        "evaluation": {"sample": 0, "uploads": 0},
    }

    def made(name, seed):
        return run(Experiment.of(same | {"run": {"seed": seed, "folder": str(tmp_path / name)}}, base=tmp_path)).folder

    words = (made("one", 1), "--endpoint", server, "--model", "m", "--tokens", 5, "--yes", "--send-private")
    assert invoke(words[0], made("again", 1), *words[1:]).exit_code == 0
    done = invoke(words[0], made("other", 2), *words[1:])
    assert done.exit_code == MISTAKE and "questions are among the records that this run was trained on" in done.stderr
    for file in (tmp_path / "sites").iterdir():
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        saved = [row | {"instruction": row["instruction"].replace(" ", "\r\n")} for row in rows]
        small.write_lines(tmp_path / "saved again" / file.name, saved)  # as by Excel
    same["data"]["train"] = "saved again"
    done = invoke(words[0], made("of what was saved", 2), *words[1:])
    assert done.exit_code == MISTAKE and "questions are among the records" in done.stderr
