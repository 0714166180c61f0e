"""Whole runs of PrE-Text and its baselines."""

import json
import re
from types import SimpleNamespace

import datasets
import pytest

from murmura import methods
from murmura.audit.subject import subject
from murmura.data.records import Document
from murmura.errors import BudgetError, ConfigError, DataError, RunError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.run import run
from murmura.federation.engines.local import LocalEngine
from murmura.federation.wire.messages import Reply
from murmura.methods.pretext import ballots, expand_and_train
from murmura.methods.pretext.config import PretextConfig
from murmura.streams import Stream
from murmura.synthesis.answers import Answers, Texts
from murmura.tasks.document import DocumentReading
from murmura.training.config import LocalTraining
from murmura.training.loop import steps_of
from tests.experiment.small import write_lines
from tests.methods.pretext.world import SITES, left, texts


def test_from_public_texts_to_a_trained_model_and_a_data_set_that_says_what_it_promises(
    make, monkeypatch, tmp_path, capfd
):
    with (tmp_path / "sites" / "west.jsonl").open("a") as file:
        file.write(json.dumps({"text": "nobody but west keeps zebrafish and writes of zebrafish at night"}) + "\n")
    with monkeypatch.context() as patch, pytest.raises(RunError, match="stopped"):
        patch.setattr(expand_and_train, "trained", stopped)
        run(make())
    result = run(make(), resume=True)  # what is guaranteed is known in the last round too
    folder, rows = result.folder, result.rows
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    rounds = left(folder, "evolution.json")
    assert [len(one["candidates"]) for one in rounds] == [12, 12] and all(sum(one["drawn"]) == 12 for one in rounds)
    seeds = [t for one in rounds for t, n in zip(one["candidates"], one["drawn"], strict=True) for _ in range(n)]
    loaded = datasets.load_dataset(str(folder / "outcomes" / "dataset"), split="train", cache_dir=str(folder / "cache"))
    assert list(loaded["text"]) == seeds and len(seeds) == 2 * 12
    # Measured before training and at the end, not while sites vote.
    assert [("heldout_loss" in row, "heldout_accuracy" in row) for row in rows] == [(one, one) for one in (1, 0, 0, 1)]
    assert rows[3]["heldout_loss"] != rows[0]["heldout_loss"] and rows[3]["train_loss"] is not None
    assert (folder / "adapter" / "adapter_model.safetensors").exists()
    assert left(folder, "curve.json") == [
        {"texts": len(loaded), "heldout_loss": rows[3]["heldout_loss"], "heldout_accuracy": rows[3]["heldout_accuracy"]}
    ]
    # ε after each round, of exactly the noise that was added, and on the card.
    epsilons = [row["epsilon"] for row in rows]
    assert epsilons[0] is None and 0 < epsilons[1] < epsilons[2] == epsilons[3]
    assert rows[1]["vote_noise"] == 4.0 and rows[1]["privacy"]["unit"] == "site"
    card = (folder / "outcomes" / "dataset" / "README.md").read_text(encoding="utf-8")
    assert "Differential privacy for each site" in card and "δ = 3e-06" in card and "In 2 rounds sites voted" in card
    # Nothing but votes left the sites, in 4 bytes each, and no distance without being asked for.
    table = {row["verb"]: row for row in json.loads((folder / "disclosure.json").read_text())}
    assert table.keys() == {"join", "vote"} and table["vote"]["bytes"] == 2 * 3 * 12 * 4
    assert table["vote"]["protection"]["added_by"] == "server"
    assert rows[3]["bytes_up"] == rows[3]["bytes_down"] == 0 and "population_distance" not in rows[1]
    # A word that only private texts have is in nothing that is kept, cached, shown or said.
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 12 and not [path for path in files if b"zebrafish" in path.read_bytes()]
    assert "zebrafish" not in "".join(capfd.readouterr())


def stopped(*_):
    raise RunError("stopped")


