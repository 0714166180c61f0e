"""Sites on machines of their own give what a simulation gives, over a real SuperLink with TLS and keys."""

import errno
import ssl

import httpx
import pytest
import torch
from safetensors.torch import load_file

from murmura import atomic
from murmura.errors import DataError, RunError
from murmura.experiment.consent import consent, digest_of, withdraw
from murmura.experiment.federation import Federation, admit, expel, introduce
from murmura.experiment.run import run
from murmura.report.run_facts import facts
from murmura.report.table import table
from murmura.runs import read
from murmura.runs.schema import Exclusions
from tests.augment.public import embedded_pool, public, save_encoder
from tests.experiment import small
from tests.experiment.deployed import Near, Tried, founded
from tests.experiment.small import METHODS, WRITING
from tests.federation.engines.flowered import Link
from tests.federation.engines.wired import Wired
from tests.training.helpers import EPS

SECURE = {"aggregation": {"secure": {"range": 1.0, "weight": 100}}}
CASES = {
    "scaffold": ({}, {"aggregation": {"local": "scaffold"}}),
    "secure": ({}, SECURE),
    "fewfedpit": ({"name": "fewfedpit", **WRITING}, {}),
    "dplora": (METHODS["dplora"], {}),
    "lpfl": (METHODS["lpfl"], {"data": {"train": "labelled", "heldout": "public.jsonl"}, "evaluation": {"sample": 16}}),
}


def adapters(folder):
    return {str(f.relative_to(folder)): load_file(f) for f in (folder / "adapter").rglob("adapter_model.safetensors")}


