"""What is refused before a run begins."""

import pytest

from murmura.errors import ConfigError, MurmuraError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("sites", "among what it reads"),
        (".", "among what it reads"),
        ("sites/runs/a", "'runs' would lie among the files"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_run_is_kept_apart_from_what_it_reads(make, tmp_path, place, why, overwrite):
    """Starting over would move the records away with it, or the next run take it for a site's file."""
    asked = make(run={"folder": str(tmp_path / place)})
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=why):
        dry_run(asked)
    with pytest.raises(MurmuraError):
        run(asked, overwrite=overwrite)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_may_lie_among_sites_files_where_it_is_not_read(make, tmp_path):
    (tmp_path / "sites" / "runs").mkdir()
    sites = {"sites": {"ignore": ["runs"]}}
    dry_run(make(run={"folder": str(tmp_path / "sites" / "runs" / "a")}, data=sites))


@pytest.mark.parametrize(("place", "why"), [("/", "all folders lie in this one"), ("heldout.jsonl", "this is a file")])
def test_a_run_is_kept_in_a_folder_of_its_own(make, tmp_path, place, why):
    asked = make(run={"folder": str(tmp_path / place)})
    for begin in (dry_run, run):
        with pytest.raises(ConfigError, match=why):
            begin(asked)


@pytest.mark.parametrize("name", ["..", "a/b"])
def test_a_run_without_a_folder_has_a_name_that_is_one(make, name):
    asked = make(run={"name": name})
    asked = asked.model_copy(update={"run": asked.run.model_copy(update={"folder": None})})
    with pytest.raises(ConfigError, match=f"the folder would be runs/{name}"):
        dry_run(asked)


def test_what_is_named_from_the_current_directory_is_seen_and_what_is_written_is_not_read(make, tmp_path, monkeypatch):
    (tmp_path / "project.previous").mkdir()
    monkeypatch.chdir(tmp_path)
    for place in ("project/heldout.jsonl", "project.previous/heldout.jsonl"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes((tmp_path / "heldout.jsonl").read_bytes())
        with pytest.raises(ConfigError, match=r"data\.heldout is .* among what it reads"):
            dry_run(make(run={"folder": "project"}, data={"heldout": place}))
    tracking = {"to": ["tensorboard"], "folder": str(tmp_path / "project")}
    dry_run(make(run={"folder": "project"}, tracking=tracking))


def test_a_run_that_goes_on_moves_nothing(make, tmp_path):
    asked = make({"rounds": 1}, run={"folder": str(tmp_path / "one")})
    run(asked)
    (tmp_path / "one" / "notes.jsonl").write_bytes((tmp_path / "heldout.jsonl").read_bytes())
    again = make({"rounds": 1}, run={"folder": str(tmp_path / "one")}, data={"heldout": "one/notes.jsonl"})
    with pytest.raises(ConfigError, match="among what it reads"):
        run(again, overwrite=True)
    with pytest.raises(ConfigError, match=r"data\.heldout is .* but the run was started with"):
        run(again, resume=True)
