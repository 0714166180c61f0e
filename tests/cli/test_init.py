import re
import subprocess
import sys
import tomllib
from functools import cache

import pytest
from typer.testing import CliRunner

from murmura import methods
from murmura.augment.config import AugmentConfig
from murmura.cli import MISTAKE, app
from murmura.config import sections_in
from murmura.errors import ConfigError
from murmura.experiment import Experiment
from murmura.experiment.every_option import needs
from murmura.experiment.names import named, names
from murmura.experiment.presets import presets
from murmura.experiment.starter import starter
from murmura.measure.benchmarks.config import BenchmarksConfig
from murmura.measure.config import ChoicesConfig
from tests.pages import EXAMPLES

OF_INSTRUCTIONS = (AugmentConfig, BenchmarksConfig, ChoicesConfig)
TABLE, OPTION = re.compile(r"(# )?\[([\w.]+)\]"), re.compile(r"(?:# )?(\w+) = ")
SIZES = {
    "rounds": 4,
    "population": 64,
    "text_tokens": 40,
    "lookahead": 2,
    "variation": "continue",
    "variation_model": "smollm2-135m",
    "samples": 256,
    "sample_tokens": 48,
}


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    """A machine with two cores and no GPU."""
    monkeypatch.setattr("murmura.experiment.starter._cores", lambda: 2)
    monkeypatch.setattr("murmura.experiment.starter._has_gpu", lambda: False)


def invoke(*words):
    return CliRunner().invoke(app, ["init", *words])


@cache
def every(name):
    """The starter, made once: a test reads it for every option."""
    return starter(name, every=True)


def expected(method):
    suited = {"training": {"lr": 1e-3, "max_steps": 15}} if method == "lpfl" else {}
    needed = {"public": "FILE"} | SIZES if method == "pretext" else {}
    return Experiment.of(
        {"data": {"train": "FOLDER", "heldout_records": 28}, "method": {"name": method, **needed}} | suited
    )


@pytest.mark.parametrize("method", methods.METHODS)
@pytest.mark.parametrize("whole", [False, True])
def test_a_starter_has_every_default(method, whole):
    assert Experiment.of(tomllib.loads(starter(method, every=whole))) == expected(method)


@pytest.mark.parametrize("method", methods.METHODS)
def test_without_all_there_are_the_lines_that_a_person_needs(method):
    lines = [line for line in starter(method).splitlines() if line and not line.startswith("#")]
    assert 10 <= len(lines) <= 24
    text = starter(method)
    assert 'train = "FOLDER"' in text and f'name = "{method}"' in text and f"murmura init {method} --all" in text
    assert "\nrounds = " in text and "\nheldout_records = " in text


@pytest.mark.parametrize("method", ["dplora", "dpfedavg", "dpftrl", "pretext"])
def test_what_a_run_may_spend_is_among_them(method):
    assert re.search(r"^epsilon = [\d.]+ ", starter(method), re.MULTILINE)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("whole", [False, True])
def test_every_name_gives_an_experiment_of_what_it_stands_for(name, whole):
    what, text = named(name), starter(name, every=whole)
    table = tomllib.loads(text)
    assert Experiment.of(table).method.name == what.method
    for key, value in what.options.items():
        section, _, option = key.partition(".")
        found = table[section][option]
        assert (found["kind"] if isinstance(found, dict) else found) == value
    methods.build(Experiment.of(table).method, Experiment.of(table).aggregation)
    assert whole or len(text.splitlines()) < 45


@pytest.mark.parametrize(
    ("name", "method", "option", "value"),
    [
        ("DP-FedAvg", "dpfedavg", None, None),
        ("dp-lora", "dplora", None, None),
        ("FedDCA", "fedit", ("augment", "strategy"), "feddca"),
        ("scaffold", "fedit", ("aggregation", "local"), "scaffold"),
        ("fedavg", "fedit", None, None),
        ("fedmit", "fedmit", None, None),
        ("FFA-LoRA", "fedit", ("aggregation", "rule"), "ffa"),
        ("Expand-only", "pretext", ("method", "seeds"), "public"),
        ("DP-Prompt", "pretext", ("method", "samples"), 0),
        ("POPri", "pretext", ("method", "tuning"), {"lr": 1e-5, "beta": 0.05}),
        ("FedDCA-star", "fedit", ("augment", "site_encoder"), "ENCODER"),
    ],
)
def test_what_papers_call_a_thing_will_do(name, method, option, value):
    table = tomllib.loads(starter(name))
    assert table["method"]["name"] == method
    if option:
        assert table[option[0]][option[1]] == value


