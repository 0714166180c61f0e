import tomllib

import pytest
import tomli_w

from murmura.augment.config import ENCODER, SITE_ENCODER, WRITER, AugmentConfig
from murmura.errors import ConfigError


def parsed(**options):
    table = {"pool": "pool", **options}
    return AugmentConfig.parse({name: value for name, value in table.items() if value is not None}, "my.toml")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strategy": "random", "clusters": 5}, "'clusters' does nothing with strategy 'random'"),
        ({"strategy": "random", "site_encoder": "minilm"}, "'site_encoder' does nothing with strategy 'random'"),
        ({"strategy": "direct", "alpha": 0.5}, "'alpha' does nothing with strategy 'direct'"),
        ({"strategy": "coverage", "filter_rule": "text"}, "'filter_rule' does nothing with strategy 'coverage'"),
        ({"strategy": "coverage", "order": "random"}, "'order' does nothing with strategy 'coverage'"),
        ({"strategy": "direct", "site_encoder": "minilm", "project_first": True}, "'project_first' does nothing"),
        ({"targets": "centres"}, "'targets' does nothing with strategy 'feddca'"),
        ({"strategy": "coverage", "site_encoder": "minilm", "project_first": True}, "'project_first' does nothing"),
        ({"bytes": 1000, "records": 10}, "'records' does nothing beside 'bytes'"),
        ({"focus": "hardest"}, "'focus' does nothing unless records are chosen again"),
        ({"projector_lr": 0.1}, "'projector_lr' does nothing without a 'site_encoder'"),
        ({"projector_hidden": 8}, "'projector_hidden' does nothing without a 'site_encoder'"),
        ({"projector_heldout": 0.2}, "'projector_heldout' does nothing without a 'site_encoder'"),
        ({"dedup": "none"}, "dedup = 'none' does nothing with strategy 'feddca'"),
        ({"less_sample": 9}, "'less_sample' does nothing with strategy 'feddca'"),
        ({"strategy": "less", "alpha": 0.5}, "'alpha' does nothing with strategy 'less'"),
        ({"strategy": "less", "less_sample": 9}, r"less_sample \(9\) is below records \(5000\)"),
        ({"strategy": "self-instruct"}, "'pool' does nothing with strategy 'self-instruct'"),
        ({"strategy": "self-instruct", "pool": None, "domain": "x"}, "'domain' does nothing with strategy 'self-ins"),
        ({"writer": "tiny"}, "'writer' does nothing with strategy 'feddca'"),
        ({"pool": None}, "'pool' is missing, which strategy 'feddca' chooses from"),
        ({"records": 0}, "greater than or equal to 1"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        parsed(**options)


def test_what_a_run_writes_out_is_read_back():
    for config in (
        parsed(),
        parsed(strategy="random", every=2),
        parsed(strategy="less", less_epochs=2),
        parsed(pool=None, strategy="self-instruct", writer="tiny"),
        parsed(site_encoder="minilm", alpha=0),
    ):
        table = tomllib.loads(tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)))
        assert AugmentConfig.parse(table, "config.toml") == config


def test_sites_need_the_pools_encoder_or_in_feddca_star_another_one_on_both_sides_or_what_writes():
    assert parsed(strategy="random").resources() == {}
    assert parsed(strategy="self-instruct", pool=None).resources() == {}
    [(option, one)] = parsed(strategy="self-instruct", pool=None, writer="tiny").resources().items()
    assert (option, one.kind, one.name, one.side) == (WRITER, "causal", "tiny", "site")
    [(option, one)] = parsed(encoder="tiny").resources().items()
    assert (option, one.kind, one.name, one.side) == (ENCODER, "encoder", "tiny", "site")
    [(option, one)] = parsed(encoder="tiny", site_encoder="mini").resources().items()
    assert (option, one.name, one.side) == (SITE_ENCODER, "mini", "both")
