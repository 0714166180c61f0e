"""A real server of the protocol in another process: what it does to us, and what we do not do to it."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import openai  # noqa: F401 (before processes are forked)
import pytest

from murmura.errors import ConfigError, RunError
from murmura.streams import Stream
from murmura.synthesis import endpoint as endpoint_module
from murmura.synthesis.endpoint import Endpoint
from murmura.synthesis.expansion import expand
from murmura.synthesis.generators import Request
from murmura.synthesis.prompts import STOP
from tests.synthesis.endpoint_server import text_after

SEEDS = [f"seed number {i} of the few" for i in range(7)]
SERVER = Path(__file__).with_name("endpoint_server.py")


class Serving:
    """A server that follows a plan."""

    def __init__(self, folder, plan):
        folder.mkdir()
        (folder / "plan").write_text(json.dumps(plan))
        self.folder, self.process = folder, subprocess.Popen([sys.executable, "-S", SERVER, folder])
        until(lambda: (folder / "port").exists())
        self.url = f"http://127.0.0.1:{(folder / 'port').read_text()}/v1"

    @property
    def log(self):
        log = self.folder / "log"
        whole, *_ = log.read_text().rpartition("\n") if log.exists() else ("",)  # a line may be half written yet
        return [json.loads(line) for line in whole.splitlines()]


class Forked:
    """A call in a process of its own for the time of a block."""

    def __init__(self, function, *arguments):
        self.process = multiprocessing.get_context("fork").Process(target=function, args=arguments)

    def __enter__(self):
        self.process.start()
        return self.process

    def __exit__(self, *error):
        if error[0]:
            self.process.kill()
        self.process.join()


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    running = []

    def start(*plan):
        running.append(Serving(tmp_path / f"server-{len(running)}", plan))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.wait()


def written(path, endpoint, samples=12):
    return expand(SEEDS, samples, path, endpoint, Stream(0) / "expand")


@pytest.mark.parametrize("chat", [False, True])
def test_every_sample_is_asked_for_once_in_the_servers_language(serve, tmp_path, monkeypatch, chat):
    monkeypatch.setenv("A_KEY", "very-secret")
    server = serve("answer")
    options = {"temperature": 0.7, "top_p": 0.9, "stop": STOP, "concurrency": 3, "key_variable": "A_KEY"}
    endpoint = Endpoint(server.url, "tiny", chat=chat, **options)
    found = written(tmp_path / "texts", endpoint)
    assert len(server.log) == len(set(found.texts)) == 12
    assert sorted(found.texts) == sorted(text_after(line["prompt"]).partition("\n")[0] for line in server.log)
    for line in server.log:
        assert line["path"] == ("/v1/chat/completions" if chat else "/v1/completions")
        assert line["key"] == "Bearer very-secret"
        assert (line["model"], line["max_tokens"], line["temperature"], line["top_p"]) == ("tiny", 85, 0.7, 0.9)
        assert line["stop"] == ["\nOriginal Text Sample"] and line["prompt"].count("seed number") == 3
    assert len({line["seed"] for line in server.log}) == 12
    assert "very-secret" not in (tmp_path / "texts").read_text() + repr(endpoint.described)


@pytest.mark.parametrize("chat", [False, True])
def test_a_server_says_whether_it_cut_an_answer_off(serve, tmp_path, chat):
    server = serve("answer", "length", "silent", "answer")
    found = written(tmp_path / "texts", Endpoint(server.url, "tiny", chat=chat, concurrency=1), samples=4)
    assert found.texts.finished.tolist() == [True, False, False, True]


def test_what_fails_for_a_while_is_tried_again(serve, tmp_path):
    server = serve(429, 500, "drop", 503, "answer")
    found = written(tmp_path / "texts", Endpoint(server.url, "tiny", concurrency=1), samples=3)
    assert Counter(line["what"] for line in server.log) == {429: 1, 500: 1, "drop": 1, 503: 1, "answer": 3}
    assert len({line["prompt"] for line in server.log[:5]}) == 1  # the same request, until there was an answer
    assert found.faults.total() == 0


def test_no_more_are_on_their_way_than_allowed(serve, tmp_path):
    server = serve("hold")
    endpoint = Endpoint(server.url, "tiny", concurrency=4)
    with Forked(written, tmp_path / "texts", endpoint):
        until(lambda: len(server.log) == 4)
        time.sleep(0.05)
        assert len(server.log) == 4
        (server.folder / "go").touch()
        until(lambda: len(server.log) == 12)


def test_a_killed_expansion_goes_on_and_asks_nothing_twice_that_was_answered(serve, tmp_path):
    server = serve(*["answer"] * 7, "hold")
    endpoint = Endpoint(server.url, "tiny", concurrency=3)
    with Forked(written, tmp_path / "texts", endpoint) as process:
        until(lambda: len(server.log) == 10)  # 7 were answered, and 3 are on their way
        os.kill(process.pid, signal.SIGKILL)
    kept = (tmp_path / "texts").read_text().splitlines()
    assert len(kept) == 1 + 7
    (server.folder / "go").touch()
    found = written(tmp_path / "texts", endpoint)
    asked = Counter(line["prompt"] for line in server.log)
    assert len(asked) == 12 and asked.total() == 12 + 3
    assert {prompt for prompt, times in asked.items() if times == 2} == {line["prompt"] for line in server.log[7:10]}
    assert list(found.texts) == list(written(tmp_path / "again", endpoint).texts)


def test_a_server_that_is_down_stops_the_stage_and_loses_nothing(serve, tmp_path, monkeypatch):
    monkeypatch.setattr("murmura.synthesis.endpoint._RETRIES", 1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    with pytest.raises(
        RunError, match=r"does not answer .* Start it, or check its address, then .* --resume: what was"
    ) as error:
        written(tmp_path / "texts", Endpoint(nobody, "tiny"))
    assert error.value.passing
    failing = serve(*["answer"] * 5, 500)
    with pytest.raises(RunError, match=r"keeps failing \(.*500.* Wait, or send it fewer requests at once") as error:
        written(tmp_path / "texts", Endpoint(failing.url, "tiny", concurrency=3))
    assert error.value.passing
    assert len((tmp_path / "texts").read_text().splitlines()) == 1 + 5  # those on their way with the failed one, too
    server = serve("answer")
    found = written(tmp_path / "texts", Endpoint(server.url, "tiny"))  # it may have moved
    assert (len(found.texts), len(server.log)) == (12, 7)
    assert not {line["prompt"] for line in server.log} & {line["prompt"] for line in failing.log[:5]}


def test_what_is_on_its_way_when_a_person_stops_it_is_kept(serve, tmp_path, monkeypatch):
    server, calls, wait = serve("answer"), [], endpoint_module.wait

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return wait(*arguments, **options)

    monkeypatch.setattr(endpoint_module, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path / "texts", Endpoint(server.url, "tiny", concurrency=3))
    kept = len((tmp_path / "texts").read_text().splitlines()) - 1
    assert 3 <= kept == len(server.log) < 12
    assert len(written(tmp_path / "texts", Endpoint(server.url, "tiny")).texts) == len(server.log) == 12


def test_a_seed_is_left_out_where_none_is_taken(serve, tmp_path):
    server = serve(400, "answer")
    found = written(tmp_path / "texts", Endpoint(server.url, "tiny", concurrency=1))
    assert ["seed" in line for line in server.log] == [True] + [False] * 12
    assert (len(found.texts), found.faults.total()) == (12, 0)


def test_options_are_left_out_or_renamed_where_they_are_not_taken(serve, tmp_path):
    """As by models that think before they answer: each is told by itself, with a request that was refused."""
    reasons = [
        "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
        "'temperature' does not support 0",
    ]
    server = serve(*reasons, "answer")
    options = {"chat": True, "temperature": 0.0, "concurrency": 1, "can_lack": ("temperature",)}
    endpoint = Endpoint(server.url, "tiny", **options)
    described = dict(endpoint.described)
    assert len(written(tmp_path / "texts", endpoint).texts) == 12
    first, second, *others = server.log
    assert "max_tokens" in first and "max_completion_tokens" not in first and "temperature" in second
    assert all(
        line["max_completion_tokens"] == 85 and not {"max_tokens", "temperature"} & line.keys() for line in others
    )
    assert endpoint.described == described  # so that nothing is asked again that was asked before it was known
    needed = serve("'temperature' does not support 0")
    with pytest.raises(RunError, match="refuses every prompt"):
        written(tmp_path / "others", Endpoint(needed.url, "tiny", chat=True, temperature=0.0, concurrency=1))
    long = serve("'max_tokens' or 'max_completion_tokens' is too large: 85")  # which no other name mends
    with pytest.raises(RunError, match="is too large"):
        written(tmp_path / "long", Endpoint(long.url, "tiny", chat=True, concurrency=1))


def test_an_answer_without_text_is_refused(serve, tmp_path):
    endpoint = Endpoint(serve("answer", "null", "answer").url, "tiny", chat=True, concurrency=1)
    assert written(tmp_path / "texts", endpoint).faults == {"refused": 1}
    with pytest.raises(RunError, match="gives no answers"):
        written(tmp_path / "others", Endpoint(serve("null").url, "tiny", chat=True, concurrency=1))


def test_half_a_character_in_an_answer_can_be_written_down(serve):
    endpoint = Endpoint(serve("half").url, "tiny", chat=True)
    [[answer]] = endpoint.answers([Request(0, 0, "how are you?", Stream(0))])
    assert answer.text.encode().endswith(b" ?") and len(answer.text) > 20


def test_single_prompts_may_be_refused_but_not_all(serve, tmp_path):
    server = serve("answer", "empty", 422, "answer")
    endpoint = Endpoint(server.url, "tiny", concurrency=1)
    endpoint._lacking.add("seed")
    found = written(tmp_path / "texts", endpoint)
    assert (len(found.texts), found.faults, found.given_up) == (12, {"refused": 1, "empty": 1}, 0)
    refusing = serve(400)
    with pytest.raises(RunError, match=r"refuses every prompt \(.*the prompt is not acceptable"):
        written(tmp_path / "others", Endpoint(refusing.url, "tiny", concurrency=1))
    assert len((tmp_path / "others").read_text().splitlines()) == 1  # no attempt is lost on it
    assert len({line["prompt"] for line in refusing.log}) == 8


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (401, r"refuses the key \(401\)\. Check the environment variable A_KEY"),
        (404, r"cannot write \(.*404.*\)\. Check its address and the model's name"),
        ("other", r"speaks another protocol\. Check its address"),
    ],
)
def test_what_trying_again_does_not_mend_is_told_at_once(serve, tmp_path, monkeypatch, what, message):
    monkeypatch.setenv("A_KEY", "very-secret")
    server = serve(what)
    with pytest.raises(RunError, match=message) as caught:
        written(tmp_path / "texts", Endpoint(server.url, "tiny", concurrency=1, key_variable="A_KEY"))
    assert len(server.log) == 1 and "very-secret" not in str(caught.value)


def test_options_that_make_no_sense_are_refused(monkeypatch):
    monkeypatch.delenv("A_KEY", raising=False)
    for options, message in (
        ({"url": "localhost:8000"}, "'localhost:8000' is not the address"),
        ({"url": "HTTP://me@localhost:8000"}, "is not the address"),
        *[
            ({"url": url}, "is not the address")
            for url in (
                "http://localhost:80O0/v1",
                "http://localhost:99999/v1",
                "http://",
                "http://[::1/v1",
                "http://my server/v1",
                "http://\u200blocalhost/v1",
                "http://my..server/v1",
            )
        ],
        ({"url": "http://me:pass@localhost:8000/v1"}, "a name or a password in the address"),
        ({"key_variable": "A_KEY"}, "the environment variable A_KEY is empty"),
    ):
        with pytest.raises(ConfigError, match=message):
            Endpoint(**{"url": "http://localhost/v1", "model": "tiny"} | options)
    for url in ("http://[::1]:8000/v1", "https://bücher.example", "http://localhost"):
        Endpoint(url, "tiny")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'murmura\[endpoint\]'"):
        Endpoint("http://localhost/v1", "tiny")
