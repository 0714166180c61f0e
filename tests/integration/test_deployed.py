"""A deployment of processes loses no round, whoever is killed."""

import pytest

from tests.integration.deployed import trial


@pytest.mark.deployed
def test_a_site_that_is_killed_and_started_again_takes_part_again(tmp_path, llama_folder):
    assert "all" in trial(tmp_path, llama_folder, "site", 1, 1.0)
