from typing import ClassVar, Literal

import pytest
import tomli_w

from murmura.compare.arms import load
from murmura.compare.starter import STARTER
from murmura.errors import ConfigError
from murmura.experiment.config import Experiment
from murmura.federation.method_config import MethodConfig
from murmura.federation.traits import AveragingTraits
from murmura.methods import METHODS
from murmura.methods.averaging import Averaging
from murmura.registry import Origin

BASE = {"data": {"train": "sites", "heldout_records": 4}, "method": {"name": "fedit", "rounds": 3}}


@pytest.fixture
def write(tmp_path):
    def write(name="my.toml", **tables):
        file = tmp_path / name
        file.write_text(tomli_w.dumps(BASE | tables))
        return file

    return write


def names(arms):
    return [arm.name for arm in arms]


def test_each_file_is_an_arm_called_as_its_run(write):
    files = [write("a.toml", run={"name": "plain"}), write("b.toml", run={"name": "more"}, training={"lr": 1e-3})]
    config, arms = load(files)
    assert names(arms) == ["plain", "more"]
    assert [arm.rates for arm in arms] == [(3e-4,), (1e-3,)] and list(config.chosen_seeds) == [0, 1, 2]


def test_arms_of_one_file_change_its_options(write):
    arms = [{"name": "FedAvg"}, {"aggregation": {"local": "fedprox"}}, {"method": {"name": "fewfedpit", "beta": 0.3}}]
    _, found = load([write(compare={"arms": arms})])
    assert names(found) == ["FedAvg", "FedProx", "FewFedPIT β=0.3"]
    assert [arm.experiment.method.rounds for arm in found] == [3, 3, 3]


def test_another_method_does_not_inherit_options_of_the_files(write):
    method = {"name": "fewfedpit", "rounds": 3, "keep": 2}
    _, found = load([write(method=method, compare={"arms": [{}, {"method": {"name": "fedit"}}]})])
    assert found[0].experiment.method.keep == 2 and found[1].experiment.method.name == "fedit"


@pytest.mark.parametrize(
    ("name", "told"), [(["fedit"], "must be one name in quotes"), ("fedavg", "murmura init fedavg")]
)
def test_what_is_no_method_s_name_is_refused_in_arms_too(write, name, told):
    with pytest.raises(ConfigError, match=told):
        load([write(compare={"arms": [{"method": {"name": name}}]})])


def test_a_limit_on_epsilon_is_for_arms_at_one_delta(write):
    arms = [{"name": name, "method": {"name": "dplora", "delta": delta}} for name, delta in (("a", 1e-5), ("b", 0.9))]
    without = {"name": "none", "method": {"name": "dplora", "noise_multiplier": 0.0}}
    file = write(compare={"arms": [{"name": "FedAvg"}, without, *arms]})
    assert len(load([file])[1]) == 4  # where nothing is held against both
    with pytest.raises(ConfigError, match=r"arms, b: method.delta is 0\.9, and in 'a' 1e-05.*the same in all arms"):
        load([file], limits={"max_epsilon": 8})


class OwnConfig(MethodConfig):
    """FedAvg with an ε."""

    implementation: ClassVar[str] = f"{__name__}:Own"
    name: Literal["own"] = "own"
    delta: float = 1e-5


class Own(Averaging):
    traits = AveragingTraits(label="Own")
    protects = "record"


def test_that_limit_is_for_methods_of_other_packages_too(write, monkeypatch):
    monkeypatch.setitem(METHODS.builtin, "own", Origin(f"{__name__}:OwnConfig"))
    arms = [{"method": {"name": "dplora", "delta": 1e-5}}, {"name": "b", "method": {"name": "own", "delta": 1e-2}}]
    with pytest.raises(ConfigError, match=r"arms, b: method.delta is 0\.01"):
        load([write(compare={"arms": arms})], limits={"max_epsilon": 8})


def test_a_grid_is_an_arm_for_every_combination(write):
    arm = {"method": {"name": "fewfedpit"}, "grid": {"method.beta": [0.0, 0.5]}}
    _, found = load([write(compare={"arms": [arm], "grid": {"lora.rank": [2, 4]}})])
    pairs = [(one.experiment.method.beta, one.experiment.lora.rank) for one in found]
    assert pairs == [(0.0, 2), (0.5, 2), (0.0, 4), (0.5, 4)]
    assert len(set(names(found))) == 4
    _, found = load([write(run={"name": "mine"}, compare={"grid": {"lora.rank": [2, 4]}})])
    assert names(found) == ["FedAvg, rank = 2", "FedAvg, rank = 4"]