def test_without_noise_sites_tell_how_near_the_population_is_and_nothing_is_promised(make):
    result = run(make({"noise_multiplier": 0}))
    rounds = left(result.folder, "evolution.json")
    assert [sum(one["votes"]) for one in rounds] == [sum(SITES.values())] * 2
    assert all(votes > 0 for one in rounds for votes, n in zip(one["votes"], one["drawn"], strict=True) if n)
    assert [row["epsilon"] for row in result.rows] == [None] * 4
    assert result.rows[3]["heldout_loss"] < result.rows[0]["heldout_loss"] - 0.1  # the model has learnt
    assert all(0 < row["population_distance"] < 2 for row in result.rows[1:3])
    card = (result.folder / "outcomes" / "dataset" / "README.md").read_text(encoding="utf-8")
    assert "Nothing: the votes were counted without noise." in card
    table = {row["field"]: row for row in json.loads((result.folder / "disclosure.json").read_text())}
    assert table["votes"]["protection"] is None and "distance" in table


def test_private_texts_are_given_away_in_clear_and_the_card_says_so(make):
    asked = make({"seeds": "private", "public": "nowhere.jsonl"}, model={"trainable": "all"})
    assert methods.build(asked.method).protects is None
    result = run(asked)
    trained_on = [json.loads(line)["text"] for line in (result.folder / "outcomes/dataset/train.jsonl").open()]
    assert sorted(trained_on) == sorted(texts("tablets", 10)) and len(result.rows) == 3
    assert "Do not publish" in (result.folder / "outcomes" / "dataset" / "README.md").read_text(encoding="utf-8")
    [row] = [row for row in json.loads((result.folder / "disclosure.json").read_text()) if row["verb"] == "share_texts"]
    assert row["messages"] == len(SITES) and row["protection"] is None
    assert result.rows[-1]["heldout_loss"] < result.rows[0]["heldout_loss"] - 0.5
    assert (result.folder / "model" / "model.safetensors").exists()  # the model was trained whole


@pytest.mark.usefixtures("no_page")
def test_a_site_gives_away_no_more_texts_than_it_has(make, monkeypatch):
    """What it makes up could be most of what the model is trained on."""
    liar, ask = next(iter(SITES)), LocalEngine.ask

    def lying(engine, asked, sites):
        for reply in ask(engine, asked, sites):
            lies = reply.site == liar and asked.verb == "share_texts"
            yield Reply(liar, {"texts": [*reply["texts"], "made up"]}) if lies else reply

    monkeypatch.setattr(LocalEngine, "ask", lying)
    result = run(make({"seeds": "private"}))
    [event] = result.rows[1]["events"]
    assert event == f"the answer of site {liar} to 'share_texts' is left out: it holds more than {SITES[liar]} texts"
    trained_on = [json.loads(line)["text"] for line in (result.folder / "outcomes/dataset/train.jsonl").open()]
    assert len(trained_on) == sum(SITES.values()) - SITES[liar] and "made up" not in trained_on


def test_public_texts_are_read_before_anything_is_measured(make):
    asked = make({"public": "nowhere.jsonl"})
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        run(asked)
    assert not (asked.run.path / "metrics.jsonl").exists()


@pytest.mark.parametrize("seeds", ["private", "paraphrased"])
def test_public_texts_do_not_stand_in_for_what_no_site_has_sent(seeds, monkeypatch):
    """All paraphrases may be empty: what is trained on public texts is no DP-Prompt."""
    monkeypatch.setattr("murmura.methods.pretext.paraphrases.note_privacy", lambda *_: None)
    method = methods.build(PretextConfig(seeds=seeds, public="nowhere.jsonl", samples=0))
    server = SimpleNamespace(rows=[{"round": 0}, {"round": 1}], store={"given": []}, rounds=lambda count: [count])
    with pytest.raises(RunError, match="no seed is left"):
        method.lead(server, None)


