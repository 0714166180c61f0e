"""Rounds in which sites' votes tune the generator, and whole runs of them."""

import copy
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmura.data.tokenising import Tokenised
from murmura.errors import RunError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.methods.pretext import popri as popri_module
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.guarantee import plan
from murmura.methods.pretext.popri import PAIRS, SHOWN, TUNED, Popri, WrittenText, preferred, tokenised
from murmura.methods.pretext.voting import cosines
from murmura.model_runtime import ModelRuntime
from murmura.streams import Stream
from murmura.synthesis.generators import Answer
from murmura.synthesis.prompts import STOP, six_samples
from murmura.tasks.document import DocumentReading
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining
from murmura.training.loop import train
from tests.conftest import make_llama
from tests.federation.world import journals
from tests.methods.pretext.world import POPRI, SITES, Replies, left

# ---- which text of a prompt is preferred to which --------------------------------------------------------------------


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_the_best_is_preferred_to_the_one_of_the_rank(rank):
    """Against an order that is written out, on noise and so without ties."""
    votes = np.random.default_rng(0).normal(size=40)
    groups = [range(first, first + 8) for first in range(0, 40, 8)]
    expected = []
    for group in groups:
        ranked = sorted(votes[list(group)], reverse=True)
        expected.append((votes.tolist().index(ranked[0]), votes.tolist().index(ranked[rank - 1])))
    assert preferred(votes, groups, rank) == expected


def test_a_prompt_with_too_few_texts_makes_no_pair():
    votes = np.array([3.0, 1.0, 2.0, 9.0, 8.0])
    assert preferred(votes, [range(3), range(3, 5)], 3) == [(0, 1)]
    assert preferred(votes, [[], [4]], 2) == []


def test_votes_that_say_nothing_make_no_pair():
    assert preferred(np.zeros(6), [range(3), range(3, 6)], 2) == []
    assert preferred(np.array([0.0, 1.0, 1.0, 1.0]), [range(4)], 3) == []
    assert preferred(np.array([0.0, 1.0, 1.0, 0.0]), [range(4)], 3) == [(1, 0)]


# ---- a round that a test can see through -----------------------------------------------------------------------------


BODY, PAPERS = ("kidney", "heart", "skin"), ("letter", "summary", "note")


def sentence(draw, nouns):
    who, when = draw.choice(("nurse", "doctor", "child")), draw.choice(("daily", "evening", "morning", "monday"))
    return f"the {who} may explain the {draw.choice(nouns)} on {when}"


def share(texts):
    """How many of some texts are about the body."""
    return float(np.mean([any(noun in text for noun in BODY) for text in texts]))


class Vectors:
    """An encoder to whom texts about the body lie in one direction and all others in another."""

    def embed(self, texts):
        return np.array([[share([text]), 1 - share([text])] for text in texts], np.float32)


def writer(tokenizer):
    """A tiny model that goes on with lists of samples: half of what it writes is about the body, half about papers."""
    bank, draw = Bank(make_llama(tokenizer), None), Stream(1).python()
    items = []
    for _ in range(400):
        shown = [sentence(draw, draw.choice((BODY, PAPERS))) for _ in range(4)]
        prompt = tokenizer(six_samples(shown[:3])).input_ids
        own = tokenizer(shown[3] + STOP[0]).input_ids
        items.append(Tokenised([*prompt, *own], len(prompt), truncated=False))
    training = LocalTraining(lr=0.01, schedule="constant", batch_size=20, epochs=3, tokens_per_pass=4096)
    train(bank, [items], [bank.initial(Stream(0))], training, training.lr, [Stream(0)])
    return bank.model


def scores(likes):
    """A fleet of one site that scores candidates as sites do."""
    texts = [Vectors().embed([likes])]

    class Sites(Replies):
        def sum(self, verb, sites, **options):
            self.replies = [{"votes": torch.from_numpy(cosines(texts, options["candidates"].numpy())[0]).float()}]
            return super().sum(verb, sites, **options)

    return Sites({})


