"""Options that make no sense together are refused, and a dry run says what a run would send."""

import json

import pytest

from murmura import methods
from murmura.errors import ConfigError, DataError
from murmura.experiment.forecast.budget import of_budgets
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.timing import timing
from murmura.methods.pretext.config import PretextConfig, in_proportion
from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of
from tests.methods.pretext.world import POPRI, texts

TUNED = {"evolve": "preferences", "votes": "cosine"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"public": None}, "'public' is missing: name a file of public texts"),
        ({"variation": "continue"}, "needs 'variation_model'; name a causal model"),
        ({"variation": "paraphrase", "variation_model": "x", "change": 0.2}, "'change' does nothing"),
        ({"variation": "continue", "variation_model": "x", "steps": 3}, "'steps' does nothing"),
        ({"survivors": 5}, "'survivors' does nothing with selection 'sample'"),
        ({"selection": "rank", "repeats": "once"}, "'repeats' does nothing with selection 'rank'"),
        ({"selection": "rank", "survivors": 3000}, "'survivors' is 3000, and there are 2048 candidates"),
        ({"votes": "cosine", "noise": "skellam"}, "noise 'skellam' is for whole votes"),
        ({"noise_multiplier": 0, "noise": "skellam"}, "'noise' does nothing without noise"),
        ({"curve": [10], "samples": 5}, "'curve' goes up to 10, 'samples' is 5"),
        ({"seeds": "paraphrased", "noise_multiplier": 2.0}, "paraphrases take an 'epsilon'"),
        ({"prompts": 5}, "'prompts' does nothing with evolve 'variations'"),
        ({"tuning": {"beta": 0.5}}, "'tuning' does nothing with evolve 'variations'"),
        ({**TUNED, "votes": "nearest"}, "set votes = 'cosine'"),
        ({**TUNED, "lookahead": 2}, "'lookahead' does nothing with evolve 'preferences'"),
        ({**TUNED, "variation": "continue"}, "'variation' does nothing with evolve 'preferences'"),
        ({**TUNED, "selection": "rank"}, "'selection' does nothing with evolve 'preferences'"),
        ({**TUNED, "threshold": 0.0}, "'threshold' does nothing with evolve 'preferences'"),
        ({**TUNED, "endpoint": "http://somewhere/v1"}, "has to be loaded here; remove 'endpoint'"),
        ({**TUNED, "samples": 0}, "set 'samples' to write texts"),
        ({**TUNED, "rejected_rank": 11}, "'rejected_rank' is 11, and a prompt has 10 candidates"),
        ({**TUNED, "rejected_rank": 1}, "rejected_rank"),
        ({"endpoint_chat": True}, "'endpoint_chat' does nothing without 'endpoint'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, why):
    with pytest.raises(ConfigError, match=why):
        PretextConfig.parse({"public": "public.jsonl", **options}, "test")


def test_a_dry_run_says_what_would_be_sent_and_promised(make):
    made = dry_run(make({"epsilon": 2.0, "noise_multiplier": None}))
    assert [(one.sites, one.bytes_up, one.bytes_down) for one in made.rounds] == [
        (3, 3 * 12 * 4, 3 * 12 * 32 * 4),
        (3, 3 * 12 * 4, 3 * 12 * 32 * 4),
        (0, 0, 0),
    ]
    assert made.guarantee.startswith("ε = 2.0") and "at most 8 votes a site" in made.guarantee
    released = {(row.verb, row.field) for row in made.disclosure if row.verb not in ("join", "commit")}
    assert released == {("vote", "votes")}
    assert {one.option for one in made.plan.supplies} == {"encoder", "variation_model"}
    told = dry_run(make({"distance": True}))
    assert any("without noise: summed distance of its texts" in note for note in told.notes)
    assert not any("without noise" in note for note in made.notes)
    plain = dry_run(make({"noise_multiplier": 0}))
    assert plain.steps is None  # the server trains, in steps of its own
    assert plain.guarantee == "none" and {row.verb for row in plain.disclosure} >= {"vote", "report_distance"}
    given = {"seeds": "private", "samples": 4, "generator": "tiny", "endpoint": "http://somewhere/v1"}
    [row] = [row for row in dry_run(make(given)).disclosure if row.verb == "share_texts"]
    assert "in clear" in row.what and "sends them on to http://somewhere/v1" in row.note


def texts_of(found):
    return {one.what: one.count for one in found.work if one.what.startswith("texts")}


def test_a_dry_run_says_what_is_varied_embedded_written_and_trained_on(make, llama_folder):
    def work(method=None, **sections):
        return texts_of(dry_run(make(method, **sections)))

    # 12 candidates in 2 rounds, looked ahead with once, and 10 epochs; the sites have 5, 3 and 2 texts.
    assert work() == {"texts to vary": 2 * 12 * 2 - 12, "texts to embed": 2 * 12 + 10, "texts to train on": 24 * 10}
    assert work({"selection": "rank", "survivors": 3})["texts to train on"] == 2 * 3 * 10
    options = {"seeds": "public", "samples": 6, "curve": [2, 4], "generator": str(llama_folder)}
    assert work(options) == {"texts to write": 6, "texts to train on": (2 + 4 + 6) * 10}
    assert work(options, training={"max_steps": 3, "batch_size": 4, "epochs": 1})["texts to train on"] == 3 * (
        1 + 3 + 4
    )
    there = dry_run(make(options | {"endpoint": "http://somewhere/v1"}))
    assert [(one.what, one.attempt is None) for one in there.work if one.what in texts_of(there)] == [
        ("texts to ask the endpoint for", True),
        ("texts to train on", False),
    ]
    local = {"seeds": "paraphrased", "noise_multiplier": None, "epsilon": 9.0, "texts_per_site": 4}
    told = dry_run(make(local | {"paraphraser": str(llama_folder)}))
    assert texts_of(told) == {"texts to paraphrase": 4 + 3 + 2, "texts to train on": 90}
    assert told.rounds[0].bytes_up is None  # who knows how long a text will be
    assert told.guarantee.startswith("ε = 9.000 by the formula of DP-Prompt: site-level, any texts in place of as many")
    assert dry_run(make({"encoder": "nobody/nothing"})).rounds[0].bytes_down is None


@pytest.mark.parametrize("seeds", ["voted", "tuned", "paraphrased"])
def test_all_of_it_is_tried_to_tell_how_long_it_takes(make, llama_folder, seeds):
    options = POPRI if seeds == "tuned" else {"seeds": seeds, "samples": 5, "sample_tokens": 8}
    options = options | {"generator": str(llama_folder)}
    if seeds == "paraphrased":
        options |= {"noise_multiplier": None, "epsilon": 9.0, "paraphraser": str(llama_folder), "paraphrase_tokens": 4}
    made = dry_run(make(options))
    found = timing(made)
    tried = {work.what: seconds for work, seconds in found.parts}
    assert texts_of(made).keys() <= tried.keys() and min(tried.values()) > 0


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


def test_a_budget_is_not_touched_where_sites_are_asked_for_nothing(make, tmp_path):
    asked = make({"seeds": "public"}, budget={"folder": str(tmp_path / "accounts"), "epsilon": 1.0})
    asked = asked.model_copy(update={"evaluation": asked.evaluation.model_copy(update={"attacks": False})})
    sizes = {"north": 5, "south": 3}
    told = of_budgets(asked, methods.build(asked.method, asked.aggregation), sizes)
    assert told == ["Budget of north, south: this run asks for nothing that costs any ε."]


def test_methods_are_told_apart_by_their_labels():
    def label(**options):
        return methods.build(PretextConfig(public="x", **options)).traits.label

    assert label() == "PrE-Text ε=7.58" and label(samples=0) == "PrE-Text ε=7.58, seeds only"
    assert label(**TUNED) == "POPri ε=7.58" and label(**TUNED, seeds="public") == "Expand-only"
    assert label(votes="cosine", selection="rank", noise_multiplier=2.0) == "PrE-Text z=2, cosine, rank"
    assert label(seeds="public") == "Expand-only" and label(seeds="public", samples=0) == "public-only"
    assert label(seeds="private") == "Expand-private"
    assert label(seeds="paraphrased", samples=0, epsilon=3.0) == "DP-Prompt ε=3"


@pytest.mark.parametrize(
    "options", [{"batch_size": 8}, {"batch_size": 64, "epochs": 2}, {"batch_size": 3, "max_steps": 7}]
)
@pytest.mark.parametrize("count", [1, 100, 999])
def test_fewer_texts_take_as_many_steps(options, count):
    whole = LocalTraining(**options)
    part = in_proportion(whole, count, 1000)
    assert steps_of(count, part) == steps_of(1000, whole)
    assert part.batch_size == max(1, round(whole.batch_size * count / 1000))