def test_the_model_is_trained_by_the_options_of_training_and_its_rate_falls_over_these_steps(monkeypatch):
    options = LocalTraining(lr=0.4, lr_min=0.1, schedule="cosine", batch_size=2, epochs=3)
    trained = []

    def train(bank, shards, starts, given, lr, streams, *, watch, **rest):
        [group] = (rates := SimpleNamespace(param_groups=[{"lr": None}])).param_groups
        for done in (0, 6, 12):
            watch(done, rates)
            trained.append(group["lr"])
        assert (given, lr, shards) == (options, 0.4, [["an item"] * 8])
        return ["the result"]

    monkeypatch.setattr(expand_and_train, "train", train)
    bench = SimpleNamespace(step=None, bank=None)
    server = SimpleNamespace(runtime=bench, initial=dict, stream=Stream(0), round=1)
    assert expand_and_train.trained(server, ["an item"] * 8, options) == "the result"
    assert trained == pytest.approx([0.4, 0.25, 0.1])  # 12 steps


def test_a_round_that_is_done_again_drops_what_was_written_after_its_seeds(tmp_path):
    """Those of an earlier attempt: fresh noise chooses others, after which a file of the old ones is refused."""
    method, expanded = methods.build(PretextConfig(seeds="private")), tmp_path / "expanded.jsonl"
    expanded.write_text("{}\n")
    server = SimpleNamespace(
        rows=[], store={}, rounds=lambda count: [1], initial=dict, file=lambda name: tmp_path / name
    )
    replies = [Reply("b", {"texts": ["one", "two"]}), Reply("a", {"texts": ["three"]})]
    method.lead(server, SimpleNamespace(sites=["a", "b", "c"], ask=lambda verb, sites, refused: replies))
    assert not expanded.exists()
    assert server.store["given"] == ["three", "one", "two"]  # whoever answered first


def test_a_text_that_was_cut_off_is_trained_on_without_an_end(tmp_path, tokenizer):
    path, long = tmp_path / "texts", "the rash " * 40
    lines = [("the fever stayed.", True), ("the rash spread to", False), (long, True), (long, False)]
    Answers(path, {}, 4).add(
        [{"sample": k, "attempt": 0, "text": text, "finished": finished} for k, (text, finished) in enumerate(lines)]
    )
    bench = SimpleNamespace(reading=DocumentReading(tokenizer, 24, opened=True))
    bos, eos = tokenizer.bos_token_id or tokenizer.eos_token_id, tokenizer.eos_token_id
    ids = [tokenizer(text, add_special_tokens=False).input_ids for text, _ in lines]
    for unfinished, end in (("open", []), ("ended", [eos])):
        items = expand_and_train.read(PretextConfig(public="x", unfinished=unfinished), bench, Texts(path, 4))
        assert [item.ids for item in items] == [[bos, *ids[0], eos], [bos, *ids[1], *end], *[[bos, *ids[2]][:24]] * 2]
        assert items[0].labels == [-100, *ids[0], eos]  # the first token of a text counts
    assert expand_and_train.read(PretextConfig(public="x"), bench, ["the rash spread to"])[0].ids == [bos, *ids[1], eos]


@pytest.mark.usefixtures("no_page")
def test_on_fewer_texts_the_model_trains_in_as_many_steps(make, llama_folder, monkeypatch):
    """Batches scale with the number of texts (Hou et al. 2024, section 4.3)."""
    trained, train = [], expand_and_train.train

    def watching(bank, shards, starts, options, *rest, **more):
        trained.append((len(shards[0]), options.batch_size, steps_of(len(shards[0]), options)))
        return train(bank, shards, starts, options, *rest, **more)

    monkeypatch.setattr(expand_and_train, "train", watching)
    run(
        make(
            {
                "seeds": "public",
                "population": 12,
                "samples": 8,
                "sample_tokens": 24,
                "curve": [2, 4],
                "generator": str(llama_folder),
            },
            training={"batch_size": 4, "epochs": 1},
        )
    )
    assert [one[0] for one in trained] == [2, 4, 8] and [one[1] for one in trained] == [1, 2, 4]
    assert {one[2] for one in trained} == {2}


