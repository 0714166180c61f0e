"""What left the sites, and what is said of its protection."""

import pytest

from murmura.report.content import Heading
from murmura.report.sections.disclosure import disclosure
from tests.report.blocks import blocks, said, tables
from tests.report.runs import NOISE, NOISED, PLAIN, rows_of, write_run


def section(*folders):
    return disclosure(rows_of(*folders))


def test_no_epsilon_is_stated_and_a_mix_is_not_called_private(tmp_path):
    found = section(write_run(tmp_path / "a"))
    assert tables(found) == [[["adapter", "adapter tensors", "train", "none", "4", "29.5 MB"]]]
    for words in ("Nothing here was protected by differential privacy", "neither is a mix of adapters", "No ε"):
        assert words in said(found)


def test_the_sentence_goes_where_an_entry_has_differential_privacy(tmp_path):
    noised = write_run(tmp_path / "a", method="DP-LoRA", disclosure=NOISED)
    assert said(section(noised)) == ""
    both = section(noised, write_run(tmp_path / "b"), write_run(tmp_path / "c", method="LocIT"))
    assert said(both).startswith("FedAvg and LocIT: nothing here was protected")


@pytest.mark.parametrize(
    ("protection", "differential"),
    [
        (None, False),
        ({"type": "secure sum", "mechanism": "masks against the differential gaze"}, False),
        (NOISE, True),
        (NOISE | {"unit": "site", "added_by": "server"}, True),
        ({"type": "magic"}, False),
    ],
)
def test_what_counts_as_differential_privacy(tmp_path, protection, differential):
    found = section(write_run(tmp_path / "a", disclosure=[PLAIN[0] | {"protection": protection}]))
    assert ("No ε" not in said(found)) == differential


def test_nothing_sent_and_nothing_recorded_are_not_the_same(tmp_path):
    assert said(section(write_run(tmp_path / "a", disclosure=[]))).startswith("Nothing left any site.")
    (write_run(tmp_path / "b") / "disclosure.json").unlink()
    unknown = said(section(tmp_path / "b"))
    assert "cannot be known" in unknown and "No ε" not in unknown


def test_methods_that_release_the_same_share_a_table(tmp_path):
    seeds = [write_run(tmp_path / f"avg-{seed}", seed=seed) for seed in range(2)]
    alike = section(*seeds, write_run(tmp_path / "pit", method="FewFedPIT"))
    [heading] = blocks(alike, Heading)
    assert [name.text for name in heading.names] == ["FedAvg", "FewFedPIT"] and len(tables(alike)) == 1
    split = section(seeds[0], write_run(tmp_path / "odd", seed=9, disclosure=NOISED))
    assert [[name.text for name in one.names] for one in blocks(split, Heading)] == [
        ["FedAvg", "avg-0"],
        ["FedAvg", "odd"],
    ]