@pytest.mark.parametrize(
    ("grid", "arm", "told"),
    [
        ({"lora.rank": [2, 4]}, {"lora": {"rank": 8}}, "lora.rank"),
        ({}, {"method": {"name": "fewfedpit", "beta": 0.3}, "grid": {"method.beta": [0.0, 0.5]}}, "method.beta"),
        ({"aggregation.server": ["fedadam"]}, {"aggregation": {"server": {"lr": 1e-2}}}, "aggregation.server"),
    ],
)
def test_a_grid_over_what_an_arm_says_itself_is_refused(write, grid, arm, told):
    with pytest.raises(ConfigError, match=rf"arms, mine: {told} is given, and a grid.*grid = .*{told}.* = \[ONE\]"):
        load([write(compare={"grid": grid, "arms": [{"name": "mine"} | arm]})])


def test_an_arm_s_own_grid_wins_over_that_of_all(write):
    arms = [{"name": "FedAvg"}, {"name": "wide", "grid": {"lora.rank": [8]}}]
    _, found = load([write(compare={"grid": {"lora.rank": [2, 4]}, "arms": arms})])
    assert [one.experiment.lora.rank for one in found] == [2, 4, 8]


def test_folders_of_an_arm_with_a_long_name_can_be_made(write):
    name = "方法" * 80
    _, [one] = load([write(compare={"arms": [{"name": name}]})])
    assert one.name == name and name.startswith(one.slug) and len(one.slug.encode()) <= 180


def test_a_rate_is_taken_of_an_arm_that_has_one(write):
    arms = [{"name": "FedAvg"}, {"name": "wide", "lora": {"rank": 4}, "rate_of": "FedAvg"}]
    _, found = load([write(compare={"rates": [1e-3, 2e-3], "arms": arms})])
    assert [one.rate_of for one in found] == ["", "FedAvg"]
    for wrong in ("FedProx", "wide"):
        arms[1]["rate_of"] = wrong
        with pytest.raises(ConfigError, match=f"no arm '{wrong}' with a rate of its own.*Arms: FedAvg"):
            load([write(compare={"rates": [1e-3, 2e-3], "arms": arms})])


def test_where_no_arm_has_a_rate_of_its_own_no_empty_list_is_told(write):
    with pytest.raises(ConfigError, match=r"no arm 'zz' with a rate of its own\. Leave rate_of out of one of them\."):
        load([write(compare={"arms": [{"name": "FedAvg", "rate_of": "zz"}]})])


def test_one_experiment_at_its_own_rate_and_at_another_arm_s_is_two_arms(write):
    arms = [{"name": "FedAvg"}, {"name": "wide", "lora": {"rank": 4}}]
    arms.append({"name": "wide at FedAvg's rate", "lora": {"rank": 4}, "rate_of": "FedAvg"})
    _, found = load([write(compare={"rates": [1e-3, 2e-3], "arms": arms})])
    assert [one.rate_of for one in found] == ["", "", "FedAvg"]
    with pytest.raises(ConfigError, match="is the same experiment as"):
        load([write(compare={"rates": [1e-3, 2e-3], "arms": [*arms, arms[2] | {"name": "again"}]})])


@pytest.mark.parametrize(
    ("changes", "fix"),
    [
        ({"run.seed": 3}, "--seeds"),
        ({"run.folder": "elsewhere"}, "--out"),
        ({"run.name": "other"}, "compare.arms"),
        ({"training.lr": 1e-3}, "--rates"),
    ],
)
def test_what_a_comparison_chooses_itself_cannot_be_changed_in_all_arms(write, changes, fix):
    with pytest.raises(ConfigError, match=f"a comparison chooses {next(iter(changes))} itself.*{fix}"):
        load([write(compare={"rates": [1e-3, 2e-3]})], changes)


