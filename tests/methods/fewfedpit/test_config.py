import pytest

from murmura.errors import ConfigError
from murmura.methods import parse_config


def parse(**options):
    return parse_config({"name": "fewfedpit", **options}, "here")


def test_the_defaults_are_the_papers():
    config = parse()
    assert (config.beta, config.keep, config.drafts, config.rouge) == (0.5, 16, 32, 0.7)
    assert (config.instructions_shown, config.examples_shown, config.example_attempts) == (8, 4, 3)
    assert (config.scorer, config.judge, config.accumulate) == ("ifs", "private", False)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"name": "fedmit", "beta": 0.3}, "unknown key 'beta'"),
        ({"name": "locit-sg", "beta": 0.3}, "unknown key 'beta'"),
        ({"substitute": "x.jsonl", "scorer": "ppl"}, "'scorer' does nothing with a substitute"),
        ({"substitute": "x.jsonl", "instruction_tokens": 32}, "'instruction_tokens'"),
        ({"substitute_label": "OOD"}, "'substitute_label' does nothing without a substitute"),
        ({"scorer": "random", "judge": "global"}, "'judge' does nothing with scorer 'random'"),
        ({"untouched": True, "keep": 4}, "'keep' does nothing with untouched = true"),
        ({"untouched": True, "substitute": "x.jsonl"}, "'substitute' does nothing with untouched = true"),
        ({"beta": 1, "substitute": "x.jsonl"}, "'substitute' does nothing with beta = 1"),
        ({"untouched": True, "beta": 1}, "needs a beta between 0 and 1"),
        ({"untouched": True, "beta": 0}, "needs a beta between 0 and 1"),
    ],
)
def test_an_option_that_does_nothing_is_refused(options, named):
    with pytest.raises(ConfigError, match=named):
        parse(**options)


@pytest.mark.parametrize(
    ("options", "needed", "written"),
    [
        ({}, True, True),
        ({"beta": 1}, True, False),
        ({"beta": 0}, True, True),
        ({"beta": 0, "judge": "global"}, False, True),
        ({"beta": 0, "scorer": "random"}, False, True),
        ({"beta": 0, "substitute": "x.jsonl"}, False, False),
        ({"untouched": True}, True, False),
        ({"name": "fedmit"}, True, True),
        ({"name": "fedmit", "judge": "global"}, False, True),
        ({"name": "locit-sg", "substitute": "x.jsonl"}, False, False),
    ],
)
def test_what_a_round_needs(options, needed, written):
    config = parse(**options)
    assert config.needs_private_branch == needed
    assert (config.most_tokens_written > 0) == written


def test_most_tokens_written():
    config = parse(keep=2, instruction_tokens=10, example_tokens=100)
    assert config.most_tokens_written == 6 * 4 * 10 + 3 * 4 * 100
