"""A deployment of processes loses no round, whoever is killed."""

import pytest

from tests.integration.deployed import cut_off, trial


@pytest.mark.deployed
def test_a_site_that_is_killed_and_started_again_takes_part_again(tmp_path, llama_folder):
    assert "all" in trial(tmp_path, llama_folder, "site", 1, 1.0)


@pytest.mark.deployed
def test_a_network_that_is_gone_for_a_minute_costs_no_round_and_no_answer(tmp_path, llama_folder):
    assert cut_off(tmp_path, llama_folder, 1, 60) == []
