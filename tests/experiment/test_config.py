import tomllib

import pytest

from murmura.errors import ConfigError
from murmura.experiment import Experiment
from murmura.experiment.config import RunConfig, parse_override, read_table
from murmura.methods import METHODS

FILE = """\
[run]
name = "mine"

[data]
train = "sites"
heldout_records = 5

[method]
name = "fewfedpit"
beta = 0.3
"""


@pytest.fixture
def load(tmp_path):
    def from_text(text=FILE, **options):
        path = tmp_path / "my.toml"
        path.write_text(text)
        return Experiment.load(path, **options)

    return from_text


def refused(load, text=FILE, **options):
    with pytest.raises(ConfigError) as caught:
        load(text, **options)
    return str(caught.value)


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "gpu", ""])
def test_a_device_is_one_that_models_run_on(load, device):
    assert f"'{device}' is no device that models run on" in refused(load, set={"model.device": device})


@pytest.mark.parametrize("lr", [1e31, 1e300])
def test_a_rate_has_an_upper_bound(load, lr):
    assert "training.lr" in refused(load, set={"training.lr": lr})


def test_a_file_is_read(load, tmp_path):
    (tmp_path / "sites").mkdir()
    experiment = load()
    assert (experiment.run.name, experiment.method.beta, experiment.training.lr) == ("mine", 0.3, 3e-4)
    assert experiment.data.train == str((tmp_path / "sites").resolve())
    assert str(experiment.run.path) == "runs/mine"


def test_a_model_and_an_encoder_may_lie_beside_the_file(load, tmp_path):
    for name in ("mine", "minilm", "smollm2-135m"):
        (tmp_path / name).mkdir()
    for name in ("mine", "minilm"):
        (tmp_path / name / "config.json").write_text("{}")
    experiment = load(set={"model.name": "mine"})
    assert experiment.model.name == str((tmp_path / "mine").resolve())
    assert load(set={"data.encoder": "minilm"}).data.encoder == str((tmp_path / "minilm").resolve())
    # A folder without a model does not hide the alias, and what is not there is left as it is.
    for name in ("smollm2-135m", "owner/model", str(tmp_path / "mine")):
        assert load(set={"model.name": name}).model.name == name


def test_overrides_win_over_the_file(load):
    experiment = load(set={"method.beta": 0.7, "run.folder": "elsewhere", "data.sites.records": 3, "lora.rank": 4})
    assert (experiment.method.beta, experiment.data.sites.records, experiment.lora.rank) == (0.7, 3, 4)
    assert str(experiment.run.path) == "elsewhere"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FILE.replace("beta", "betta"), "[method]: unknown key 'betta'. Did you mean 'beta'?"),
        (FILE.replace("fewfedpit", "fewfedpitt"), "there is no method 'fewfedpitt'. Did you mean 'fewfedpit'?"),
        (
            FILE.replace("fewfedpit", "fedavg"),
            "'fedavg' is written method.name = \"fedit\"; see `murmura init fedavg`.",
        ),
        (
            FILE.replace("fewfedpit", "FFA-LoRA"),
            '= "fedit" with aggregation.rule = "ffa"; see `murmura init ffa-lora`.',
        ),
        (FILE.replace('"fewfedpit"', '["fewfedpit"]'), "method.name must be one name in quotes. Did you mean"),
        (FILE.replace('name = "fewfedpit"\n', ""), "method.name is missing. Valid: " + ", ".join(sorted(METHODS))),
        (FILE.partition("[method]")[0], "there is no [method] table. name = " + " | ".join(METHODS)),
        (FILE + "[trainig]\nlr = 1.0\n", "unknown key 'trainig'. Did you mean 'training'?"),
        (FILE + "[training]\nlearning_rate = 1.0\n", "unknown key 'training.learning_rate'. Valid: batch_size"),
        (FILE.replace("0.3", "'half'"), "'beta' = 'half': must be a number"),
        (FILE.replace("0.3", "1.5"), "'beta' = 1.5: must be less than or equal to 1"),
        (FILE.replace("heldout_records = 5", ""), "'data': give heldout = a file, or heldout_records"),
        (FILE.replace('train = "sites"', ""), "'data': 'train' is missing"),
        (FILE.replace('"sites"', '["a.jsonl", "b.jsonl"]'), "several files go into a folder of their own"),
        (FILE + "[training]\nlr = 1e-7\n", "lr_min (1e-06) is above lr (1e-07)"),
        (FILE.replace('"mine"', '""'), "'run.name' = '': must not be empty"),
        ("[run\nname = 1", "is not TOML"),
        (f"x = {'[' * 3000}{']' * 3000}", "is not TOML"),
        (f"x = {'1' * 5000}", "is not TOML"),
        ("[run]\nname = 1\nname = 2\n", "at line 3"),
    ],
)
def test_what_is_wrong_is_named(load, text, message):
    found = refused(load, text)
    assert message in found and "my.toml" in found