def test_a_rate_of_all_arms_can_be_changed_where_one_takes_it(write, capsys):
    (one,) = load([write(compare={})], {"training.lr": 1e-3})[1]
    assert one.rates == (1e-3,)
    others = [{"name": "B", "rate_of": "A", "training": {"clip": 0.5}}, {"name": "C", "rates": [1e-2]}]
    _, arms = load([write(compare={"arms": [{"name": "A"}, *others]})], {"training.lr": 1e-3})
    assert "--set training.lr is for A alone" in capsys.readouterr().err
    assert [arm.rates for arm in arms][::2] == [(1e-3,), (1e-2,)]


@pytest.mark.parametrize(
    "own",
    [
        {"grid": {"training.lr": [1e-3, 5e-3]}},
        {"training": {"lr": 1e-3}},
        {"training": {"lr": 1e-3}, "rates": [2e-3]},
        {"training": {"lr": 1e-3}, "rate_of": "FedAvg"},
    ],
)
def test_a_rate_of_an_arm_in_whose_place_another_is_taken_is_refused(write, own):
    arms = [{"name": "FedAvg"}, {"name": "mine", **own}]
    with pytest.raises(ConfigError, match=r"arms, mine: training.lr is given, and another.*rates = \[ONE\]"):
        load([write(compare={"rates": [2e-3, 1e-2], "arms": arms})])
    taken = {"name": "mine", "training": {"lr": 1e-3}, "rates": [1e-3]}
    assert load([write(compare={"rates": [2e-3, 1e-2], "arms": [arms[0], taken]})])[1][1].rates == (1e-3,)


def test_files_that_differ_in_the_rate_alone_are_one_experiment_where_a_rate_is_chosen(write):
    files = [write("a.toml", training={"lr": 1e-3}), write("b.toml", training={"lr": 2e-3})]
    assert len(load(files)[1]) == 2
    with pytest.raises(ConfigError, match="is the same experiment as"):
        load(files, options={"rates": [1e-3, 2e-3]})


def test_options_of_the_command_line_win(write):
    file = write(compare={"seeds": 5, "rates": [1e-3, 2e-3], "limits": {"max_epsilon": 8, "max_leakage": 0.9}})
    changes, options, limits = {"method.rounds": 1}, {"seeds": 2}, {"max_epsilon": 2}
    config, [arm] = load([file], changes, options, limits)
    assert list(config.chosen_seeds) == [0, 1] and arm.rates == (1e-3, 2e-3) and arm.experiment.method.rounds == 1
    assert (config.limits.max_epsilon, config.limits.max_leakage) == (2, 0.9)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"data": {"train": "others", "heldout_records": 4}}, "data.train"),
        ({"model": {"name": "another"}}, "model.name"),
        ({"model": {"adapter": "runs/other/adapter"}}, "model.adapter"),
        ({"model": {"quantization": "int8"}}, "model.quantization"),
        ({"evaluation": {"sample": 3}}, "evaluation.sample"),
        ({"personal": {}}, "personal.heldout is 0.2"),  # sites would train on fewer records
        ({"audit": {"canaries": 8}}, "audit.canaries"),
    ],
)
def test_arms_must_have_the_same_records_model_and_measurements(write, table, told):
    with pytest.raises(ConfigError, match=told):
        load([write("a.toml"), write("b.toml", **table)])


@pytest.mark.parametrize(
    ("base", "change", "told"),
    [
        ({}, {"data": {"template": "flowertune"}}, "data.template"),  # other prompts have another loss
        ({}, {"data": {"fields": {"output": "short"}}}, "data.fields"),  # as have other answers
        ({"data": BASE["data"] | {"kind": "preference"}}, {"training": {"dpo_beta": 0.5}}, "training.dpo_beta"),
    ],
)
def test_arms_about_one_kind_of_record_are_measured_by_one_scale(write, base, change, told):
    arms = [{"name": "a"}, {"name": "b"} | change]
    with pytest.raises(ConfigError, match=f"{told} is .*, and in 'a' .*: arms about one kind of record"):
        load([write(**base, compare={"arms": arms})])
    document = {"method": {"name": "pretext", "public": "p.jsonl"}, "data": {"kind": "document", "template": "alpaca"}}
    assert len(load([write(compare={"arms": [{"name": "a"}, {"name": "c"} | document]})])[1]) == 2


def test_the_same_experiment_twice_is_refused_and_the_same_name_is_numbered(write):
    with pytest.raises(ConfigError, match="'b' is the same experiment as 'a'"):
        load([write(compare={"arms": [{"name": "a"}, {"name": "b"}]})])
    _, found = load([write(compare={"arms": [{}, {"lora": {"rank": 3}}]})])
    assert names(found) == ["FedAvg", "FedAvg (2)"]