@pytest.fixture
def trial(make, tmp_path, no_page):
    small.write_both(tmp_path)

    def go(method, **sections):
        sections["training"] = {"eps": EPS}
        sections["evaluation"] = {
            "every": 9,
            "sample": 1,
            "uploads": 0,
            "attacks": False,
            **sections.get("evaluation", {}),
        }
        sections["method"] = method | {"rounds": 2}
        alone = run(make(run={"folder": str(tmp_path / "alone")}, **sections)).folder
        federation = founded(make(**sections), tmp_path / "federation")
        apart = run(federation.experiment, deployment=Tried(federation)).folder
        return alone, apart

    return go


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow if one == "secure" else pytest.mark.deployed) for one in CASES]
)
def test_a_run_on_many_machines_gives_the_adapters_of_a_simulation(trial, name):
    method, sections = CASES[name]
    alone, apart = map(adapters, trial(method, **sections))
    assert alone and alone.keys() == apart.keys()
    for file in alone:
        torch.testing.assert_close(apart[file], alone[file], rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_whoever_holds_the_certificate_of_the_authority_can_start_nothing(tmp_path):
    """As stock Flower lets anybody: start a run, whose code every SuperNode executes, and take a server's token."""
    from murmura.federation.engines.flower.bundle import command, project

    link = Link.of_tests()
    told = f'[superlink.there]\naddress = "127.0.0.1:{link.superlink.port}"\nroot-certificates = "{link.authority}"\n'
    (tmp_path / "config.toml").write_text(f'[superlink]\ndefault = "there"\n{told}')
    app = project(tmp_path / "app")
    with pytest.raises(RunError, match="403 Forbidden"):
        command(["flwr", "run", str(app), "there"], tmp_path)
    verifying = ssl.create_default_context(cafile=str(link.authority))
    answer = httpx.post(f"https://127.0.0.1:{link.superlink.port}/v1/runtime/acquire-task", verify=verifying)
    assert answer.status_code == 403


@pytest.mark.deployed
def test_sites_on_many_machines_are_given_the_public_records_of_a_simulation(trial, tokenizer, tmp_path):
    encoder = save_encoder(tmp_path / "encoder", tokenizer)
    pool = embedded_pool(tmp_path / "pool", encoder, public(30))
    chosen = {"pool": str(pool.folder), "records": 4, "strategy": "feddca", "clusters": 2, "alpha": 0}
    alone, apart = trial({}, augment=chosen)
    assert read(apart).augment == read(alone).augment
    for file, state in adapters(alone).items():
        torch.testing.assert_close(adapters(apart)[file], state, rtol=1e-4, atol=1e-6)


@pytest.mark.deployed
def test_sites_on_many_machines_have_the_models_of_their_own_that_a_simulation_has(trial):
    alone, apart = trial({}, personal={"steps": 2, "heldout": 0.5}, **SECURE)
    one, two = read(alone).personal, read(apart).personal
    assert [(row.site, row.records) for row in one] == [(row.site, row.records) for row in two] and len(one) == 3
    for here, there in zip(one, two, strict=True):
        assert (there.before, there.shared, there.personal) == pytest.approx(
            (here.before, here.shared, here.personal), rel=1e-4
        )
    for site in ("heart", "skin", "lung"):
        [left] = apart.parent.glob(
            f"{site}/**/adapter_model.safetensors"
        )  # where its owner finds it, not at the server
        state = load_file(alone / "sites" / site / "adapter_model.safetensors")
        torch.testing.assert_close(load_file(left), state, rtol=1e-4, atol=1e-6)
    assert not (apart / "sites").exists()


def test_a_report_says_of_real_sites_what_the_server_knows(make, tmp_path, no_page):
    small.write_data(tmp_path, {"heart": 3, "skin": 3, "lung": 3})
    quiet = {"evaluation": {"every": 9, "uploads": 0, "attacks": False}, "data": {"sites": {"records": 2}}}
    federation = founded(make(**quiet), tmp_path / "many")
    withdraw(federation.folder / "lung")
    near = Near(federation, quorum=2)
    found = read(run(federation.experiment, deployment=near).folder)
    near.leave()
    assert {(one.records, one.used, one.truncated, one.dropped) for one in found.sites} == {(None, 2, None, None)}
    assert found.exclusions == Exclusions(None, None, 0, None, None, None)
    assert facts(table([found]))["Sites"] == "2 of 3 took part; lung answered nothing"


QUIET = {"evaluation": {"every": 9, "uploads": 0, "attacks": False}}
GIVEN_NOISE = {"name": "dplora", "rounds": 2, "noise_multiplier": 4.0}


def test_a_site_that_was_made_known_anew_takes_part_once_the_server_knows_its_number_of_records(
    make, tmp_path, no_page
):
    small.write_data(tmp_path, {"heart": 8, "skin": 8, "lung": 8})
    federation = founded(make(GIVEN_NOISE, training={"batch_size": 2, "max_steps": 1}, **QUIET), tmp_path / "many")
    own = federation.folder / "heart"
    lines = (own / "records.jsonl").read_text().splitlines(keepends=True)
    (own / "records.jsonl").write_text("".join(lines[:4]))
    introduce(own, "heart", 4)
    before = Near(federation, quorum=2)
    found = run(federation.experiment, deployment=before)
    assert "the server reckons with 8" in (own / "notes.txt").read_text()
    assert not (own / "privacy.journal").exists() and (own.parent / "skin" / "privacy.journal").exists()
    admit(federation.folder, [own / "public.json"])
    known = Federation.load(federation.folder, {"run.engine": "flower", "run.folder": str(found.folder)})
    before.leave()
    for one in ("skin", "lung"):  # which have answered a run
        consent(own.parent / one, digest_of(known.experiment, known.folder / "@federation"), "")
    after = Near(known)
    again = run(known.experiment, overwrite=True, deployment=after)
    after.leave()
    assert (own / "privacy.journal").exists()
    assert again.rows[-1]["privacy"]["epsilon"] > found.rows[-1]["privacy"]["epsilon"]


class Living(Near):
    """One whose sites' process stays when a run has ended."""

    def connect(self, folder):
        return Wired(self.host, workers=1) if hasattr(self, "host") else super().connect(folder)


def test_a_second_run_takes_a_consent_and_a_new_process_and_says_which_lacks(make, tmp_path, no_page):
    federation = founded(make(**QUIET), tmp_path / "many")
    own, near = federation.folder / "heart", Living(federation)
    run(federation.experiment, deployment=near)
    with pytest.raises(RunError, match=r"did not join.*notes\.txt in the site's folder, and what") as error:
        run(federation.experiment, overwrite=True, deployment=near)
    assert error.value.passing
    assert "`murmura site consent`, given again" in (own / "notes.txt").read_text()
    for site in federation.members:
        consent(federation.folder / site, digest_of(federation.experiment, federation.folder / "@federation"), "")
    with pytest.raises(RunError, match="did not join"):
        run(federation.experiment, overwrite=True, deployment=near)
    assert "start the site again: `murmura site start`" in (own / "notes.txt").read_text()
    near.leave()
    after = Near(federation)
    run(federation.experiment, overwrite=True, deployment=after)
    after.leave()


def test_a_full_disk_at_a_site_is_told_there_and_to_the_server_by_its_class(
    make, tmp_path, no_page, monkeypatch, capsys
):
    """Not in its notes, which are on that disk."""
    federation, append = founded(make(**QUIET), tmp_path / "many"), atomic.append

    def full(path, data):
        if path.parent.name == "heart":
            raise OSError(errno.ENOSPC, "No space left on device")
        append(path, data)

    monkeypatch.setattr(atomic, "append", full)
    near = Near(federation)
    with pytest.raises(RunError, match=r"site heart did not answer 'join': CheckpointError\. Look at"):
        run(federation.experiment, deployment=near)
    near.leave()
    assert "heart/released.journal: " in (told := capsys.readouterr().err) and "No space left on device" in told


def test_a_run_is_measured_with_the_records_that_its_federation_was_made_with(make, tmp_path):
    """Others sites may train on; and without non-members held-out records would serve as such, without a word."""
    federation = founded(make(), tmp_path / "federation")
    held, nonmembers = (federation.folder / "server" / f"{name}.jsonl" for name in ("heldout", "nonmembers"))
    before = held.read_text()
    held.write_text(before.splitlines()[0] + "\n" + (tmp_path / "sites" / "heart.jsonl").read_text())
    with pytest.raises(DataError, match=r"heldout\.jsonl: .*6 records here.*sites may train on them"):
        Federation.load(federation.folder)
    held.write_text(before)
    nonmembers.unlink()
    with pytest.raises(DataError, match=r"nonmembers\.jsonl: .*cannot be read.*Restore it"):
        Federation.load(federation.folder)


def test_a_run_does_not_go_on_without_a_member_that_was_removed(make, tmp_path, no_page):
    federation = founded(make(**QUIET), tmp_path / "many")
    near = Near(federation)
    folder = run(federation.experiment, deployment=near).folder
    near.leave()
    expel(federation.folder, "skin")
    known = Federation.load(federation.folder, {"run.engine": "flower", "run.folder": str(folder)})
    with pytest.raises(DataError, match=r"site skin: this site is no member of the federation any more.*--overwrite"):
        run(known.experiment, resume=True, deployment=Near(known))
