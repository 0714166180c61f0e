"""What a model of others writes does nothing to a terminal."""

from types import SimpleNamespace

from typer.testing import CliRunner

from murmura.cli import app
from murmura.experiment import trained
from murmura.generation.writer import Completion


def test_what_a_terminal_would_obey_is_shown_escaped(tmp_path, monkeypatch):
    said = Completion("\x1b[2J\x1b]0;mine\x07gone\n\tdose \u202e薬\u3000می\u200cشود 5\xa0mg", [], True)
    model = SimpleNamespace(before=None, after=None, answers=lambda *_: [said, said])
    monkeypatch.setattr(trained, "require_answers", lambda run: None)
    monkeypatch.setattr(trained.Trained, "load", lambda run, site: model)
    found = CliRunner().invoke(app, ["chat", str(tmp_path)], input="why\n")
    assert found.exit_code == 0 and not {"\x1b", "\x07", "\u202e"} & set(found.output), found.output
    assert "\\x1b[2J\\x1b]0;mine\\x07gone" in found.output and "        dose \\u202e薬" in found.output
    assert "می\u200cشود 5 mg" in found.output
