"""``murmura federation``: what its members hand round, who they are, and that private keys are made at the sites."""

import errno
import json
import re
import socket
from dataclasses import asdict, replace

import pytest
from cryptography import x509
from typer.testing import CliRunner

from murmura.cli import MAY_PASS, MISTAKE, app
from murmura.errors import CheckpointError, RunError
from murmura.experiment import federation
from murmura.experiment.federation import Member
from murmura.experiment.site_side import open_sites
from murmura.federation.address import PORT, joined, split
from murmura.federation.engines.flower import certificates
from murmura.federation.site.identity import read_roster
from murmura.runs.folder import RunFolder
from murmura.training.config import LoraSpec
from tests.experiment.small import BY_DEFAULT, experiment, write_data, write_lines
from tests.pages import ROOT
from tests.report.runs import write_run


@pytest.fixture
def file(tmp_path, llama_folder):
    def made(**sections):
        write_data(tmp_path, {"heart": 3, "skin": 2, "lung": 2})
        path = tmp_path / "my.toml"
        measured = BY_DEFAULT | sections.pop("evaluation", {})
        path.write_text(experiment(tmp_path, llama_folder, evaluation=measured, **sections).dump())
        return path

    return made


@pytest.fixture
def with_heart(file, tmp_path):
    """A federation's folder that knows one of its sites."""
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder)
    murmura("site", "init", folder / "heart")
    murmura("federation", "add", folder, folder / "heart" / "public.json")
    return folder


