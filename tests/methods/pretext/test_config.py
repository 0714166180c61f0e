"""Options that make no sense together are refused, and a dry run says what a run would send."""

from __future__ import annotations

import json

import pytest

from murmura import methods
from murmura.errors import ConfigError, DataError
from murmura.experiment.dry_run import dry_run
from murmura.methods.pretext.config import PretextConfig
from tests.methods.pretext.world import texts


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"public": None}, "'public' is missing: name a file of public texts"),
        ({"variation": "continue"}, "needs 'variation_model'; name a causal model"),
        ({"variation": "paraphrase", "variation_model": "x", "change": 0.2}, "'change' does nothing"),
        ({"variation": "continue", "variation_model": "x", "steps": 3}, "'steps' does nothing"),
        ({"survivors": 5}, "'survivors' does nothing with selection 'sample'"),
        ({"selection": "rank", "survivors": 3000}, "'survivors' is 3000, and there are 2048 candidates"),
        ({"votes": "cosine", "noise": "skellam"}, "noise 'skellam' is for whole votes"),
        ({"noise_multiplier": 0, "noise": "skellam"}, "'noise' does nothing without noise"),
        ({"noise_multiplier": 1, "epsilon": 2}, "say the same thing twice"),
        ({"curve": [10], "samples": 5}, "'curve' goes up to 10, 'samples' is 5"),
        ({"seeds": "paraphrased", "noise_multiplier": 2.0}, "paraphrases take an 'epsilon'"),
        ({"endpoint_chat": True}, "'endpoint_chat' does nothing without 'endpoint'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, why):
    with pytest.raises(ConfigError, match=why):
        PretextConfig.parse({"public": "public.jsonl", **options}, "test")


def test_a_dry_run_says_what_would_be_sent_and_promised(make):
    made = dry_run(make({"epsilon": 2.0, "noise_multiplier": None}))
    assert [(one.sites, one.bytes_up, one.bytes_down) for one in made.rounds] == [
        (3, 3 * 12 * 4, 3 * 12 * 32 * 4), (3, 3 * 12 * 4, 3 * 12 * 32 * 4), (0, 0, 0),
    ]  # fmt: skip
    assert made.guarantee.startswith("ε = 2.0") and "at most 8 votes a site" in made.guarantee
    assert {(row.verb, row.field) for row in made.disclosure if row.verb != "join"} == {("vote", "votes")}
    assert {one.option for one in made.resources} == {"encoder", "variation_model"}
    told = dry_run(make({"distance": True}))
    assert any("without noise: summed distance of its texts" in note for note in told.notes)
    assert not any("without noise" in note for note in made.notes)
    plain = dry_run(make({"noise_multiplier": 0}))
    assert plain.guarantee == "none" and {row.verb for row in plain.disclosure} >= {"vote", "look"}
    given = {"seeds": "private", "samples": 4, "generator": "tiny", "endpoint": "http://somewhere/v1"}
    [row] = [row for row in dry_run(make(given)).disclosure if row.verb == "give"]
    assert "in clear" in row.what and "sends them on to http://somewhere/v1" in row.note


def test_a_dry_run_reads_the_public_texts_and_counts_private_ones_among_them(make, tmp_path):
    assert not [note for note in dry_run(make()).notes if "sites' texts" in note]
    with (tmp_path / "public.jsonl").open("a") as file:
        file.writelines(json.dumps({"text": f" {text}  "}) + "\n" for text in texts("tablets", 2))
    [note] = [note for note in dry_run(make()).notes if "sites' texts" in note]
    assert note.startswith("2 of the sites' texts are in ") and "no ε is about that" in note
    assert not [note for note in dry_run(make({"seeds": "private"})).notes if "sites' texts" in note]
    with pytest.raises(DataError, match="no public text has more than 50 words"):
        dry_run(make({"public_words": 50}))
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        dry_run(make({"public": "nowhere.jsonl"}))


def test_methods_are_told_apart_by_their_labels():
    def label(**options):
        return methods.build(PretextConfig(public="x", **options)).label

    assert label() == "PrE-Text ε=7.58" and label(samples=0) == "PrE-Text ε=7.58, seeds only"
    assert label(votes="cosine", selection="rank", noise_multiplier=2.0) == "PrE-Text z=2, cosine, rank"
    assert label(seeds="public") == "Expand-only" and label(seeds="public", samples=0) == "public-only"
    assert label(seeds="private") == "Expand-private"
    assert label(seeds="paraphrased", samples=0, epsilon=3.0) == "DP-Prompt ε=3"