def world(tmp_path, tokenizer, fleet, model=None, **options):
    (tmp_path / "public.jsonl").write_text("".join(f'{{"text": "the fever of child {k}"}}\n' for k in range(12)))
    given = {"public": str(tmp_path / "public.jsonl"), "public_words": 3, "rounds": 3, "noise_multiplier": 0}
    given |= {"distance": False, "evolve": "preferences", "votes": "cosine", "torn": "kept", "population": 10}
    given |= {"prompts": 4, "candidates_per_prompt": 4, "rejected_rank": 3, "sample_tokens": 10} | options
    config = PretextConfig.parse(given, "test")
    noted, events, counts, benches = {}, [], {}, {}

    def another(option, lora):
        if option not in benches:
            bank = Bank(model or make_llama(tokenizer), lora)
            reading, training = DocumentReading(tokenizer, 64), LocalTraining()
            benches[option] = ModelRuntime(bank, tokenizer, reading, training, max_length=64)
        return benches[option]

    server = SimpleNamespace(
        store={},
        stream=Stream(0),
        journal=journals(),
        note=noted.__setitem__,
        event=events.append,
        count=counts.update,
        note_privacy=lambda figures: None,
        evaluation_set=SimpleNamespace(subjects=["the fever of child 7"]),
        runtime=SimpleNamespace(
            tokenizer=tokenizer, another=another, resources=SimpleNamespace(encoder=lambda option: Vectors())
        ),
    )
    return SimpleNamespace(popri=Popri(config, server, fleet), server=server, noted=noted, events=events, counts=counts)


class Told:
    """A generator that writes what it is told to, prompt by prompt."""

    def __init__(self, *texts):
        self.texts = [text for own in texts for text in own]

    def answers(self, requests):
        yield [Answer(request, self.texts[request.sample], True) for request in requests]


@pytest.fixture(scope="module")
def written_by(tokenizer):
    return writer(tokenizer)


@pytest.mark.slow
@pytest.mark.parametrize("liked", [BODY, PAPERS], ids=["body", "papers"])
def test_the_generator_comes_to_find_likelier_what_sites_like(tmp_path, tokenizer, written_by, monkeypatch, liked):
    """By new sentences behind new prompts: how much likelier one about the body becomes than the same about papers.
    What it writes would say so too, but with chance in each text, and after so few rounds hardly."""
    more = {"prompts": 40, "candidates_per_prompt": 6, "rejected_rank": 4, "sample_tokens": 20}
    tuning = {"lr": 0.002, "beta": 0.05, "batch_size": 8, "rank": 8, "epochs": 5}
    likes, model = scores(sentence(Stream(0).python(), liked)), copy.deepcopy(written_by)
    shown = world(tmp_path, tokenizer, likes, model, tuning=tuning, **more)
    draw = Stream(2).python()
    shown.server.store[SHOWN] = [sentence(draw, nouns) for nouns in (BODY, PAPERS) for _ in range(6)]
    pairs, bench = [], shown.popri._bench
    for _ in range(30):
        prompt = six_samples([sentence(draw, nouns) for nouns in (BODY, PAPERS, draw.choice((BODY, PAPERS)))])
        body = sentence(draw, BODY[:1])
        pairs.append([WrittenText(prompt, one, True) for one in (body, body.replace(BODY[0], draw.choice(PAPERS)))])

    def margins():
        items = [item for pair in tokenised(bench, pairs) for item in (pair.chosen, pair.rejected)]
        adapter = shown.server.store.get(TUNED) or bench.bank.untrained
        body, papers = np.array([-one.nll for one in bench.score([adapter] * len(items), items)]).reshape(-1, 2).T
        return body - papers

    wrote, local = [], popri_module.local
    monkeypatch.setattr(popri_module, "local", lambda *given: wrote.append(given[-1]) or local(*given))
    before, tuned = margins(), [None]
    for number in (2, 3):
        shown.popri.round(number)
        tuned.append(shown.server.store[TUNED])
        assert shown.noted["pairs"] > 8 and wrote[-1] is tuned[-2]  # it writes as the last round has left it
    gained = (margins() - before) * (1 if liked is BODY else -1)
    assert gained.min() > 0 and gained.mean() > 0.1  # nats
    for chosen, rejected, *votes in shown.server.store[PAIRS][0]:
        far = share([chosen]) - share([rejected])
        assert (far > 0 if liked is BODY else far < 0) and votes[0] > votes[1]


