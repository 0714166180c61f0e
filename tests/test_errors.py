"""What a user is told."""

from __future__ import annotations

from murmura.errors import ConfigError, MurmuraError, nearest


def test_where_what_and_what_to_do():
    assert str(ConfigError("no such key", where="my.toml", fix="Remove it.")) == "my.toml: no such key. Remove it."
    assert str(ConfigError("no such key")) == "no such key"
    error = ConfigError("a", where="b", fix="c")
    assert (error.what, error.where, error.fix) == ("a", "b", "c")
    assert isinstance(error, MurmuraError)


def test_the_nearest_name_or_all_of_them():
    assert nearest("fedvag", ["fedprox", "fedavg"]) == "Did you mean 'fedavg'?"
    assert nearest("xyz", ["fedprox", "fedavg"]) == "Valid: fedavg, fedprox."
