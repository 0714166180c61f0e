"""What is shipped for services and containers parses, and names commands, options and files that there are."""

import configparser
import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

import murmura
from murmura.cli import INTERRUPTED, MISTAKE, app

ROOT = Path(murmura.__file__).parents[2]
UNITS = sorted((ROOT / "deploy").glob("*.service"))


def command(words):
    """The command that some words give, or a failure that says which one there is not."""
    found = get_command(app)
    for word in words:
        if not hasattr(found, "commands") or word not in found.commands:
            break
        found = found.commands[word]
    assert not hasattr(found, "commands"), f"{words} names no command"
    return found


def options(found):
    return {name for parameter in found.params for name in parameter.opts} | {"--help"}


def parsed(unit):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(unit)
    return parser


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_units_run_commands_that_there_are(unit):
    parser = parsed(unit)
    assert {"Unit", "Service", "Install"} <= set(parser.sections())
    program, *words = parser["Service"]["ExecStart"].split()
    assert program == "/opt/murmura/bin/murmura"
    found = command(words)
    assert {word for word in words if word.startswith("--")} <= options(found)
    ends_well = parser["Service"].get("SuccessExitStatus", "0").split()
    assert parser["Service"]["RestartPreventExitStatus"].split() == [str(MISTAKE)]  # and after MAY_PASS it is restarted
    assert int(parser["Unit"]["StartLimitBurst"]) <= 10  # then it stays down, and costs nothing more
    assert parser["Unit"]["StartLimitIntervalSec"] in ("1d", "7d")  # longer than so many starts take
    assert str(INTERRUPTED) in ends_well  # of a site that is SIGINT alone, of the server SIGTERM too


def test_the_guide_makes_the_user_the_home_and_the_program_of_the_units():
    guide = (ROOT / "docs" / "deploy.md").read_text()
    lines = next(block for block in re.findall(r"```sh\n(.*?)```", guide, re.DOTALL) if "useradd" in block)
    steps = [line.split("#")[0].split() for line in lines.splitlines()]
    programs = [step[0] for step in steps]
    added, login = (steps[programs.index(program)] for program in ("useradd", "su"))
    user, home, program = added[-1], added[added.index("--home-dir") + 1], f"{steps[1][-1]}/bin/murmura"
    assert login[-1] == user and "--login" in login and steps[1][:3] == ["python3", "-m", "venv"]
    assert programs[programs.index("su") + 1 :] == [program]  # what root fetched the user would not find
    assert program not in programs[: programs.index("su")]
    for service in (parsed(unit)["Service"] for unit in UNITS):
        assert (service["User"], service["WorkingDirectory"], service["ReadWritePaths"]) == (user, home, home)
        assert service["ExecStart"].split()[0] == program


def test_the_guide_says_after_which_status_units_stay_down():
    rows = re.findall(r"^\| (\d+) \|.*\| (.*) \|$", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE)
    down = {status for status, what in rows if what == "stay down"}
    for service in (parsed(unit)["Service"] for unit in UNITS):
        named = f"{service['RestartPreventExitStatus']} {service['SuccessExitStatus']}"
        assert down == {"0", *named.split()} and service["Restart"] == "on-failure"


def test_the_compose_file_runs_commands_that_there_are():
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())["services"]
    assert set(services) == {"server", "site"}
    for service in services.values():
        found = command(service["command"])
        assert {word for word in service["command"] if word.startswith("--")} <= options(found)
        assert (ROOT / service["build"]["dockerfile"]).exists()
    assert "--go-on" in services["server"]["command"]  # else each restart would end at the run that is there


def test_containers_run_programs_from_temporary_folders_and_may_write_to_their_volumes():
    """A service has no other rights than its user; and a new volume belongs to whom its place in the image does."""
    file = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text())
    image = (ROOT / "deploy" / "Containerfile").read_text().split("\nVOLUME")[0]
    image = image.split("USER murmura\nWORKDIR /home/murmura\n")[1]
    made = " ".join(re.findall(r"^RUN mkdir (.*)$", image, re.MULTILINE)).split()
    assert file["volumes"].keys() == {"runs", "cache"}
    for service in file["services"].values():
        places = dict(volume.rsplit(":", 1) for volume in service["volumes"])
        assert {place for name, place in places.items() if name in file["volumes"]} <= {
            f"/home/murmura/{name}" for name in made
        }
        for place in service["tmpfs"]:
            assert "exec" in place.partition(":")[2].split(",")


def test_the_container_file_copies_what_there_is_and_installs_an_extra_that_there_is():
    text = (ROOT / "deploy" / "Containerfile").read_text()
    for line in re.findall(r"^COPY (.*)$", text, re.MULTILINE):
        *sources, _ = line.split()
        assert all((ROOT / source).exists() for source in sources)
    assert "'.[flower]'" in text and 'flower = ["flwr' in (ROOT / "pyproject.toml").read_text()


def test_the_guide_names_commands_and_options_that_there_are():
    text = (ROOT / "docs" / "deploy.md").read_text()
    told = re.findall(r"`(murmura [^`]+)`", text)
    told += [line.split("#")[0] for line in text.splitlines() if line.startswith("murmura ")]
    assert len(told) > 10
    for words in map(str.split, told):
        found = command(words[1:])
        assert {word for word in words if word.startswith("--")} <= options(found), words
