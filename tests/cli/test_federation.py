"""``murmura federation new``."""

import pytest
from typer.testing import CliRunner

from murmura.cli import app
from murmura.experiment.site_side import open_sites
from tests.experiment.small import experiment, write_data


@pytest.mark.parametrize("secure", [False, True])
def test_sites_open_from_the_folders_that_it_makes(tmp_path, llama_folder, secure):
    write_data(tmp_path, {"heart": 3, "skin": 2, "lung": 2})
    sums = {"aggregation": {"secure": {}}, "evaluation": {"attacks": False, "uploads": 0}} if secure else {}
    file, folder = tmp_path / "my.toml", tmp_path / "members"
    file.write_text(experiment(tmp_path, llama_folder, **sums).dump())
    done = CliRunner().invoke(app, ["federation", "new", str(file), str(folder)])
    assert done.exit_code == 0 and len(done.stdout.splitlines()) == 3
    assert sorted(path.name for path in (folder / "@federation").iterdir()) == (
        ["experiment.toml", "roster.json"] if secure else ["experiment.toml"]
    )
    host = open_sites([folder / "heart", folder / "skin"])
    assert {name: site.size for name, site in host.sites.items()} == {"heart": 3, "skin": 2}
    assert all((site.masking is not None) == secure for site in host.sites.values())
    host.close()
    assert CliRunner().invoke(app, ["federation", "new", str(file), str(folder)]).exit_code == 2