def murmura(*words, fails=False):
    """What a command prints; it fails, or fails with a status."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == fails if fails > 1 else bool(done.exit_code) == fails, done.output
    return done.output


@pytest.mark.parametrize(
    ("address", "why"),
    [
        *((one, "this is not an address") for one in ("foo:99999", "foo:0", "foo:bar:1", "foo:", "[::1]9")),
        *((one, "this is not an address") for one in ("[::1]:", "::1", "::1:9000")),
        *(
            (one, "no machine can be called so")
            for one in ("", ":9443", "[foo]:1", " foo", "-x", "*.foo", "10.0.0.999", "a..b", "a b")
        ),
        ("bücher.example:9000", "Give it as xn--bcher-kva.example"),
        *((one, "stands for every address") for one in ("0.0.0.0", "[::]:9000")),
    ],
)
def test_an_address_that_is_none_is_refused_before_anything_is_made(file, tmp_path, address, why):
    told = murmura("federation", "new", file(), "--out", tmp_path / "fed", "--address", address, fails=True)
    assert why in " ".join(told.split()) and not (tmp_path / "fed").exists()


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("foo", ("foo", PORT)),
        ("foo:1", ("foo", 1)),
        ("192.0.2.1:80", ("192.0.2.1", 80)),
        ("[::1]", ("::1", PORT)),
        ("clinic_1.example.org.:1", ("clinic_1.example.org.", 1)),
        ("[::1]:1", ("::1", 1)),
    ],
)
def test_an_address_has_a_host_and_may_have_a_port(address, parts):
    assert split(address) == split(joined(*parts)) == parts


def test_an_empty_list_of_sites_shares_nobodys_records_out(file, tmp_path):
    told = murmura("federation", "new", file(), "--out", tmp_path / "fed", "--sites", "", fails=True)
    assert "cannot be a site's name" in told and not (tmp_path / "fed").exists()


def test_a_server_that_cannot_begin_leaves_no_run_behind(with_heart, tmp_path):
    assert "no machine can be called so" in murmura("federation", "certify", with_heart, "a b", fails=True)
    assert "*.example.org" in murmura("federation", "certify", with_heart, "*.example.org")
    taken = socket.create_server(("127.0.0.1", 0))
    for words, why, status in (
        (["--listen", f"127.0.0.1:{taken.getsockname()[1]}"], "Stop what listens there already", MAY_PASS),
        (["--listen", "192.0.2.1:9000"], "Give an address of this machine", MISTAKE),
        (["--quorum", "2"], "a quorum of 2 cannot be reached with 1 known site", MISTAKE),
    ):
        told = murmura("serve", with_heart, *words, "--set", f"run.folder={tmp_path / 'run'}", fails=status)
        assert why in " ".join(told.split()) and not (tmp_path / "run" / "config.toml").exists()
    taken.close()


@pytest.mark.parametrize("kept", ["ended", "ends soon", "damaged", "gone"])
def test_a_server_that_sites_would_not_trust_does_not_begin_and_says_what_to_do(
    with_heart, tmp_path, monkeypatch, kept
):
    """It would wait a day for sites, and then say that they are missing."""
    path, days = with_heart / "server" / "server.crt", {"ended": 0, "ends soon": 29}
    taken = socket.create_server(("127.0.0.1", 0))
    if kept in days:
        monkeypatch.setitem(certificates._DAYS, "server", days[kept])
        murmura("federation", "certify", with_heart)
    elif kept == "damaged":
        path.write_text("no certificate")
    else:
        path.unlink()
    words = ("--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--set", f"run.folder={tmp_path / 'run'}")
    told = murmura("serve", with_heart, *words, fails=MAY_PASS if kept == "ends soon" else MISTAKE)
    taken.close()
    told = " ".join(told.split())
    assert "server.crt: " in told and not (tmp_path / "run" / "config.toml").exists()
    why = {"ended": "certificate ended on", "ends soon": "certificate ends on", "damaged": "this is no certificate"}
    assert why.get(kept, "cannot be read") in told
    assert ("the server cannot listen there" in told) == (kept == "ends soon")
    assert ("murmura federation certify" in told) == (kept != "gone")


@pytest.mark.parametrize(
    ("address", "words", "listening"),
    [
        ("example.org:8443", (), ("0.0.0.0", 8443)),
        ("[2001:db8::1]:8443", (), ("::", 8443)),
        ("example.org:8443", ("--listen", "10.0.0.5"), ("10.0.0.5", 8443)),
        ("example.org:8443", ("--listen", "10.0.0.5:9000"), ("10.0.0.5", 9000)),
    ],
)
def test_a_server_listens_at_the_port_at_which_sites_look_for_it(
    with_heart, tmp_path, monkeypatch, address, words, listening
):
    def run(experiment, *, deployment, **_):
        raise RunError(f"at {deployment.listening}")

    monkeypatch.setattr("murmura.experiment.run.run", run)
    (with_heart / "@federation" / "server.json").write_text(json.dumps({"address": address}))
    assert f"at {listening}" in murmura("serve", with_heart, *words, fails=True)


def test_a_service_begins_a_run_resumes_it_and_leaves_a_finished_one_alone(with_heart, tmp_path, monkeypatch):
    def run(experiment, *, resume, **_):
        raise RunError(f"resume {resume}")

    monkeypatch.setattr("murmura.experiment.run.run", run)
    words = ("serve", with_heart, "--go-on", "--set", f"run.folder={tmp_path / 'run'}")
    assert "resume False" in murmura(*words, fails=True)
    folder = RunFolder(write_run(tmp_path / "run"))
    assert "resume True" in murmura(*words, fails=True)  # it was killed before it had its page
    folder.report.touch()
    own = federation.Federation.load(with_heart).experiment
    folder.config.write_text(own.model_copy(update={"lora": LoraSpec(rank=3)}).dump(), encoding="utf-8")
    assert "resume True" in murmura(*words, fails=True)  # it is another experiment's, which to resume is refused
    folder.config.write_text(own.dump(), encoding="utf-8")
    assert "the run is finished, and there is nothing to do" in " ".join(murmura(*words).split())
    assert "--resume and --go-on exclude each other" in murmura(*words, "--resume", fails=True)


@pytest.mark.parametrize("secure", [False, True])
def test_sites_open_from_the_folders_that_it_makes(file, tmp_path, secure):
    sums = {"aggregation": {"secure": {}}, "evaluation": {"attacks": False, "uploads": 0}} if secure else {}
    folder = tmp_path / "members"
    told = murmura("federation", "new", file(**sums), "--out", folder, "--address", "example.org:1234")
    assert "heart, lung, skin" in told
    shared = {path.name for path in (folder / "@federation").iterdir()}
    assert shared == {"experiment.toml", "ca.crt", "heldout.json", "models.json", "server.json"}
    assert json.loads((folder / "@federation" / "server.json").read_text()) == {"address": "example.org:1234"}
    for site in ("heart", "skin", "lung"):
        assert "records" in murmura("site", "init", folder / site)
    murmura("federation", "add", folder, *folder.glob("*/public.json"))
    assert read_roster(folder / "@federation" / "roster.json").keys() == {"heart", "skin", "lung"}
    host = open_sites([folder / "heart", folder / "skin"])
    assert {name: site.size for name, site in host.sites.items()} == {"heart": 3, "skin": 2}
    assert all((site.masking is not None) == secure for site in host.sites.values())
    host.close()
    assert "this path already exists" in murmura("federation", "new", file(**sums), "--out", folder, fails=True)


@pytest.mark.parametrize("sites", [(), ("--sites", "north,south")])
@pytest.mark.parametrize("step", ["_write", "new_server"])
def test_one_that_could_not_be_made_can_be_made_again(file, tmp_path, monkeypatch, step, sites):
    words = ["federation", "new", file(), "--out", tmp_path / "members", *sites]

    def full(*parts):
        raise CheckpointError("no space is left") if step == "new_server" else OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(federation, step, full)
        assert "no space" in murmura(*words, fails=True).lower()
    assert not (tmp_path / "members").exists()
    murmura(*words)


def test_sites_make_their_keys_themselves(file, tmp_path):
    """In a federation whose records are shared out, too: who founds it could else speak for its sites."""
    folder = tmp_path / "members"
    murmura(
        "federation",
        "new",
        file(aggregation={"secure": True}, evaluation={"attacks": False, "uploads": 0}),
        "--out",
        folder,
    )
    assert not [*folder.rglob("identity.pem"), *folder.rglob("roster.json")]
    assert (folder / "heart" / "site.toml").exists()
    page = " ".join((ROOT / "docs" / "secure_sum.md").read_text(encoding="utf-8").split())
    assert "makes the roster, and so do `murmura federation add` and `murmura federation remove`" in page


def test_a_deployment_is_none_of_another_engine(with_heart):
    """Whose checks are those of a simulation, in which nobody sees who is asked."""
    for engine in ("local", "processes"):
        assert "reached by 'flower'" in murmura("serve", with_heart, "--set", f"run.engine={engine}", fails=True)


def test_a_deployment_has_no_workers(with_heart):
    words = ("serve", with_heart, "--quorum", 99, "--set", "run.workers=2")  # so many would never be there
    assert "have no workers. Leave it out." in murmura(*words, fails=True)


@pytest.mark.parametrize("option", ["data.heldout=other.jsonl", "data.max_length=64", "data={}"])
def test_a_run_is_measured_on_the_records_of_its_federation(with_heart, option):
    told = " ".join(murmura("serve", with_heart, "--set", option, fails=True).split())
    assert f"--set {option.partition('=')[0]}" in told and "server/heldout.jsonl" in told


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"budget": {"folder": "accounts", "epsilon": 2.0}}, "write it into the site's site.toml"),
        ({"data": {"skip_bad": True}}, "data.skip_bad"),
        (
            {"data": {"few_shot": {"clusters": 2}, "sites": {"by": "partition", "count": 2, "scheme": "iid"}}},
            "data.few_shot",
        ),
        ({"data": {"sites": {"records": 2}}}, "data.sites.records"),
    ],
)
def test_what_sites_with_records_of_their_own_would_not_do_is_refused(file, tmp_path, sections, told):
    made = murmura("federation", "new", file(**sections), "--out", tmp_path / "fed", "--sites", "one,two", fails=True)
    assert told in " ".join(made.split()) and not (tmp_path / "fed").exists()


def test_no_private_key_is_in_what_is_handed_round(with_heart):
    for path in [*(with_heart / "@federation").iterdir(), with_heart / "heart" / "public.json"]:
        assert b"PRIVATE" not in path.read_bytes()
    for name in ("identity.pem", "flower.key"):
        assert (with_heart / "heart" / name).stat().st_mode & 0o077 == 0


def test_the_guide_tells_where_records_are_among_what_is_sent_to_owners(file, tmp_path):
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder)
    assert sorted(path.name for path in (folder / "heart").iterdir()) == ["records.jsonl", "site.toml"]
    guide = " ".join((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8").split())
    sent = guide.partition("Send each owner `@federation`")[2].partition("nothing in them is secret")[0]
    assert "A site's folder with `records.jsonl` is for nobody but its owner." in sent


def test_sites_with_records_of_their_own_get_a_file_to_fill_in(file, tmp_path):
    folder = tmp_path / "runs" / "members"  # in a folder that is not there either
    murmura("federation", "new", file(), "--out", folder, "--sites", "north, south")
    assert sorted(path.name for path in (folder / "north").iterdir()) == ["site.toml"]
    rows = [{"instruction": f"explain number {k}", "output": f"it is {k}"} for k in range(4)]
    held = json.loads((tmp_path / "heldout.jsonl").read_text().splitlines()[0])  # a record that is measured on
    write_lines(folder / "north" / "records.jsonl", [*rows, held])
    told = murmura("site", "init", folder / "north")
    assert "1 record that the run is measured on is left out: " in " ".join(told.split())
    assert "records.jsonl:5" in told and "a site has too" not in told  # its own, and the held-out one stays
    assert json.loads(told[told.index("{") : told.index("}") + 1])["records"] == 4
    assert "records.jsonl" in murmura("site", "init", folder / "south", fails=True)


def test_the_certificate_of_the_server_is_for_its_address_and_can_be_made_anew(file, tmp_path):
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder, "--address", "one.example:9443")
    path = folder / "server" / "server.crt"

    def names():
        found = x509.load_pem_x509_certificate(path.read_bytes()).extensions
        return found.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)

    assert names() == ["one.example", "localhost"]
    authority = (folder / "@federation" / "ca.crt").read_bytes()
    murmura("federation", "certify", folder, "two.example")
    assert names() == ["one.example", "two.example", "localhost"]
    assert (folder / "@federation" / "ca.crt").read_bytes() == authority


def test_owner_and_server_see_one_fingerprint_of_all_that_a_site_is_known_by(file, tmp_path):
    folder, form = tmp_path / "members", r"(?:[0-9a-f]{4} ){7}[0-9a-f]{4}"
    murmura("federation", "new", file(), "--out", folder)
    for site in ("heart", "skin"):
        own = re.findall(form, " ".join(murmura("site", "init", folder / site).split()))
        known = murmura("federation", "add", folder, folder / site / "public.json")
        assert len(own) == 1 and own[0] in next(line for line in known.splitlines() if line.startswith(f"{site}: "))
    heart, skin = (Member(**json.loads((folder / site / "public.json").read_text())) for site in ("heart", "skin"))
    others = [replace(heart, **{name: value}) for name, value in (asdict(skin) | {"records": 99}).items()]
    assert len({one.fingerprint for one in [heart, *others]}) == 5
    (folder / "heart" / "flower.key").unlink()
    murmura("site", "init", folder / "heart")
    told = murmura("federation", "add", folder, folder / "heart" / "public.json", fails=True)
    assert len(set(re.findall(form, " ".join(told.split())))) == 2  # though its identity is the same


def test_sites_leave_and_get_new_keys(file, tmp_path):
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder)
    for site in ("heart", "skin"):
        murmura("site", "init", folder / site)
    murmura("federation", "add", folder, *folder.glob("*/public.json"))
    before = read_roster(folder / "@federation" / "roster.json")
    (folder / "heart" / "identity.pem").unlink()
    murmura("site", "init", folder / "heart")
    assert "--replace" in murmura("federation", "add", folder, folder / "heart" / "public.json", fails=True)
    assert read_roster(folder / "@federation" / "roster.json") == before
    murmura("federation", "add", folder, folder / "heart" / "public.json", "--replace")
    after = read_roster(folder / "@federation" / "roster.json")
    assert after["heart"] != before["heart"] and after["skin"] == before["skin"]
    assert "heart" not in murmura("federation", "remove", folder, "heart")
    assert read_roster(folder / "@federation" / "roster.json").keys() == {"skin"}
    assert "does not know" in murmura("federation", "remove", folder, "heart", fails=True)


@pytest.mark.parametrize("full", ["members.json", "roster.json"])
def test_whom_a_full_disk_kept_from_leaving_or_coming_leaves_or_comes_when_it_is_repeated(
    with_heart, monkeypatch, full
):
    murmura("site", "init", with_heart / "skin")
    write = federation._write

    def failing(path, text):
        if path.name == full:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, text)

    for words, left in (
        (("add", with_heart, with_heart / "skin" / "public.json"), {"heart", "skin"}),
        (("remove", with_heart, "heart"), {"skin"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(federation, "_write", failing)
            assert "No space left" in " ".join(murmura("federation", *words, fails=MAY_PASS).split())
        murmura("federation", *words)
        members = json.loads((with_heart / "server" / "members.json").read_text())
        assert members.keys() == read_roster(with_heart / "@federation" / "roster.json").keys() == left


def test_sites_are_made_known_where_there_is_a_federation(with_heart, tmp_path):
    told = murmura("federation", "add", tmp_path / "nowhere", with_heart / "heart" / "public.json", fails=True)
    assert "nowhere: there is no federation here. Name the folder that" in told and not (tmp_path / "nowhere").exists()


def test_two_sites_cannot_have_one_key(file, tmp_path):
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder)
    murmura("site", "init", folder / "heart")
    told = json.loads((folder / "heart" / "public.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(told | {"site": "skin"}))
    both = [folder / "heart" / "public.json", tmp_path / "other.json"]
    assert "the same key" in murmura("federation", "add", folder, *both, fails=True)
    assert not (folder / "@federation" / "roster.json").exists()


WRONG = ["", "{}", "[]", '{"site": "a", "records": 0, "identity": "00", "node": "x"}']
WRONG += ['{"site": "a", "records": 1e400, "identity": "00", "node": "x"}', "[" * 3000 + "]" * 3000]


@pytest.mark.parametrize("text", WRONG, ids=len)
def test_what_does_not_make_a_site_known_is_refused(file, tmp_path, text):
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder)
    (tmp_path / "wrong.json").write_text(text)
    told = murmura("federation", "add", folder, tmp_path / "wrong.json", fails=True)
    assert "does not make a site known" in told and "wrong.json" in told.replace("\n", "")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[2J", "a\u202eb"])
def test_a_site_whose_name_nobody_could_read_is_not_made_known(with_heart, tmp_path, name):
    told = json.loads((with_heart / "heart" / "public.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(told | {"site": name}))
    told = murmura("federation", "add", with_heart, tmp_path / "other.json", fails=True)
    assert "does not make a site known" in told and "\x1b" not in told


@pytest.mark.parametrize("sites", ["server", "a,a", "a,,b", "a\x1b[2J,b", "Klinik\u00a0Nord"])
def test_names_that_cannot_be_a_sites_are_refused(file, tmp_path, sites):
    assert "cannot be a site's name" in murmura(
        "federation", "new", file(), "--out", tmp_path / "members", "--sites", sites, fails=True
    )
    assert not (tmp_path / "members").exists()


def test_records_of_a_site_do_not_come_to_lie_among_the_servers_keys(file, tmp_path):
    made = file()
    (tmp_path / "sites" / "skin.jsonl").rename(tmp_path / "sites" / "server.jsonl")
    told = murmura("federation", "new", made, "--out", tmp_path / "members", fails=True)
    assert "'server' cannot be a site's name" in told and not (tmp_path / "members").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"heart": {}}'])
def test_damaged_members_are_told_and_left_as_they_are(file, tmp_path, text):
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder)
    murmura("site", "init", folder / "heart")
    damaged = folder / "server" / "members.json"
    damaged.write_text(text)
    for words in (
        ("federation", "add", folder, folder / "heart" / "public.json"),
        ("federation", "remove", folder, "heart"),
        ("serve", folder),
    ):
        assert "this is not what was written" in murmura(*words, fails=True)
    assert damaged.read_text() == text


def test_what_is_measured_on_cannot_come_out_of_records_elsewhere(file, tmp_path):
    made = file(data={"heldout": None, "heldout_records": 2})
    told = murmura("federation", "new", made, "--out", tmp_path / "members", "--sites", "a,b", fails=True)
    assert "data.heldout" in told


def test_a_federation_without_known_sites_is_not_served(file, tmp_path):
    folder = tmp_path / "members"
    murmura("federation", "new", file(), "--out", folder)
    assert "no federation here with a site that is known" in murmura("serve", folder, fails=True)
    assert "no federation here" in murmura("serve", tmp_path, fails=True)
