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
