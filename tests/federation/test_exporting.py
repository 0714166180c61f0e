"""The folder that a site leaves of its own adapter for its owner."""

import pytest
import torch
from safetensors.torch import load_file

from murmura.aggregation.choosing import rule
from murmura.aggregation.config import AggregationConfig
from murmura.federation.exporting import Exporting
from murmura.federation.site.answer import Host
from murmura.federation.site.store import SiteStore
from murmura.federation.wire.messages import Ask, Failure, Reply
from murmura.runs.names import SITE_NOTES
from murmura.streams import Stream
from tests.federation.world import make_sites, make_workbench
from tests.training.helpers import assert_same, random_state


@pytest.mark.parametrize(
    ("kind", "factors", "left"),
    [("mean", "", True), ("mean", "A", False), ("mean", "AB", False), ("fedsa", "A", True), ("fedsa", "AB", False)],
)
def test_what_a_rule_leaves_to_a_site_is_no_servers_to_write(tokenizer, tmp_path, kind, factors, left):
    """Else the folder would be the server's, and its card say that it is the site's own."""
    tmp_path.chmod(0o755)
    runtime, [site] = make_workbench(tokenizer), make_sites(3)
    site.results, site.store["adapter"] = tmp_path, random_state(runtime.bank, 0)
    site.kept = SiteStore(tmp_path / "kept", site.name)
    sent = {
        name: torch.full_like(tensor, 7.0)
        for name, tensor in site.store["adapter"].items()
        if any(f".lora_{factor}." in name for factor in factors)
    }
    host = Host([site], [Exporting()], runtime, Stream(0), rule(AggregationConfig(rule=kind)), run="run")
    [answer] = host.answer(Ask("keep", 1, {"adapter": sent}, run="run"), ["site-0"])
    folder = tmp_path / "site-0"
    if left:
        assert isinstance(answer, Reply)
        assert_same(load_file(folder / "adapter_model.safetensors"), site.store["adapter"] | sent)
        assert folder.stat().st_mode & 0o077 == 0, "others can read it, since its owner's folder was there before"
        assert f"own adapter is in {folder}." in (tmp_path / "kept" / SITE_NOTES).read_text(encoding="utf-8")
    else:
        assert answer == Failure("site-0", "RefusedError") and not folder.exists()


@pytest.mark.parametrize("fails", [False, True])
def test_an_adapter_that_a_killed_process_had_moved_aside_is_put_back_and_nothing_else_of_it_stays(
    tokenizer, tmp_path, monkeypatch, fails
):
    runtime, [site] = make_workbench(tokenizer), make_sites(3)
    site.results, site.store["adapter"] = tmp_path, random_state(runtime.bank, 0)
    for left in ("..site-0.1.partial", ".site-0.1.partial", ".site-0.2.partial", ".site-1.1.partial"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "from").write_text(left)
    if fails:
        monkeypatch.setattr(
            "murmura.federation.exporting.leave_adapter", lambda *_: tmp_path.read_bytes()
        )  # an OSError
    host = Host([site], [Exporting()], runtime, Stream(0), rule(AggregationConfig(rule="mean")), run="run")
    [answer] = host.answer(Ask("keep", 1, {}, run="run"), ["site-0"])
    assert isinstance(answer, Failure) == fails
    assert sorted(path.name for path in tmp_path.iterdir()) == [".site-1.1.partial", "site-0"]
    assert (tmp_path / "site-0" / "from").exists() == fails
    assert (tmp_path / "site-0" / "adapter_model.safetensors").exists() != fails
