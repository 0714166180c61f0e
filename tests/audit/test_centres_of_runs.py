"""Runs whose sites send centres: what is kept and found of these, and what is promised where they are noisy."""

import json
import shutil
import stat

import pytest

from murmura.audit.run import Options, audit
from murmura.augment.noise import planned
from murmura.errors import PrivacyError
from murmura.experiment.config import Experiment
from murmura.experiment.run import run
from murmura.privacy import odometer, run_ledgers
from murmura.report.page import render
from murmura.runs import read
from murmura.runs.names import AUDIT_SCORES
from tests.augment.public import embedded_pool, public, save_encoder
from tests.experiment import small
from tests.privacy.folders import run_folder
from tests.privacy.plans import RECORDS


@pytest.fixture(scope="module")
def pool(tokenizer, tmp_path_factory):
    encoder = save_encoder(tmp_path_factory.mktemp("encoder"), tokenizer)
    return embedded_pool(tmp_path_factory.mktemp("pool"), encoder, public(12))


@pytest.fixture(scope="module")
def finished(pool, tmp_path_factory, llama_folder):
    """A run for each noise multiplier."""

    def made(noise_multiplier):
        folder = tmp_path_factory.mktemp("run")
        small.write_data(folder)
        noise = {"noise_multiplier": noise_multiplier, "every": 1} if noise_multiplier else {}
        experiment = small.experiment(
            folder,
            llama_folder,
            {"rounds": 2 if noise_multiplier else 1},
            augment={"pool": str(pool.folder), "records": 2, "clusters": 6, "alpha": 0, **noise},
            evaluation={"attacks": False, "sample": 1, "every": 9},
            audit={"keep": True},
        )
        return run(experiment).folder

    return {noise: made(noise) for noise in (None, 1.0)}


def test_centres_of_single_records_are_found_to_be_those(finished):
    found = audit(finished[None], Options(texts=0))
    [centres] = found.centres
    single, every = centres.groups[0], centres.groups[-1]
    assert (centres.kind, centres.pool, centres.records) == ("sent", 12, 9)
    assert (single.least, single.most, single.own) == (1, 1, 1.0) and single.centres >= 3
    assert every.centres == 9 and every.own >= single.centres / 9  # six of heart, three of skin, once
    lines = [json.loads(line) for line in (finished[None] / AUDIT_SCORES).read_text().splitlines()]
    assert sum(line.get("target") == "centres, sent" for line in lines) == 9
    page = render([read(finished[None])])
    assert "Centres as sites sent them" in page and "A centre of a single record is that record’s vector" in page
    assert found.caveat is None and not any("Centres of sites’" in one for one in found.missing)


def test_of_noisy_centres_the_same_clusters_without_noise_are_attacked_too(finished):
    found = audit(finished[1.0], Options(texts=0))
    sent, exact = found.centres
    assert (sent.kind, exact.kind) == ("sent", "exact")
    assert sent.groups[-1].own <= exact.groups[-1].own and exact.groups[0].own == 1.0
    assert exact.groups[-1].centres == 9  # of each of two rounds
    assert "covers none of this" in found.caveat


def test_the_epsilon_of_noisy_centres_is_that_of_their_ledgers_and_not_the_runs(finished):
    record = read(finished[1.0])
    config = Experiment.load(finished[1.0] / "config.toml").augment
    first, last = record.augment
    assert first.guarantee.epsilon == planned(config, 1).epsilon().value
    assert last.guarantee.epsilon == planned(config, 2).epsilon().value and last.guarantee.refused is None
    assert last.alone is None
    assert not record.last.privacy and "epsilon" not in record.last.values
    with pytest.raises(PrivacyError, match="no privacy was promised"):
        odometer.totals([run_ledgers.read(finished[1.0])])
    for site in small.SIZES:
        path = finished[1.0] / "private" / site / "centres.journal"
        assert path.is_file() and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert not (path.parent / "privacy.journal").exists()
    page = render([record])
    assert "It covers the centres and nothing else" in page and "only centres and sizes left with noise" in page
    assert "<h2>What is guaranteed</h2>" not in page


def test_beside_a_run_that_keeps_its_promise_one_with_noisy_centres_is_named_and_no_total_is_told(finished, tmp_path):
    noisy = run_ledgers.read(finished[1.0])
    kept = run_ledgers.read(run_folder(tmp_path / "kept", noisy.records, dict.fromkeys(noisy.records, RECORDS)))
    assert all(one.epsilon for one in odometer.totals([kept]))
    found = odometer.totals([kept, noisy])
    assert {(one.epsilon, one.refused) for one in found} == {
        (None, f"{finished[1.0]} used these records, and promised no privacy")
    }
    assert odometer.anywhere([kept, noisy], "record") is None


def test_without_what_a_curious_server_keeps_centres_are_not_attacked(finished, tmp_path):
    copy = shutil.copytree(finished[None], tmp_path / "copy")
    shutil.rmtree(copy / "private" / "@run" / "rounds")
    found = audit(copy, Options(texts=0))
    assert found.centres == () and any(
        "the run kept none. With `[audit] keep = true` it would" in one for one in found.missing
    )


def test_a_pool_that_is_gone_is_told_and_the_rest_is_audited(finished, tmp_path):
    copy = shutil.copytree(finished[None], tmp_path / "copy")
    text = (copy / "config.toml").read_text()
    experiment = Experiment.load(copy / "config.toml")
    (copy / "config.toml").write_text(text.replace(experiment.augment.pool, str(tmp_path / "nowhere")))
    found = audit(copy, Options(texts=0))
    assert found.models and found.centres == ()
    assert any("Centres of sites’ records were not attacked" in one and "nowhere" in one for one in found.missing)