@pytest.mark.usefixtures("no_page")
def test_texts_are_written_as_the_options_say(make, llama_folder, monkeypatch):
    options = {"seeds": "public", "samples": 3, "temperature": 0.7, "top_p": 0.9, "generator": str(llama_folder)}
    [header, *_] = (run(make(options)).folder / "expanded.jsonl").read_text().splitlines()
    assert (json.loads(header)["generator"]["temperature"], json.loads(header)["generator"]["top_p"]) == (0.7, 0.9)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    there = PretextConfig(public="x", endpoint="http://somewhere/v1", temperature=0.7, top_p=0.9)
    assert expand_and_train.generator_of(there, None).described["top_p"] == 0.9


def test_seeds_are_expanded_and_the_model_is_trained_on_what_is_written(make, llama_folder, monkeypatch):
    options = {"seeds": "public", "sample_tokens": 24, "generator": str(llama_folder)}
    with monkeypatch.context() as patch, pytest.raises(RunError, match="stopped"):
        patch.setattr(expand_and_train, "trained", stopped)
        run(make(options | {"samples": 4}))
    asked = make(options | {"samples": 7, "curve": [3, 5, 7]})
    begun = (asked.run.path / "expanded.jsonl").read_bytes()
    result = run(asked, resume=True)  # with more texts than it was begun with
    assert (asked.run.path / "expanded.jsonl").read_bytes().startswith(begun)
    with pytest.raises(
        ConfigError, match=r"all rounds are done \(1\), so method\.samples = 9 would change none of them"
    ):
        run(make(options | {"samples": 9, "curve": [3, 5, 7]}), resume=True)
    assert "224 of " in (page := (result.folder / "report.html").read_text()) and " %), at the server<" in page
    found = [json.loads(line)["text"] for line in (result.folder / "outcomes/dataset/train.jsonl").open()]
    curve, last = left(result.folder, "curve.json"), result.rows[-1]
    assert [one["texts"] for one in curve] == [3, 5, len(found)] and len(found) == last["trained_texts"] > 5
    assert curve[-1]["heldout_loss"] == last["heldout_loss"] != curve[0]["heldout_loss"]
    seeds = [json.loads(line)["text"] for line in (result.folder / "outcomes/dataset/seeds.jsonl").open()]
    rows = [json.loads(line) for line in (result.folder / "outcomes/dataset/train.jsonl").open()]
    assert last["cut_texts"] == sum(not row["finished"] for row in rows) > 0
    known = [*texts("rash", 12), *texts("letter", 12), *texts("tablets", 4, 70)]
    assert len(set(seeds)) == len(seeds) == 12 and all(any(one.startswith(text) for one in known) for text in seeds)
    assert (result.folder / "expanded.jsonl").exists() and [row["round"] for row in result.rows] == [0, 1]
    assert {row["verb"] for row in json.loads((result.folder / "disclosure.json").read_text())} == {"join", "attack"}
    assert "no private text was read" in (result.folder / "outcomes" / "dataset" / "README.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.usefixtures("no_page")
def test_a_failure_of_power_does_not_make_paraphrases_that_have_left_unsent(make, llama_folder, monkeypatch):
    """What has travelled is counted without waiting for the disk, which may lose it; what an ε counts by is not."""
    options = {"seeds": "paraphrased", "noise_multiplier": None, "epsilon": 9.0, "texts_per_site": 4}
    asked = make(options | {"paraphraser": str(llama_folder), "paraphrase_tokens": 4})
    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr("murmura.methods.pretext.paraphrases.note_privacy", failed)
        run(asked)
    (asked.run.path / "checkpoint" / "sent.json").write_bytes(b"")
    [*_, last] = run(asked, resume=True).rows
    assert last["epsilon"] == 18.0 and "sent 2 times" in last["privacy"]["plan"]


def failed(*_):
    raise MemoryError


@pytest.mark.usefixtures("no_page")
def test_paraphrases_protect_whole_sites_and_so_tell_no_persons_sites(make, llama_folder, tmp_path):
    options = {"seeds": "paraphrased", "noise_multiplier": None, "epsilon": 9.0, "texts_per_site": 4}
    for file in (tmp_path / "sites").glob("*.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        write_lines(file, [row | {"who": f"{file.stem}{k}" if k else "ann"} for k, row in enumerate(rows)])
    asked = options | {"paraphraser": str(llama_folder), "paraphrase_tokens": 4}
    result = run(make(asked, data={"user": "who", "records_per_user": 2}))
    assert json.loads((result.folder / "data.json").read_text())["person_at"] is None


def test_paraphrases_are_made_at_the_sites_at_an_epsilon_that_holds_against_everybody(make, llama_folder, tmp_path):
    options = {"seeds": "paraphrased", "noise_multiplier": None, "epsilon": 9.0, "texts_per_site": 4}
    options |= {"paraphraser": str(llama_folder), "paraphrase_tokens": 6}
    accounts = {"folder": str(tmp_path / "accounts"), "epsilon": 10.0}
    result = run(make(options, budget=accounts))
    [row] = [row for row in json.loads((result.folder / "disclosure.json").read_text()) if row["verb"] == "paraphrase"]
    assert "auc" not in result.rows[-1]  # what no ε covers is not asked for unless that is wished for
    with pytest.raises(BudgetError, match=r"ε = 9\.000 of 10 is spent, and it would be 18\.000"):
        run(make(options, budget=accounts, run={"folder": str(tmp_path / "again")}))
    assert row["protection"]["added_by"] == "site" and "DP-Prompt, ε=9" in row["protection"]["mechanism"]
    assert 5 <= result.rows[-1]["trained_texts"] <= 4 + 3 + 2  # some may be empty
    assert result.rows[-1]["epsilon"] == 9.0 and result.rows[-1]["privacy"]["delta"] == 0
    # North sends 4 paraphrases and west 2: that tells how many texts they have.
    assert "4 at most, tells how many texts" in row["note"]
    assert result.rows[-1]["privacy"]["adjacency"] == "replace-one, by as many texts"
    card = (result.folder / "outcomes" / "dataset" / "README.md").read_text(encoding="utf-8")
    assert "δ = 0" in card and "holds against everybody, the server too" in card
    assert "Only 4 of your 5 texts take part" in (result.folder / "private" / "north" / "notes.txt").read_text()


@pytest.mark.usefixtures("no_page")
def test_members_in_attacks_are_texts_that_take_part_and_no_canaries(make, monkeypatch):
    """Others touch nothing, and would make the model seem to give less away."""
    voted, choose = {}, ballots.chosen_texts
    monkeypatch.setattr(
        ballots, "chosen_texts", lambda config, cohort, site: voted.setdefault(site.name, choose(config, cohort, site))
    )
    options = {"noise_multiplier": 0.0, "texts_per_site": 3}
    attacked = {"attacks": True, "attack_records": 40}
    asked = make(options, evaluation=attacked, audit={"canaries": 6, "candidates": 2})
    [note] = [note for note in dry_run(asked).notes if "say little" in note]
    found = run(asked)
    what = subject(found.folder)
    planted = what.experiment.task.is_canary
    expected = {site: [text for text in own if not planted(Document(text))] for site, own in voted.items()}
    assert {site: len(own) for site, own in voted.items()} == dict.fromkeys(SITES, 3)
    assert expected == {site: [one.text for one in own] for site, own in what.members.items()} != voted
    told = found.rows[-1]["attacks"]["attack"]
    assert f"Attacks compare {told['members']} members with {told['others']} non-members, and choose" in note
    compared = map(int, re.findall(r"\d+", note)[:3])  # members, others, and those that choose the strongest attack
    assert sum(compared) == sum(map(len, what.members.values())) + len(what.others)


@pytest.mark.usefixtures("no_page")
def test_canaries_of_a_site_that_paraphrases_share_a_coin(make, llama_folder):
    """What is protected is a site, and were each taken for a coin of its own, an audit would show too much."""
    options = {"seeds": "paraphrased", "noise_multiplier": None, "epsilon": 9.0, "texts_per_site": 4}
    asked = options | {"paraphraser": str(llama_folder), "paraphrase_tokens": 4}
    assert run(make(asked, audit={"canaries": 7, "candidates": 2})).rows[-1]["audit_coins"] == len(SITES)