def test_sizes_are_those_of_the_machine(monkeypatch):
    text = " ".join(every("pretext").replace("\n#", "").split())
    assert "suits the machine (2 cores, no GPU); the default is 50000. samples = 256" in text
    monkeypatch.setattr("murmura.experiment.starter._cores", lambda: 64)
    assert tomllib.loads(starter("pretext"))["method"]["samples"] == 64 * 128
    monkeypatch.setattr("murmura.experiment.starter._has_gpu", lambda: True)
    config = Experiment.of(tomllib.loads(starter("pretext"))).method
    assert (config.samples, config.population, config.rounds, config.variation) == (50_000, 2048, 11, "mask-fill")


def test_a_value_that_is_not_the_default_says_so():
    text = " ".join(every("lpfl").replace("\n#", "").split())
    assert "suits the method; the default is 0.0003. lr = 0.001" in text
    assert "suits the method; the default is none. max_steps = 15" in text
    assert text.count("suits the method; the default") == 2


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_user_has_to_change_is_named(whole):
    def text(name):
        return " ".join(starter(name, every=whole).replace("\n#", "").split())

    assert "Name your records in [data]; all else can stay." in text("fedit")
    assert "Name your records in [data], and patterns and the words of your labels in [method];" in text("lpfl")
    assert "Name your records in [data], and a pool of public records in [augment];" in text("feddca")


@pytest.mark.parametrize("method", methods.METHODS)
def test_every_option_stands_there_under_what_it_means(method):
    lines = every(method).splitlines()
    written = {m[1] for line in lines if (m := OPTION.match(line))}
    sections = [Experiment, methods.section(method)]
    kinds_of = methods.section(method).kinds
    others = "instruction" not in kinds_of
    if others:
        tables = {match[2] for line in lines if (match := TABLE.match(line))}
        assert not tables & {"augment", "evaluation.choices", "evaluation.benchmarks"}
    while sections:
        section = sections.pop()
        if others and section in OF_INSTRUCTIONS:
            continue
        for name, field in section.model_fields.items():
            below = sections_in(field.annotation)
            sections += below
            assert below or name in written or (name == "opening" and "document" not in kinds_of)
            assert below or name == "name" or field.description, f"{section.__name__}.{name} is not described"
    for number, line in enumerate(lines):
        if re.match(r"\w+ = ", line) and not line.startswith("name = "):
            assert lines[number - 1].startswith("# ")


@cache
def options(method):
    """Of each option of a starter: its place in the lines, its dotted key, and the place of its table's head."""
    found, table, head = [], "", 0
    for place, line in enumerate(every(method).splitlines()):
        if match := TABLE.match(line):
            table, head = match[2], place
        elif table and (match := OPTION.match(line)):
            found.append((place, f"{table}.{match[1]}", head))
    return found


def uncommented(method, place, head):
    """The starter with one option uncommented, and the head of its table and what that needs, as they say."""
    lines = every(method).splitlines()
    wanted = {place, head}
    if lines[head].startswith("#"):
        wanted |= {p for p, _, h in options(method) if h == head and lines[p].endswith("this table needs it")}
    for one in wanted:
        lines[one] = lines[one].removeprefix("# ")
    return tomllib.loads("\n".join(lines)), lines


def settled(table, line, needed, below):
    """A table with what a line in the table ``below`` says that must be set besides."""
    for other, value in needed.items():
        *path, name = other.split(".")
        shown, inner = other.removeprefix(f"{below}."), table
        for part in path:
            inner = inner.setdefault(part, {})
        if value is None and name in line.partition("in place of ")[2].split(" and "):
            inner.pop(name)
        elif f"{shown} = " in line:
            inner[name] = value


