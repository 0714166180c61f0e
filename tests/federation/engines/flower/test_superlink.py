"""What a SuperLink makes of what it has kept."""

import pytest

from murmura.errors import RunError
from murmura.federation.engines.flower.superlink import SuperLink


@pytest.mark.parametrize(
    "text", ["{", "5", "[1]", '{"north": 1}', '{"north": ["key"]}', '{"north": ["key", Infinity]}', "[" * 5000], ids=len
)
def test_what_flower_knows_of_sites_may_be_damaged(tmp_path, text):
    link = SuperLink.__new__(SuperLink)  # no process is started
    link._folder = tmp_path
    (tmp_path / "nodes.json").write_text(text)
    with pytest.raises(RunError, match="which sites' keys Flower knows is damaged") as error:
        link._registered({"north": "key"})
    assert error.value.where == str(tmp_path / "nodes.json") and not error.value.passing
