"""What a site has opened for Flower is closed where Flower's programs cannot be started."""

import tempfile
import threading

import pytest

from murmura.errors import RunError
from murmura.federation.engines.flower import supernode


@pytest.mark.parametrize("started", [0, 1])
def test_nothing_is_left_open_where_it_cannot_be_started(tmp_path, monkeypatch, started):
    opened, closed, temporary = [], [], tmp_path / "temporary"

    class Gateway:
        port = 1

        def __init__(self, *parts, **rules):
            opened.append("gateway")

        def close(self):
            closed.append("gateway")

    class Child:
        def __init__(self, name, *parts):
            if len(opened) > started:
                raise RunError(f"{name} could not be started")
            opened.append(name)
            self.name, self.is_alive = name, True

        def shorten(self):
            pass

        def end(self):
            closed.append(self.name)

    def made(prefix):
        temporary.mkdir()
        return str(temporary)

    monkeypatch.setattr(supernode, "Gateway", Gateway)
    monkeypatch.setattr(supernode, "Child", Child)
    monkeypatch.setattr(supernode, "expected", lambda folder: b"")
    monkeypatch.setattr(tempfile, "mkdtemp", made)
    with pytest.raises(RunError, match="could not be started"):
        supernode.SuperNode(tmp_path / "node", "server:1", tmp_path / "ca.crt", tmp_path / "key", tmp_path / "door")
    assert len(opened) == 1 + started and sorted(closed) == sorted(opened)
    assert not temporary.exists()


@pytest.mark.parametrize("refusal", [RunError("could not be started"), OSError(24, "could not be started")])
def test_what_has_ended_is_closed_and_started_again_though_that_fails_at_first(tmp_path, monkeypatch, capsys, refusal):
    made, watched = [], threading.Event()

    class Gateway:
        port = 1

        def __init__(self, *parts, **rules):
            self.close = lambda: None

    class Child:
        said = "no memory \x1b[2J"

        def __init__(self, name, *parts):
            if len(made) == 2:
                made.append(None)
                raise refusal
            self.name, self.is_alive, self.ended = name, True, 0
            made.append(self)
            if len(made) == 4:
                watched.set()

        def shorten(self):
            self.looked_at = True

        def end(self):
            self.ended += 1

    monkeypatch.setattr(supernode, "Gateway", Gateway)
    monkeypatch.setattr(supernode, "Child", Child)
    monkeypatch.setattr(supernode, "expected", lambda folder: b"")
    monkeypatch.setattr(supernode, "_WATCH", 0.01)
    node = supernode.SuperNode(tmp_path / "node", "server:1", tmp_path / "ca.crt", tmp_path / "key", tmp_path / "door")
    first = made[1]
    assert first.name == "Flower's SuperNode"
    first.is_alive = False
    assert watched.wait(10)
    node.close()
    assert first.ended >= 1 and made[2] is None and made[3].ended == 1
    assert made[0].looked_at  # its log is no longer than it may be
    told = capsys.readouterr().err
    assert "could not be started" in told and "no memory \\x1b[J" in told and "\x1b" not in told
