"""``murmura site``: what a site's owner sees."""

import json
import re
from contextlib import closing

import pytest
import torch
from typer.testing import CliRunner

from murmura.cli import app
from murmura.experiment import Experiment
from murmura.experiment.site_side import open_sites
from murmura.experiment.skeleton import OutOfReachError
from murmura.experiment.verbs import fingerprint
from murmura.federation.wire.messages import Ask
from tests.experiment.small import BY_DEFAULT, experiment, write_data


@pytest.fixture
def sites(tmp_path, llama_folder):
    """Folders of sites that ``federation new`` has made."""

    def made(**sections):
        write_data(tmp_path, {"heart": 4, "skin": 3, "lung": 3})
        file, folder = tmp_path / "my.toml", tmp_path / "members"
        measured = BY_DEFAULT | sections.pop("evaluation", {})
        file.write_text(experiment(tmp_path, llama_folder, evaluation=measured, **sections).dump())
        assert site_of("federation", "new", file, "--out", folder).exit_code == 0
        for site in ("heart", "skin", "lung"):
            assert site_of("site", "init", folder / site).exit_code == 0
        assert site_of("federation", "add", folder, *folder.glob("*/public.json")).exit_code == 0
        return folder

    return made


def site_of(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def asked(folder, *verbs):
    """Answers of a site of its own process: its classes of errors, or None."""
    host = open_sites([folder])
    experiment = Experiment.load(folder.parent / "@federation" / "experiment.toml")
    [site] = host.sites.values()
    joining = {"resumed": False, "experiment": fingerprint(experiment), "records": torch.tensor([site.size])}
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
    site_of("site", "consent", folder / "heart")
    asked(folder / "heart", "join", "steal", "commit")
    done = site_of("site", "log", folder / "heart")
    assert done.exit_code == 0
    for told in ("Run f00d", "versions", "kind", "records", "RefusedError", "2 answers have left this site"):
        assert told in done.stdout
    lines = json.loads(site_of("site", "log", folder / "heart", "--json").stdout)
    assert [line["verb"] for line in lines] == ["join", "steal", "commit"]
    assert [len(line.get("fields", [])) for line in lines] == [3, 0, 0]


def test_a_folder_that_is_no_sites_has_no_log(sites, tmp_path):
    """It would say that nothing has ever left."""
    folder = sites()
    for place in (folder, tmp_path):
        done = site_of("site", "log", place)
        assert done.exit_code != 0 and "this is no site's folder" in done.stderr
    assert "0 answers have left" in site_of("site", "log", folder / "heart").stdout


def test_the_log_names_the_first_line_that_was_changed(sites):
    folder = sites()
    site_of("site", "consent", folder / "heart")
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


SECURE = {"aggregation": {"secure": {}}, "evaluation": {"attacks": False, "uploads": 0}}
PRIVATE = {"method": {"name": "dplora", "rounds": 2, "epsilon": 4.0}, "training": {"batch_size": 2}}


def test_show_tells_all_that_a_run_asks_and_needs_no_server(sites):
    folder = sites()
    before = sorted((folder / "heart").iterdir())
    done = site_of("site", "show", folder / "heart")
    assert done.exit_code == 0
    for told in ("heart", "FedAvg", "4, of which a round uses 4 at most", "adapter tensors", "in 2 rounds at most"):
        assert told in done.stdout
    assert "exactly how many records it has (public.json)" in " ".join(done.stdout.split())
    for told in ("on the site's records: attack", "not secure: the server reads each", "none: no ε is promised"):
        assert told in done.stdout
    assert "The site answers nothing of it: the owner has not consented" in done.stdout.replace("\n", " ")
    assert sorted((folder / "heart").iterdir()) == before


def test_show_tells_what_is_promised_for_just_this_sites_records(sites):
    folder = sites(**PRIVATE)
    found = [" ".join(site_of("site", "show", folder / name).stdout.split()) for name in ("heart", "skin")]
    assert "each of the site's 4 records: ε = 4.000" in found[0] or "each of the site's 4 records: ε = 3.9" in found[0]
    assert "each of the site's 3 records: ε = " in found[1] and "An attack that is wrong about 1 %" in found[1]


def test_show_tells_what_a_run_would_make_of_the_sites_budget(sites):
    own = sites(**PRIVATE) / "heart"
    file = own / "site.toml"
    file.write_text(file.read_text().replace("[budget]", '[budget]\nfolder = "account"\nepsilon = 1'))
    limit(own, "ask = false")
    shown = " ".join(site_of("site", "show", own).stdout.split())
    assert "ε = 0.000 of 1 is spent" in shown and "That is too much: " in shown
    assert "Where its budget over all runs, above, lets it, the site answers it: it is within" in shown


def test_show_tells_who_else_is_told(sites):
    own = sites(tracking={"to": ["tensorboard", "mlflow"]}) / "heart"
    assert "tensorboard and mlflow: figures that the run publishes" in site_of("site", "show", own).stdout


def test_show_tells_that_sums_are_secure_and_what_the_keys_are(sites):
    shown = site_of("site", "show", sites(**SECURE) / "heart").stdout
    assert "masks between the sites" in shown and "in each secure sum" in shown and "advertise_keys" in shown


def test_owners_can_compare_the_keys_that_their_sites_go_by(sites):
    folder = sites(**SECURE)
    told = [_roster(folder / site) for site in ("heart", "skin")]
    assert told[0] == told[1]
    path = folder / "@federation" / "roster.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lung": "00" * 32}))
    assert _roster(folder / "heart") != told[0]


