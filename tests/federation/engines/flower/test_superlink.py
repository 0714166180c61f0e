"""What a SuperLink makes of what it has kept, and of what Flower answers."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from murmura import atomic
from murmura.errors import RunError
from murmura.federation.engines.flower import bundle, environment
from murmura.federation.engines.flower.gateway import _CROSSING
from murmura.federation.engines.flower.superlink import SuperLink
from tests.federation.engines.flower.test_gateway import Upstream, proxied


def idle(folder):
    """A SuperLink of which no process is started."""
    link = SuperLink.__new__(SuperLink)
    link._folder, link._door = folder, folder / "door"
    return link


@pytest.fixture
def says(monkeypatch):
    """What Flower's commands print from now on; they end with 0, as its own do."""

    def said(text):
        monkeypatch.setattr(bundle.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0, stdout=text))

    return said


@pytest.mark.parametrize(
    "text", ["{", "5", "[1]", '{"key": "one"}', '{"key": ["north", 1]}', '{"key": Infinity}', "[" * 5000], ids=len
)
def test_what_flower_knows_of_sites_may_be_damaged(tmp_path, text):
    link = idle(tmp_path)
    (tmp_path / "nodes.json").write_text(text)
    with pytest.raises(RunError, match="which sites' keys Flower knows is damaged") as error:
        link._registered({"north": "key"})
    assert error.value.where == str(tmp_path / "nodes.json") and not error.value.passing


@pytest.mark.parametrize("act", [SuperLink.carry, lambda link: link._registered({"north": "key"})])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps({"success": False, "error-message": "SuperLink: here\n\nno room"}, indent=2), "here no room$"),
        ('{"success": false}', "false"),
        ('{"success": true}', "true"),
        ("no JSON", "no JSON"),
        ('{"a":' * 5000, "a"),
    ],
    ids=["told", "not told", "no field", "no JSON", "nested"],
)
def test_what_flower_does_not_do_is_told_though_its_command_ends_with_0(tmp_path, says, act, text, why):
    says(text)
    with pytest.raises(RunError, match=rf"'flwr (run|supernode)' failed: (?s:.*){why}") as error:
        act(idle(tmp_path))
    assert error.value.passing and error.value.fix is None
    assert not (tmp_path / "nodes.json").exists()


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:1", "socks5://127.0.0.1:1"])
def test_a_proxy_of_the_environment_is_asked_neither_for_it_nor_by_what_flower_starts(tmp_path, monkeypatch, proxy):
    proxied(monkeypatch, proxy)
    call = "import httpx, sys; sys.exit(httpx.get(sys.argv[1], verify=sys.argv[2]).status_code != 200)"
    with closing(Upstream(tmp_path)) as upstream:
        link = idle(tmp_path)
        link._port, link._local = upstream.port, (upstream.certificate,)
        assert link._is_listening()
        url = f"https://127.0.0.1:{upstream.port}/health"
        program = [sys.executable, "-c", call, url, str(upstream.certificate)]
        subprocess.run(program, env=environment(tmp_path), check=True)


def test_what_flower_sends_at_once_crosses_a_slow_line_while_it_is_waited_for(tmp_path):
    """By what Flower's own processes go by. What comes later than its session lasts its server does not take."""
    sent = "supercore.constant.FLWR_PRIVATE_MAX_CONCURRENT_OBJ_"
    names = "common.constant.FLWR_PRIVATE_MAX_ARRAY_CHUNK_SIZE", f"{sent}PUSHES", f"{sent}PULLS"
    lasts = "supercore.constant.OBJECT_PUSH_SESSION_TTL_SECONDS"
    program = "import flwr.common.constant, flwr.supercore.constant\n"
    program += f"print({', '.join(f'flwr.{name}' for name in (*names, lasts))})"
    done = subprocess.run([sys.executable, "-c", program], env=environment(tmp_path), capture_output=True, check=True)
    part, *at_once, lasts = map(float, done.stdout.split())
    waits = min(_CROSSING.read, _CROSSING.write)
    assert 8 * part * max(at_once) / waits < 600_000  # bits a second; docs/deploy.md tells it
    assert waits < lasts


def test_a_key_that_flower_has_already_does_not_pass(tmp_path, says):
    says('{"success": false, "error-message": "\\n[code: 12] Public key already in use."}')
    with pytest.raises(RunError, match="already in use") as error:
        idle(tmp_path)._registered({"north": "key"})
    assert not error.value.passing and error.value.fix == (
        f"It has it from a start that was broken off: remove {tmp_path}; sites need nothing new."
    )
    assert error.value.where == "site north" and list(tmp_path.iterdir()) == []


def test_what_flower_knows_is_on_the_disk_before_it_is_noted(tmp_path, monkeypatch):
    """It does not wait for the disk itself: after a failure of power no site that was noted could connect any more."""
    done, sync, log = [], atomic.sync, tmp_path / "state.db-wal"

    def register(key):
        (tmp_path / "state.db").touch()
        log.write_text(key)
        return 1

    link = idle(tmp_path)
    monkeypatch.setattr(link, "_register", register)
    monkeypatch.setattr(atomic, "sync", lambda path: done.append(path.name) or sync(path))
    monkeypatch.setattr(atomic, "write", lambda path, *_, **__: done.append(path.name))
    link._registered({"north": "key"})
    assert sorted(done[:-1]) == ["state.db", log.name] and done[-1] == "nodes.json"


def test_a_site_that_left_and_comes_back_has_the_number_that_it_had(tmp_path, monkeypatch):
    """Flower never takes a key twice, though it was told to forget it."""
    taken = []

    def once(arguments, **_):
        command, given = arguments[1:3], Path(arguments[3])
        if command == ["supernode", "register"]:
            key = given.read_text()
            told = {"success": key not in taken, "node-id": len(taken), "error-message": "Public key already in use."}
            taken.append(key)
        else:
            told = {"success": True, "node-id": int(given.name)}
        return SimpleNamespace(returncode=0, stdout=json.dumps(told))

    monkeypatch.setattr(bundle.subprocess, "run", once)
    link, both = idle(tmp_path), {"north": "one", "south": "two"}
    first = link._registered(both)
    assert link._registered({"north": "one"}) == {"north": first["north"]}
    assert link._registered(both) == first and sorted(first.values()) == [0, 1]
    assert link._registered({"north": "one", "west": "two"})["west"] == first["south"]
    assert link._registered({"north": "three"}) == {"north": 2}


def test_the_log_of_one_that_runs_for_weeks_is_kept_short(tmp_path, monkeypatch):
    link, done = idle(tmp_path), []
    link._child, link._ending = SimpleNamespace(is_alive=True, shorten=lambda: done.append("shortened")), False
    monkeypatch.setattr("time.sleep", lambda _: setattr(link, "_ending", True))
    link._watch()
    assert done == ["shortened"]
