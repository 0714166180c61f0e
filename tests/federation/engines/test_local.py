from types import SimpleNamespace

from murmura import progress
from murmura.federation.engines.local import LocalEngine
from murmura.federation.wire.messages import Ask, Reply


def test_a_log_tells_how_many_sites_have_answered(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", -1.0)
    replies = [Reply(name, {}) for name in "abc"]
    host = SimpleNamespace(sites=dict.fromkeys("abc"), answer=lambda ask, sites: iter(replies))
    assert list(LocalEngine(host).ask(Ask("train", 1, {}, {}), list("abc"))) == replies
    assert "answers to 'train': 2/3, 0:00 left" in capsys.readouterr().err