def _roster(folder):
    shown = site_of("site", "show", folder).stdout
    assert "of heart, lung and skin: compare it" in " ".join(shown.split())
    [found] = re.findall(r"roster +((?:[0-9a-f]{4} ?){8})", shown)
    return found.strip()


def test_a_site_of_its_own_process_answers_nothing_without_its_owners_consent(sites):
    folder = sites()
    assert asked(folder / "heart", "join") == ["RefusedError"]
    assert "has not consented to this experiment" in (folder / "heart" / "notes.txt").read_text()
    done = site_of("site", "consent", folder / "heart")
    assert done.exit_code == 0 and "adapter tensors" in done.stdout
    assert "The site answers it: its owner consented" in site_of("site", "show", folder / "heart").stdout
    assert asked(folder / "heart", "join", "commit") == [None, None]
    assert asked(folder / "heart", "join") == [None]  # resumed
    assert asked(folder / "skin", "join") == ["RefusedError"]  # another owner


def test_show_tells_for_which_run_a_consent_was(sites):
    own = sites() / "heart"
    site_of("site", "consent", own)
    with closing(open_sites([own])) as host:
        host.sites["heart"].runs.enter("f00d")  # as with the first answer about records
    shown = " ".join(site_of("site", "show", own).stdout.split())
    assert "for run f00d and no other until `murmura site consent` is given again" in shown
    assert "Run f00d was answered by an earlier consent" in " ".join(site_of("site", "consent", own).stdout.split())
    assert "f00d" not in site_of("site", "show", own).stdout


def test_what_a_run_was_answered_is_not_told_as_what_it_would_spend(sites):
    own = sites(**PRIVATE) / "heart"
    file, told = own / "site.toml", "what it has answered is spent already"
    file.write_text(file.read_text().replace("[budget]", '[budget]\nfolder = "account"\nepsilon = 9'))
    site_of("site", "consent", own)
    assert told not in " ".join(site_of("site", "show", own).stdout.split())
    with closing(open_sites([own])) as host:
        host.sites["heart"].runs.enter("f00d")
    assert told in " ".join(site_of("site", "show", own).stdout.split())


def test_an_owner_may_take_consent_back(sites):
    folder = sites()
    site_of("site", "consent", folder / "heart")
    assert "takes back" in site_of("site", "consent", folder / "heart", "--withdraw").stdout
    assert asked(folder / "heart", "join") == ["RefusedError"]
    assert site_of("site", "consent", folder / "nowhere", "--withdraw").exit_code == 2


def test_a_changed_experiment_needs_consent_anew(sites):
    folder = sites()
    site_of("site", "consent", folder / "heart")
    file = folder / "@federation" / "experiment.toml"
    kept = file.read_text()
    file.write_text(kept.replace("rounds = 2", "rounds = 3"))
    assert asked(folder / "heart", "join") == ["RefusedError"]
    site_of("site", "consent", folder / "heart")
    assert asked(folder / "heart", "join") == [None]
    file.write_text(kept)
    assert asked(folder / "heart", "join") == [None]


def test_an_owner_may_have_said_yes_beforehand_to_what_is_within_limits(sites):
    folder = sites()
    limit(folder / "heart", "ask = false")
    assert asked(folder / "heart", "join") == [None]
    assert "within its owner's limits, and nobody is asked" in site_of("site", "show", folder / "heart").stdout
    limit(folder / "skin", "ask = false\nrounds = 1")
    assert asked(folder / "skin", "join") == ["RefusedError"]


def test_no_consent_is_noted_to_what_the_owners_own_limits_exclude(sites):
    folder = sites()
    limit(folder / "heart", "rounds = 1")
    done = site_of("site", "consent", folder / "heart")
    assert done.exit_code == 2 and "the run has 2 rounds" in done.stderr
    assert not (folder / "heart" / "consent.journal").exists()
    assert "answers nothing of it: the run has 2 rounds" in site_of("site", "show", folder / "heart").stdout


def limit(folder, allow):
    file = folder / "site.toml"
    file.write_text(f"{file.read_text()}\n[allow]\n{allow}\n")


def test_without_the_model_a_site_cannot_say_how_many_records_it_takes_part_with(sites, monkeypatch):
    folder = sites()

    def out_of_reach(*_, **__):
        raise OutOfReachError("neither here nor at the hub")

    monkeypatch.setattr("murmura.experiment.forecast.terms.model_spec", out_of_reach)
    (folder / "heart" / "public.json").unlink()
    refused = CliRunner().invoke(app, ["site", "init", str(folder / "heart")])
    assert "the model is not on this machine" in refused.output
    assert not (folder / "heart" / "public.json").exists()
    assert "4 as if each fitted the model" in " ".join(site_of("site", "show", folder / "heart").stdout.split())


def test_a_site_with_other_records_than_it_was_made_known_with_answers_nothing_that_an_epsilon_is_for(sites):
    """By that number the server reckons what an answer may have cost that it has not got."""
    folder = sites(**PRIVATE)
    records = folder / "heart" / "records.jsonl"
    limit(folder / "heart", "ask = false")
    assert asked(folder / "heart", "join") == [None]
    records.write_text("".join(records.read_text().splitlines(keepends=True)[1:]))
    assert asked(folder / "heart", "join") == ["RefusedError"]
    site_of("site", "init", folder / "heart")
    assert asked(folder / "heart", "join") != ["RefusedError"]  # but that its store is about others
