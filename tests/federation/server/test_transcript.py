"""What a curious server keeps."""

import pytest
import torch

from murmura.errors import CheckpointError
from murmura.federation.server.transcript import TranscriptWriter, kept_rounds


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "@run" / "rounds"


def state(value):
    return {"x.lora_A.weight": torch.full((2, 3), float(value))}


def test_what_is_kept_is_read_back_and_nobody_else_may(folder):
    keeper = TranscriptWriter(folder)
    for number in (1, 2):
        keeper.begin(number)
        keeper.observe_upload("north/east", state(number))
        keeper.close(state(10 * number))
    one, two = kept_rounds(folder)
    assert (one.number, two.number, two.sites) == (1, 2, ["north/east"])
    assert torch.equal(two.upload("north/east")["x.lora_A.weight"], state(2)["x.lora_A.weight"])
    assert torch.equal(one.model()["x.lora_A.weight"], state(10)["x.lora_A.weight"])
    for path in [folder.parent, *folder.parent.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path


def test_a_round_that_was_never_finished_does_not_count_and_is_replaced(folder):
    keeper = TranscriptWriter(folder)
    keeper.begin(1)
    keeper.observe_upload("a", state(1))
    keeper.observe_upload("b", state(1))
    assert kept_rounds(folder) == []
    keeper.begin(1)
    keeper.observe_upload("b", state(2))
    keeper.close(state(3))
    [one] = kept_rounds(folder)
    assert one.sites == ["b"] and one.upload("b")["x.lora_A.weight"][0, 0] == 2


def test_centres_are_kept_beside_uploads(folder):
    keeper, centres, sizes = TranscriptWriter(folder), torch.rand(3, 4), torch.tensor([1, 2, 9])
    keeper.begin(1)
    keeper.observe_centres("north/east", centres, sizes)
    keeper.observe_upload("b", state(2))
    keeper.close(state(3))
    [one] = kept_rounds(folder)
    assert (one.centred, one.sites) == (["north/east"], ["b"])
    for kept_one, sent in zip(one.centres("north/east"), (centres, sizes), strict=True):
        assert torch.equal(kept_one, sent)


def test_where_nothing_was_kept_there_is_nothing(folder):
    assert kept_rounds(folder) == []


def test_damage_is_told(folder):
    keeper = TranscriptWriter(folder)
    keeper.begin(1)
    keeper.close(state(1))
    [one] = kept_rounds(folder)
    path = folder / "round-0001" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: what was kept of a round cannot be read"):
        one.model()
    with pytest.raises(CheckpointError, match="No such file"):
        one.upload("a")


def test_a_full_disk_is_told(folder, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("murmura.atomic.replacing", full)
    keeper = TranscriptWriter(folder)
    keeper.begin(1)
    with pytest.raises(CheckpointError, match=r"could not be kept \(No space left on device"):
        keeper.close(state(1))