@pytest.mark.parametrize("method", methods.METHODS)
def test_no_placeholder_fails_when_it_is_uncommented(method):
    """With what its own line says that it needs; and a line says so only where it would fail without."""
    text, needed = every(method).splitlines(), needs(methods.section(method))
    tried = 0
    for place, key, head in options(method):
        if not text[place].startswith("# "):
            continue
        table, _ = uncommented(method, place, head)
        for line, what in ((text[head], key.rpartition(".")[0]), (text[place], key)):
            if re.search("  # (with|in place of) ", line) and key not in needed[what]:
                with pytest.raises(ConfigError):
                    Experiment.of(table)
                settled(table, line, needed[what], key.rpartition(".")[0])
        Experiment.of(table)
        tried += 1
    assert tried > 20


def test_what_has_no_default_is_a_comment():
    text = every("fewfedpit")
    for line in (
        "# sites_per_round = 10",
        '# folder = "..."',
        '# quantization = "int8"',
        '# workers = 10  # with engine = "processes"',
        '# [augment]  # with pool = "FOLDER"',
    ):
        assert line in text.splitlines()


def test_choices_are_named():
    assert '# The optimiser; its state is reset in every round. One of "adamw", "sgd".' in every("fedit")


@pytest.mark.parametrize("flags", [(), ("--all",)])
def test_the_command_prints_the_file_and_how_to_run_it(flags):
    result = invoke("fewfedpit", *flags)
    assert result.exit_code == 0
    assert result.stdout_bytes.decode("utf-8") == starter("fewfedpit", every=bool(flags))
    header = result.stdout.partition("\n\n")[0]
    commands = [line.split("  ")[1].strip() for line in header.splitlines() if "murmura run" in line]
    options = ["", " --dry-run", " --resume", " --set method.rounds=5"]
    assert sorted(commands) == sorted(f"murmura run my.toml{option}" for option in options)
    assert max(map(len, result.stdout.splitlines())) <= 120


def test_without_a_name_they_are_listed():
    text = invoke().stdout
    lines = text.splitlines()
    assert [line.split()[0] for line in lines[: len(methods.METHODS)]] == list(methods.METHODS)
    assert all(len(line.split()) > 5 for line in lines[: len(methods.METHODS)])
    assert all(f" {name}" in text for name in names() if name not in methods.METHODS)
    assert "murmura init fewfedpit > my.toml" in lines[-1]


@pytest.mark.parametrize("name", presets())
def test_an_experiment_of_a_paper_is_printed_as_a_file_to_start_from(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = invoke(name).stdout
    (tmp_path / "my.toml").write_text(text, encoding="utf-8")
    example = EXAMPLES / "papers" / f"{name}.toml"
    made, theirs = Experiment.load("my.toml").dump(), Experiment.load(example).dump()
    for missing in (tmp_path, example.parent.resolve()):  # what is not there is looked for beside the file
        made, theirs = (one.replace(f'"{missing}/', '"') for one in (made, theirs))
    assert made == theirs.replace('"../../', '"')
    assert "#   murmura run my.toml\n" in text and f"{name}.toml" not in text and "../" not in text
    assert "every option" not in text and invoke(name, "--all").exit_code == MISTAKE


def test_experiments_of_papers_are_listed_and_proposed():
    assert {"flowertune-finance", "lpfl-imdb"} < set(presets()) and not set(presets()) & set(names())
    assert f"\nExperiments of papers: {', '.join(presets())}.\n" in invoke().stdout
    assert "Did you mean 'flowertune-finance'?" in invoke("flowertune-finanse").stderr


def test_every_option_is_that_of_a_method():
    result = invoke("--all")
    assert result.exit_code == MISTAKE and not result.stdout
    assert result.stderr.startswith("--all: no method is named") and "murmura init METHOD --all" in result.stderr


def test_an_unknown_method_is_told_the_nearest():
    result = invoke("fewfedpitt")
    assert result.exit_code == MISTAKE and result.stdout == ""
    assert "there is no method 'fewfedpitt'. Did you mean 'fewfedpit'?" in result.stderr


def test_a_starter_needs_no_heavy_library():
    program = (
        "import sys\nfrom murmura.experiment.starter import starter\nstarter('pretext', every=True)\n"
        "print(*(name for name in ('torch', 'transformers', 'sklearn') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_an_option_that_takes_a_list_shows_one():
    assert '# options = ["first", "second"]' in every("fedit")
