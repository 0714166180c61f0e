"""Options of benchmarks."""

import pytest

from murmura.errors import ConfigError
from murmura.measure.benchmarks import BENCHMARKS
from murmura.measure.benchmarks.config import BenchmarksConfig
from murmura.measure.config import EvaluationConfig


def test_every_benchmark_has_a_table_of_its_own_options():
    tables = {name: {"file": "x"} for name in BENCHMARKS}
    parsed = BenchmarksConfig.parse(tables, "my.toml")
    assert {name: type(value) for name, value in parsed.named.items()} == {
        name: made.options for name, made in BENCHMARKS.items()
    }
    assert parsed.named["fpb"].form == "plain" and parsed.named["gsm8k"].form == "template"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "names no benchmark; give 'tasks', or one a table: gsm8k, humaneval, fpb, fiqa, tfns"),
        ({"only_last": True}, "names no benchmark"),
        ({"gsm8k": {"file": "x"}, "limit": 5}, "'limit' does nothing without tasks"),
        ({"tasks": ["piqa", "piqa"]}, "'tasks' names one twice"),
        ({"tasks": []}, "must not be empty"),
        ({"gsm8": {"file": "x"}}, "Did you mean 'gsm8k'?"),
        ({"gsm8k": {}}, "'benchmarks.gsm8k.file' is missing"),
        ({"gsm8k": {"file": "x", "labels": []}}, "unknown key 'benchmarks.gsm8k.labels'"),
        ({"fpb": {"file": "x", "unparsed": "right"}}, "'wrong' or 'neutral'"),
        ({"fpb": {"file": "x", "labels": ["bad", "good"]}}, "'negative', 'neutral' or 'positive'"),
        ({"humaneval": {"file": "x", "seconds": 0}}, "greater than or equal to 1"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(table, message):
    with pytest.raises(ConfigError) as caught:
        EvaluationConfig.parse({"benchmarks": table}, "my.toml")
    assert message in str(caught.value)