def test_options_that_do_nothing_are_refused(load):
    fedit = FILE.replace('"fewfedpit"\nbeta = 0.3', '"fedit"\nmu = 0.5')
    assert "Did you mean 'aggregation.local.mu'" in refused(load, fedit)
    assert "'count' does nothing with by = \"file\"" in refused(load, set={"data.sites.count": 3})
    assert "'column' does nothing" in refused(load, set={"data.sites.column": "owner"})
    partition = {"data.sites.by": "partition", "data.sites.count": 3}
    assert "'alpha' does nothing with scheme" in refused(load, set=partition | {"data.sites.alpha": 0.1})
    mixed = partition | {"data.sites.scheme": "dirichlet", "data.sites.clusters": 7}
    assert "'clusters' does nothing with 'label'" in refused(load, set=mixed | {"data.sites.label": "topic"})
    few = refused(load, set=mixed | {"data.few_shot.clusters": 3})
    assert "'clusters' does nothing in sites beside few_shot, whose clusters serve for both; remove it" in few
    assert "'heldout_fields' does nothing" in refused(load, set={"data.heldout_fields": {"output": "answer"}})


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        Experiment.load(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_may_be_written_as_windows_writes(tmp_path, encoding):
    (tmp_path / "my.toml").write_bytes('[run]\r\nname = "Zürich"\r\n'.encode(encoding))
    assert read_table(tmp_path / "my.toml") == {"run": {"name": "Zürich"}}


def test_a_file_in_another_encoding_is_told_with_the_line_and_how_to_change_it(tmp_path):
    (tmp_path / "my.toml").write_bytes('[run]\nname = "Zürich"\n'.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"my\.toml:2: is not UTF-8 \(byte 0xfc\)\. Save it as UTF-8.*iconv"):
        Experiment.load(tmp_path / "my.toml")


def test_records_in_the_place_of_an_experiment_are_told_where_they_belong(tmp_path):
    (tmp_path / "heart.jsonl").write_text('{"instruction": "a", "output": "b"}')
    with pytest.raises(ConfigError, match=r"is not TOML .*Records are named in an experiment file"):
        Experiment.load(tmp_path / "heart.jsonl")


def test_overrides_of_nothing_are_named(load):
    assert "unknown section 'methd'. Did you mean 'method'?" in refused(load, set={"methd.beta": 1})
    assert "--set run.seed.first: 'seed' is not a section" in refused(load, set={"run.seed": 1, "run.seed.first": 1})
    assert "unknown key 'bta'. Did you mean 'beta'?" in refused(load, set={"method.bta": 1})


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("method.beta=0.7", "method.beta", 0.7),
        ("run.name=mine", "run.name", "mine"),
        ('run.name="7"', "run.name", "7"),
        ("lora.targets=['q_proj', 'k_proj']", "lora.targets", ["q_proj", "k_proj"]),
        ("data.train = some folder/with=sign", "data.train", "some folder/with=sign"),
        ("evaluation.attacks=false", "evaluation.attacks", False),
        ("run.folder=", "run.folder", ""),
        pytest.param(f"run.seed={'1' * 5000}", "run.seed", "1" * 5000, id="digits"),
        pytest.param(f"run.seed={'[' * 3000}", "run.seed", "[" * 3000, id="brackets"),
    ],
)
def test_an_override_is_toml_or_else_text(text, key, value):
    assert parse_override(text) == (key, value)


@pytest.mark.parametrize("text", ["method.beta", "=0.7", ""])
def test_an_override_without_a_key_or_a_value_is_refused(text):
    with pytest.raises(ConfigError, match="is not KEY=VALUE"):
        parse_override(text)


METHODS = (
    {"name": "fedit"},
    {"name": "fedmit"},
    {"name": "fewfedpit", "substitute": "public.jsonl", "substitute_label": "OOD"},
    {"name": "fewfedpit", "scorer": "random"},
    {"name": "fewfedweight"},
    {"name": "dplora", "preset": "paper"},
)
SHARED = (
    {"by": "file"},
    {"by": "column", "column": "owner"},
    {"by": "partition", "count": 4},
    {"by": "partition", "count": 4, "scheme": "dirichlet", "alpha": 0.1, "label": "topic"},
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sites", SHARED)
def test_what_is_written_out_in_full_loads_again(method, sites):
    data = {"train": "all", "heldout": "public.jsonl", "sites": sites, "fields": {"output": "answer"}}
    experiment = Experiment.of({"data": data, "method": method})
    assert Experiment.of(tomllib.loads(experiment.dump())) == experiment


@pytest.mark.parametrize("option", ["workers", "answer_seconds"])
def test_options_of_worker_processes_are_refused_without_them(option):
    assert getattr(RunConfig.parse({"engine": "processes", option: 2}, "f"), option) == 2
    with pytest.raises(ConfigError, match=f"{option}.*with engine 'local'"):
        RunConfig.parse({option: 2}, "f")


def test_the_kind_of_record_is_written_out(load):
    """What a method takes for granted is written down all the same, for whoever reads the run folder."""
    assert load(FILE).data.kind == "instruction"
    assert tomllib.loads(load(FILE).dump())["data"]["kind"] == "instruction"


def test_whether_the_first_token_of_a_document_counts_is_up_to_the_method_unless_it_is_said():
    def opening(method, **data):
        table = {"data": {"train": "x", "heldout": "y", **data}, "method": method}
        return Experiment.of(table).data.opening

    assert opening({"name": "fedit"}, kind="document") == "tokenizer"
    assert opening({"name": "pretext", "public": "z"}) == "always"
    assert opening({"name": "pretext", "public": "z"}, opening="tokenizer") == "tokenizer"
    assert opening({"name": "fedit"}) is None
    with pytest.raises(ConfigError, match=r"data\.opening: it does nothing with instructions"):
        opening({"name": "fedit"}, opening="always")


def test_other_methods_are_asked_only_where_a_key_is_unknown(load, monkeypatch):
    """Their options would all have to be imported."""
    asked = []
    monkeypatch.setattr("murmura.methods._keys_of_others", lambda name: asked.append(name) or {})
    load()
    assert not asked
    with pytest.raises(ConfigError, match="unknown key 'roun'"):
        load(set={"method.roun": 3})
    assert asked
