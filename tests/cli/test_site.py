"""``murmura site``: what a site's owner sees."""

import json

import pytest
from typer.testing import CliRunner

from murmura.cli import app
from murmura.experiment import Experiment
from murmura.experiment.site_side import open_sites
from murmura.experiment.verbs import fingerprint
from murmura.federation.wire.messages import Ask
from tests.experiment.small import experiment, write_data


@pytest.fixture
def sites(tmp_path, llama_folder):
    """Folders of sites that ``federation new`` has made."""

    def made(**sections):
        write_data(tmp_path, {"heart": 4, "skin": 3, "lung": 3})
        file, folder = tmp_path / "my.toml", tmp_path / "members"
        file.write_text(experiment(tmp_path, llama_folder, **sections).dump())
        assert site_of("federation", "new", str(file), str(folder)).exit_code == 0
        return folder

    return made


def site_of(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def asked(folder, *verbs):
    """Answers of a site of its own process: its classes of errors, or None."""
    host = open_sites([folder])
    experiment = Experiment.load(folder.parent / "@federation" / "experiment.toml")
    joining = {"resumed": False, "experiment": fingerprint(experiment)}
    try:
        answers = [
            answer
            for verb in verbs
            for answer in host.answer(Ask(verb, 0, joining if verb == "join" else {}, run="f00d"), list(host.sites))
        ]
    finally:
        host.close()
    return [getattr(answer, "why", None) for answer in answers]


def test_the_log_has_all_that_left_a_site_of_its_own_process(sites):
    folder = sites()
    asked(folder / "heart", "join", "steal", "commit")
    done = site_of("site", "log", folder / "heart")
    assert done.exit_code == 0
    for told in ("Run f00d", "versions", "kind", "records", "RefusedError", "2 answers have left this site"):
        assert told in done.stdout
    lines = json.loads(site_of("site", "log", folder / "heart", "--json").stdout)
    assert [line["verb"] for line in lines] == ["join", "steal", "commit"]
    assert [len(line.get("fields", [])) for line in lines] == [3, 0, 0]


def test_the_log_names_the_first_line_that_was_changed(sites):
    folder = sites()
    asked(folder / "heart", "join", "commit")
    path = folder / "heart" / "released.journal"
    path.write_text(path.read_text().replace('"verb": "commit"', '"verb": "comet"'))
    done = site_of("site", "log", folder / "heart")
    assert done.exit_code == 2 and f"{path}:2" in done.stderr
    assert "versions" in done.stdout and "comet" not in done.stdout


def test_where_nothing_left_the_log_says_so_and_what_is_no_folder_is_told(sites, tmp_path):
    folder = sites()
    assert "0 answers have left this site" in site_of("site", "log", folder / "skin").stdout
    assert site_of("site", "log", tmp_path / "nowhere").exit_code == 2
