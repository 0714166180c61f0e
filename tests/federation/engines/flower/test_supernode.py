"""What a site has opened for Flower is closed where Flower's programs cannot be started."""

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

        def end(self):
            closed.append(self.name)

    def made(prefix):
        temporary.mkdir()
        return str(temporary)

    monkeypatch.setattr(supernode, "Gateway", Gateway)
    monkeypatch.setattr(supernode, "Child", Child)
    monkeypatch.setattr(supernode, "expected", lambda folder: b"")
    monkeypatch.setattr(supernode.tempfile, "mkdtemp", made)
    with pytest.raises(RunError, match="could not be started"):
        supernode.SuperNode(tmp_path / "node", "server:1", tmp_path / "ca.crt", tmp_path / "key", tmp_path / "door")
    assert len(opened) == 1 + started and sorted(closed) == sorted(opened)
    assert not temporary.exists()
