"""What a run has left is known again, wherever it lies."""

import pytest

from murmura.runs.card import is_made_here
from tests.runs.test_previous import OLD, write

TAGGED = "---\ntags:\n- synthetic\n- murmura\n---\n\n# Texts\n"


@pytest.mark.parametrize(
    ("card", "made"),
    [
        (TAGGED, True),
        ("---\ntags:\n- other\n---\n\n- murmura\n", False),
        ("# Texts\n\nMade of these:\n- murmura\n---\n", False),
        ("", False),
        (None, False),
    ],
)
def test_a_folder_and_the_files_in_it_are_known_by_the_card(tmp_path, card, made):
    place = tmp_path / "texts"
    write(place, {"train.jsonl": "{}"} | ({"README.md": card} if card else {}))
    assert is_made_here(place) == is_made_here(place / "train.jsonl") == made
    assert not is_made_here(place / "gone.jsonl") and not is_made_here(place / ("n" * 300))


def test_whatever_lies_in_a_run_is_its_own(tmp_path):
    write(tmp_path / "run", OLD | {"expanded.jsonl": "{}", "outcomes/dataset/train.jsonl": "{}"})
    write(tmp_path, {"public.jsonl": "{}"})
    for name in ("", "expanded.jsonl", "outcomes/dataset/train.jsonl"):
        assert is_made_here(tmp_path / "run" / name)
    assert not is_made_here(tmp_path / "public.jsonl")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "run" / "expanded.jsonl")
    assert is_made_here(tmp_path / "link.jsonl")
