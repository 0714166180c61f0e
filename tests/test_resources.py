"""What each side of a run has of the resources that are declared."""

import pytest

from murmura.errors import RunError
from murmura.resources import Loader, Resource, Resources
from tests.conftest import make_encoder


@pytest.fixture
def declared(tokenizer, bert, tmp_path):
    for name, model in {"encoder": make_encoder(tokenizer), "masked": bert}.items():
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    return {
        "encoder": Resource("encoder", str(tmp_path / "encoder"), "both"),
        "another": Resource("encoder", str(tmp_path / "nowhere"), "site"),
        "varying": Resource("masked", str(tmp_path / "masked"), "server"),
    }


def test_what_both_sides_use_is_loaded_once(declared):
    loader = Loader("cpu")
    site, server = (Resources(declared, side, loader) for side in ("site", "server"))
    assert site.encoder("encoder") is server.encoder("encoder")
    assert site.encoder("encoder").embed(["a rash"]).shape == (1, 32)
    assert site.encoder("another") is not site.encoder("encoder")  # that it is not there, nobody has found out yet
    assert server.language_model("varying") is server.language_model("varying")
    assert server.language_model("varying").tokenizer.mask_token == "[MASK]"


def test_only_what_is_declared_for_a_side_is_there(declared):
    site, server = (Resources(declared, side, Loader("cpu")) for side in ("site", "server"))
    with pytest.raises(RunError, match=r"does not declare 'varying' as a resource at the sites\. Valid: another, enc"):
        site.language_model("varying")
    with pytest.raises(RunError, match=r"does not declare 'encodr' .* at the server\. Did you mean 'encoder'"):
        server.encoder("encodr")
    with pytest.raises(RunError, match=r"It declares none there"):
        Resources({}, "site", Loader("cpu")).encoder("encoder")


def test_a_resource_is_asked_for_as_what_it_is(declared):
    server = Resources(declared, "server", Loader("cpu"))
    with pytest.raises(RunError, match=r"'varying' is declared as a masked language model.* as a sentence encoder"):
        server.encoder("varying")
    with pytest.raises(RunError, match=r"'encoder' is declared as a sentence encoder"):
        server.language_model("encoder")