def test_a_text_that_is_written_several_times_stands_once_for_its_prompt_and_has_the_votes_of_its_own_place(
    tmp_path, tokenizer, monkeypatch
):
    """To look a text up by what it says finds the first one's votes, whichever is meant (the authors' code)."""
    low, mid, high = "aaa bbb ccc ddd", "aae bbb ccc ddd", "eee eee eee eee"
    generator = Told([low, low, mid, high], [high, mid, mid, low], [mid] * 4, [high, low, "too short", mid])
    monkeypatch.setattr(popri_module, "local", lambda *_: generator)
    fleet = Replies(lambda count: torch.zeros(count))
    shown = world(tmp_path, tokenizer, fleet, rejected_rank=2)
    votes = torch.tensor([0.1, 0.5, 0.2, 0.0, 0.3, 0.4, -0.1, 0.2, 0.1])  # of 3, 3 and 3 texts
    fleet.replies = [{"votes": votes}]
    shown.popri.round(1)
    assert [one[:2] for one in shown.server.store[PAIRS][0]] == [[mid, high], [low, mid], [low, mid]]
    assert [one[2:] for one in shown.server.store[PAIRS][0]] == [
        pytest.approx(two) for two in ([0.5, 0.2], [0.4, 0.3], [0.2, 0.1])
    ]
    assert shown.noted["candidates"] == 9 and shown.noted["pairs"] == 3
    assert shown.counts == {"candidates.repeated": 5, "candidates.unusable": 1}


def test_where_no_text_is_nearer_than_another_nothing_is_preferred_and_nothing_is_nan(tmp_path, tokenizer, monkeypatch):
    same = [f"{word} {word} {word} {word}" for word in ("abc", "bcd", "cda", "dab")]
    monkeypatch.setattr(popri_module, "local", lambda *_: Told(*[same] * 4))
    shown = world(tmp_path, tokenizer, scores("the kidney"))
    shown.popri.round(1)
    assert shown.server.store[PAIRS] == [[]] and "generator" not in shown.server.store
    assert shown.noted == {"candidates": 16, "pairs": 0, "vote_noise": 0.0}
    assert "the votes say nothing" in shown.events[0]


@pytest.mark.parametrize("lie", [100.0, float("nan"), float("inf")])
def test_what_a_site_cannot_have_scored_is_left_out(tmp_path, tokenizer, monkeypatch, lie):
    texts = ["aaa bbb ccc ddd", "bbb ccc ddd fff", "eee bbb ccc ddd", "ggg bbb ccc ddd"]
    monkeypatch.setattr(popri_module, "local", lambda *_: Told(*[texts] * 4))
    honest = {"votes": torch.tensor([0.1, 0.3, 0.2, 0.0] * 4)}
    fleet = Replies(honest, {"votes": torch.tensor([lie, 0.0, 0.0, 0.0] * 4)})
    shown = world(tmp_path, tokenizer, fleet)
    shown.popri.round(1)
    assert {tuple(one[:2]) for one in shown.server.store[PAIRS][0]} == {(texts[1], texts[0])}
    [why] = fleet.events
    assert why.startswith("s1: ") and ("its length is" in why or "holds a NaN or an infinity" in why)