def test_arms_that_are_there_keep_their_names_and_folders_when_others_come(write):
    """Else their runs would be made again, and what they spend of an ε be spent again."""
    arms = [{"method": {"name": "dplora", "epsilon": 8.0}}, {"grid": {"lora.rank": [4, 8]}}]
    _, before = load([write(compare={"arms": arms})])
    more = [{"method": {"name": "dplora", "epsilon": 8.0}, "lora": {"rank": 3}}, {"lora": {"rank": 5}}]
    _, after = load([write(compare={"arms": [*arms, *more]})])
    assert names(after) == [*names(before), "DP-LoRA ε=8 (2)", "FedAvg"]
    assert [one.slug for one in after[:3]] == ["DP-LoRA-ε=8", "FedAvg-rank-=-4", "FedAvg-rank-=-8"]


def test_arms_of_a_grid_tell_its_values_where_their_titles_do_not(write):
    both = {"method.beta": [0.0, 0.5], "lora.rank": [4, 8]}
    arms = [{}, {"method": {"name": "fewfedpit"}, "grid": both}]
    _, found = load([write(compare={"arms": arms})])
    told = [f"FewFedPIT β={beta:g}, beta = {beta}, rank = {rank}" for beta in both["method.beta"] for rank in (4, 8)]
    assert names(found) == ["FedAvg", *told]
    _, found = load([write(compare={"arms": [{}, {"lora": {"layers": "last 1"}}], "grid": {"lora.rank": [4, 8]}})])
    of_all = ["FedAvg, rank = 4", "FedAvg, rank = 8"]
    assert names(found) == [*of_all, *(f"{name} (2)" for name in of_all)]


def test_arms_that_promise_and_those_that_do_not_set_as_many_records_apart(write):
    arms = [{}, {"method": {"name": "dplora", "epsilon": 8.0}}]
    with pytest.raises(ConfigError, match=r"personal.heldout is 0.0, and in 'FedAvg' 0.2"):
        load([write(personal={}, compare={"arms": arms})])
    assert len(load([write(personal={"heldout": 0.0}, compare={"arms": arms})])[1]) == 2


@pytest.mark.parametrize("names", [("a b", "a-b"), ("FedAvg", "fedavg"), ("x (1)", "x 1")])
def test_two_names_that_make_one_folder_are_refused(write, names):
    """Else the runs of one would stand for those of the other."""
    arms = [{"name": name, "lora": {"rank": rank}} for rank, name in enumerate(names, 2)]
    with pytest.raises(ConfigError, match="the same folder"):
        load([write(compare={"arms": arms})])


def test_mistakes_say_where_they_are(write):
    with pytest.raises(ConfigError, match=r"no arm 'FedSGD'.*Arms: FedAvg"):
        load([write(compare={"arms": [{"name": "FedAvg"}], "reference": "FedSGD"})])
    with pytest.raises(ConfigError, match=r"number 2.*unknown key 'bta'"):
        load([write(compare={"arms": [{}, {"method": {"name": "fewfedpit", "bta": 1}}]})])
    with pytest.raises(ConfigError) as of_all:  # of the tables that all arms have, and of none of them
        load([write(lora={"rnk": 2}, compare={"arms": [{}, {"method": {"name": "fewfedpit"}}]})])
    assert "rnk" in str(of_all.value) and "compare.arms" not in str(of_all.value)
    with pytest.raises(ConfigError, match=r"\[compare\].*unknown key 'seed'"):
        load([write(compare={"seed": 3})])
    with pytest.raises(ConfigError, match=r"\[compare\] stands in"):
        load([write("a.toml", compare={}), write("b.toml", compare={})])


def test_a_comparison_is_no_experiment(write):
    with pytest.raises(ConfigError, match="murmura compare"):
        Experiment.load(write(compare={}))


def test_the_starter_is_a_comparison(tmp_path):
    file = tmp_path / "my.toml"
    file.write_text(STARTER)
    config, found = load([file])
    assert names(found) == ["FedAvg", "FewFedPIT β=0", "FewFedPIT β=0.5", "DP-LoRA ε=8"]
    assert all(arm.rates == (2e-3, 1e-2) for arm in found) and list(config.chosen_seeds) == [0, 1, 2]