def test_a_generator_that_writes_nothing_of_use_stops_the_run(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(popri_module, "local", lambda *_: Told(*[["always the same text"] * 3 + ["no"]] * 4))
    shown = world(tmp_path, tokenizer, scores("the kidney"))
    with pytest.raises(RunError, match=r"for none of 4 prompts .* 3 different texts \(8 repeated, 4 unusable\)"):
        shown.popri.round(1)


def test_candidates_are_cut_by_the_generators_tokens_and_end_only_where_they_ended(tmp_path, tokenizer, monkeypatch):
    long = "the rash on the skin of the child. the fever stays on monday and the child and the child"
    answers = [long, "the rash on the skin", "the rash of the child\nOriginal Text Sample 5"]
    shown = world(tmp_path, tokenizer, scores("the kidney"), text_tokens=12)
    for torn, texts in (("kept", None), ("mended", "the rash on the skin of the child.")):
        shown.popri.config = shown.popri.config.model_copy(update={"torn": torn})
        request = SimpleNamespace(prompt="Original Text Sample 4\n")
        read = shown.popri._read(
            [Answer(request, text, finished) for text, finished in zip(answers, (True, True, False), strict=True)]
        )
        assert read[0].text == (texts or tokenizer.decode(tokenizer(long).input_ids[:12]).strip())
        assert [one.ends for one in read] == [False, True, True]
        assert read[2].text == "the rash of the child"


def test_a_pair_is_read_behind_its_prompt_with_the_header_that_ended_it(tokenizer, llama, tmp_path):
    bench = world(tmp_path, tokenizer, scores("the kidney")).popri._bench
    prompt = "Below is a list\nOriginal Text Sample 4\n"
    [pair] = tokenised(bench, [(WrittenText(prompt, "the rash", True), WrittenText(prompt, "the fever", False))])
    assert tokenizer.decode(pair.chosen.ids) == prompt + "the rash\nOriginal Text Sample"
    assert tokenizer.decode(pair.rejected.ids) == prompt + "the fever"
    answer = [label for label in pair.chosen.labels if label >= 0]
    assert tokenizer.decode(answer) == "the rash\nOriginal Text Sample"


# ---- whole runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def options(llama_folder):
    return POPRI | {"generator": str(llama_folder)}


def test_from_public_texts_to_a_tuned_generator_and_a_model_at_the_epsilon_of_the_votes(make, options, tmp_path, capfd):
    with (tmp_path / "sites" / "west.jsonl").open("a") as file:
        file.write(json.dumps({"text": "nobody but west keeps zebrafish and writes of zebrafish at night"}) + "\n")
    asked = make(options)
    result = run(asked)
    folder, rows = result.folder, result.rows
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    # The guarantee is that of two rounds of votes of sensitivity 1, and of nothing else.
    promised = plan(asked.method)
    assert promised.clipping.norm == 1.0 and promised.steps == 2
    assert rows[-1]["epsilon"] == pytest.approx(promised.epsilon(2, asked.method.accountant).value, rel=1e-6)
    assert 0 < rows[1]["epsilon"] < rows[2]["epsilon"] == rows[3]["epsilon"] and rows[1]["vote_noise"] == 0.5
    # Nothing but votes left the sites.
    table = {row["verb"]: row for row in json.loads((folder / "disclosure.json").read_text())}
    assert table.keys() == {"join", "vote"} and table["vote"]["protection"]["added_by"] == "server"
    assert table["vote"]["bytes"] == sum(row["candidates"] for row in rows[1:3]) * 4 * len(SITES)
    # Pairs of both rounds, each preferred by its votes.
    rounds = left(folder, "evolution.json")
    assert [len(one["candidates"]) for one in rounds] == [2 * row["pairs"] for row in rows[1:3]] and rows[1][
        "pairs"
    ] > 1
    for one in rounds:
        assert all(first > second for first, second in zip(one["votes"][::2], one["votes"][1::2], strict=True))
    assert rows[1]["tuning_loss"] == pytest.approx(math.log(2), abs=0.1)
    assert rows[2]["tuning_loss"] != rows[1]["tuning_loss"]
    # The model is trained on what the tuned generator wrote, and not on what the other one would have.
    header, *_ = (folder / "expanded.jsonl").read_text().splitlines()
    assert "adapter" in json.loads(header)["generator"] and rows[-1]["trained_texts"] == 5
    assert rows[3]["heldout_loss"] != rows[0]["heldout_loss"]
    card = (folder / "outcomes" / "dataset" / "README.md").read_text(encoding="utf-8")
    assert "POPri" in card and "Differential privacy for each site" in card and "In 2 rounds" in card
    page = (folder / "report.html").read_text()
    assert "Some texts that were preferred" in page and "lived" not in page
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"zebrafish" in path.read_bytes()]
    assert "zebrafish" not in "".join(capfd.readouterr())


def test_a_dry_run_says_what_it_will_take(make, options):
    made = dry_run(make(options))
    told = {work.what: work.total for work in made.work}
    assert told["candidates to write"] == 2 * 4 * 4 and told["pairs to tune on"] == 2 * 4
    assert told["texts to write"] == 5 and made.rounds[0].bytes_up == 3 * 4 * 4 * 4
    assert "texts to vary" not in told
