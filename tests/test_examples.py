"""Every experiment file under examples/ can be read, and planned with a tiny model and small files in its places."""

import csv
import re
import tomllib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from murmura.data.hub import is_hub_id
from murmura.data.loading import load_records
from murmura.data.records import Document, Instruction
from murmura.data.texts import text_hash
from murmura.experiment import Experiment
from murmura.experiment.config import parse_override
from murmura.experiment.forecast.dry_run import dry_run
from murmura.methods.pretext.evolution import plan
from murmura.retrieval.centres import cluster
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.search import nearest
from murmura.retrieval.selection import greedy
from tests.augment.public import embedded_pool, save_encoder
from tests.conftest import make_bert
from tests.experiment.small import record, write_lines
from tests.pages import EXAMPLES

FILES = sorted(EXAMPLES.rglob("*.toml"))
PAPERS = sorted((EXAMPLES / "papers").glob("fewfedpit-*.toml"))
DPLORA = {
    "dplora-gpt2": "openai-community/gpt2",
    "dplora-llama2-7b": "meta-llama/Llama-2-7b-hf",
    "dplora-chatglm-6b": "THUDM/chatglm-6b",
}
EVERY_PAPER = sorted((EXAMPLES / "papers").glob("*.toml"))
LPFL = sorted((EXAMPLES / "papers").glob("lpfl-*.toml"))
FEDDCA = sorted((EXAMPLES / "papers").glob("feddca-*.toml"))
PRETEXT = sorted((EXAMPLES / "papers").glob("pretext-*.toml"))
FLOWERTUNE = sorted((EXAMPLES / "papers").glob("flowertune-*.toml"))
EVOLVE = EXAMPLES / "evolve" / "pretext.toml"
AUGMENTED = [*FEDDCA, EXAMPLES / "domain" / "feddca.toml"]
TINY = {"evaluation.benchmarks": None, "data.max_length": 512}
"""Without what a plan would fetch, and no longer than a tiny model reads."""
CLASSIFY = EXAMPLES / "classify" / "lpfl.toml"
NAMES = [file.stem for file in FILES]


@pytest.fixture(scope="session")
def bert_folder(tokenizer, tmp_path_factory):
    """A tiny masked model whose tokenizer knows whole words, those of the verbalisers among them."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {w for file in LPFL for some in Experiment.load(file).method.verbaliser.values() for w in some}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    core = Tokenizer(models.WordLevel({w: k for k, w in enumerate([*special, *sorted(words)])}, unk_token="[UNK]"))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    wordy = PreTrainedTokenizerFast(tokenizer_object=core, **dict(zip(names, special, strict=True)))
    folder = tmp_path_factory.mktemp("tiny-bert")
    make_bert(wordy).save_pretrained(folder)
    wordy.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def pool_folder(tokenizer, tmp_path_factory):
    """A pool of a tiny encoder, with every domain that an example names."""
    folder = tmp_path_factory.mktemp("public")
    encoder = save_encoder(folder / "encoder", tokenizer)
    records = [Instruction(f"explain result {n}", output=f"call {n}") for n in range(10)]
    domains = ("code", "medical", "finance", "math", "bicycles")
    embedded_pool(folder / "pool", encoder, records, domains)
    return folder / "pool"


@pytest.fixture
def labelled_places(tmp_path, bert_folder):
    """The same for a masked model and labelled texts."""
    rows = [{"text": f"film {n} nice" if n % 2 else f"film {n} dull", "label": n % 2} for n in range(1200)]
    write_lines(tmp_path / "train.jsonl", rows)
    write_lines(tmp_path / "heldout.jsonl", [{"text": f"show {n}", "label": n % 2} for n in range(60)])
    places = {"model.name": str(bert_folder), "run.folder": str(tmp_path / "run"), "method.validation_records": 20}
    return places | {"data.train": str(tmp_path / "train.jsonl"), "data.heldout": str(tmp_path / "heldout.jsonl")}


@pytest.fixture
def places(tmp_path, llama_folder):
    """What is put in the place of an example's model and data: 1200 records, 60 of other kinds held out."""
    rows = [record(f"heart {n // 40}", n) for n in range(1200)]
    rows = [row | {"src": row["instruction"], "input": row["instruction"], "tgt": row["output"]} for row in rows]
    write_lines(tmp_path / "train.jsonl", rows)
    write_lines(tmp_path / "heldout.jsonl", [record("kidney", n) | {"gpt-4-answer": "call"} for n in range(60)])
    model = {"model.name": str(llama_folder), "model.quantization": None, "run.folder": str(tmp_path / "run")}
    return model | {"data.train": str(tmp_path / "train.jsonl"), "data.heldout": str(tmp_path / "heldout.jsonl")}


@pytest.fixture
def text_places(tmp_path, llama_folder, bert_folder, pool_folder):
    """The same for documents: as many as the sites of the paper have, and models for what PrE-Text needs besides."""
    write_lines(tmp_path / "train.jsonl", [{"text": f"heart {n}"} for n in range(10_000)])
    write_lines(tmp_path / "heldout.jsonl", [{"text": f"kidney {n}"} for n in range(60)])
    write_lines(tmp_path / "public.jsonl", [{"text": f"{'spleen ' * 21}{n}"} for n in range(20)])
    others = {"encoder": pool_folder.parent / "encoder", "variation_model": bert_folder, "generator": llama_folder}
    places = {f"method.{option}": str(folder) for option, folder in others.items()}
    places |= {"model.name": str(llama_folder), "run.folder": str(tmp_path / "run")}
    files = {"data.train": "train", "data.heldout": "heldout", "method.public": "public"}
    return places | {option: str(tmp_path / f"{name}.jsonl") for option, name in files.items()}


def test_there_are_examples():
    assert [file.stem for file in PAPERS] == ["fewfedpit-alpaca", "fewfedpit-medalpaca", "fewfedpit-medinstruct"]
    assert len(FILES) > len(PAPERS) and FIGURES.keys() < set(FILES)


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_an_example_says_how_it_is_run(file):
    header = file.read_text(encoding="utf-8").partition("\n[")[0]
    assert all(line.startswith("#") or not line for line in header.splitlines())
    assert f"murmura run {file.relative_to(EXAMPLES.parent).as_posix()}\n" in header


def fewfedpit_figures(file, table, experiment, found):
    few, sites, method = experiment.data.few_shot, experiment.data.sites, experiment.method
    records = 500 if "medinstruct" in file.stem else 1000
    assert few.clusters * few.per_cluster == records
    assert is_hub_id(table["data"]["train"])
    assert (experiment.model.name, experiment.model.quantization) == ("meta-llama/Llama-2-7b-hf", "int8")
    assert (experiment.lora.rank, experiment.training.batch_size, experiment.training.epochs) == (16, 8, 1)
    assert (method.beta, method.keep, method.drafts, method.rouge) == (0.5, 16, 32, 0.7)
    assert (method.instructions_shown, method.examples_shown, method.example_attempts) == (8, 4, 3)
    assert (sites.scheme, sites.alpha) == ("dirichlet-equal", 1.0)
    asked, rounds = (10, 10) if "medinstruct" in file.stem else (2, 30)
    assert [planned.sites for planned in found.rounds] == [asked] * rounds
    assert sum(site.records for site in found.sites) <= records


def dplora_figures(file, table, experiment, found):
    training, method = experiment.training, experiment.method
    assert experiment.model.name == DPLORA[file.stem]
    assert is_hub_id(table["data"]["train"])
    assert (experiment.lora.rank, experiment.data.sites.count, method.rounds) == (512, 5, 50)
    assert (training.batch_size, training.max_steps, training.lr, training.clip) == (8, 1, 5e-4, 10)
    assert (method.noise_multiplier, method.epsilon, method.clipping, method.groups) == (2, None, "batch", "factors")
    assert [(planned.sites, planned.steps) for planned in found.rounds] == [(5, 5)] * 50
    assert found.plan.method.title == "DP-LoRA σ=2 (paper)"


def feddca_figures(file, table, experiment, found):
    training, augment = experiment.training, experiment.augment
    assert is_hub_id(table["data"]["train"])
    assert (experiment.model.name, experiment.model.quantization) == ("meta-llama/Meta-Llama-3-8B", "4bit")
    assert (experiment.lora.rank, experiment.lora.alpha, len(experiment.lora.targets)) == (16, 16, 7)
    assert (training.lr, training.schedule, training.max_steps, training.batch_size) == (5e-5, "cosine", 10, 32)
    assert (experiment.data.max_length, experiment.data.sites.count, experiment.data.sites.records) == (2048, 10, 100)
    assert (augment.strategy, augment.records, augment.clusters, augment.alpha) == ("feddca", 5000, 10, 0.7)
    projector = [getattr(augment, f"projector_{name}") for name in ("records", "batch", "temperature")]
    assert projector == [10_000, 32, 0.5]
    assert augment.domain == file.stem.removeprefix("feddca-")
    assert [planned.sites for planned in found.rounds] == [2] * 30
    header = file.read_text(encoding="utf-8").partition("\n[")[0]
    assert f" {augment.domain}={table['data']['train']}" in header  # the pool that the file says how to build


FIGURES = dict.fromkeys(PAPERS, fewfedpit_figures) | dict.fromkeys(FEDDCA, feddca_figures)
FIGURES |= {EXAMPLES / "papers" / f"{name}.toml": dplora_figures for name in DPLORA}
"""What holds of papers' own files and of their plans."""


@pytest.mark.parametrize("file", FILES, ids=NAMES)
def test_an_example_is_planned_and_a_paper_s_has_its_figures(file, request):
    named = Experiment.load(file)
    evolves = file in (EVOLVE, *PRETEXT)
    kind = "labelled_places" if file in LPFL else "text_places" if evolves else "places"
    places = request.getfixturevalue(kind)
    kept = set() if named.data.sites.by == "partition" else {"data.train"}
    if named.data.heldout is None or (kept and file not in LPFL):
        kept.add("data.heldout")
    if file in AUGMENTED:
        places |= {"augment.pool": str(request.getfixturevalue("pool_folder"))} | (TINY if file in FEDDCA else {})
    if file in FLOWERTUNE:
        places |= TINY
    if file in PRETEXT:
        places |= {"data.sites.count": 5}
    if file == EVOLVE:
        kept.add("method.public")
        places |= {"method.variation_model": places["method.generator"]}
    if file == CLASSIFY:
        places |= {"method.several_tokens": "average"}  # the tiny model's tokenizer has few words
    found = dry_run(Experiment.load(file, set={key: value for key, value in places.items() if key not in kept}))
    assert found.plan.unknown == []
    asking = found.rounds[:-1] if evolves else found.rounds  # the last one trains the model, at the server
    assert asking and all(planned.bytes_up and (planned.steps or evolves) for planned in asking)
    assert found.model.trainable > 0 and found.memory.total > 0
    assert not Path(places["run.folder"]).exists()
    if file in FIGURES:
        FIGURES[file](file, tomllib.loads(file.read_text(encoding="utf-8")), named, found)


def commands(file):
    """What the lines of a file's header that run it set."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("#   murmura run")]
    return [dict(parse_override(given) for given in re.findall(r"--set (\S+)", line)) for line in lines]


@pytest.mark.parametrize("file", [*EVERY_PAPER, EVOLVE], ids=[file.stem for file in [*EVERY_PAPER, EVOLVE]])
def test_commands_in_a_header_are_right(file):
    assert commands(file)
    for given in commands(file):
        Experiment.load(file, set=given)


@pytest.mark.parametrize(("name", "available"), [("imdb", 25_000), ("yelp", 560_000)])
def test_lpfl_s_sites_have_25000_texts_in_all_however_many_they_are(name, available):
    file = EXAMPLES / "papers" / f"lpfl-{name}.toml"
    for given in commands(file):
        sites = Experiment.load(file, set=given).data.sites
        assert sites.count * min(sites.records or available, available // sites.count) == 25_000


@pytest.mark.parametrize("file", LPFL, ids=[file.stem for file in LPFL])
def test_lpfl_s_own_figures(file, labelled_places):
    experiment = Experiment.load(file)
    data, training, method = experiment.data, experiment.training, experiment.method
    assert is_hub_id(tomllib.loads(file.read_text(encoding="utf-8"))["data"]["train"])
    assert (experiment.lora.rank, training.batch_size, training.epochs, data.max_length) == (8, 8, 5, 128)
    assert (method.rounds, method.gate, method.share, method.validation_records) == (5, 0.7, 0.25, 1000)
    assert len(method.patterns) == 4 and all(len(words) == 10 for words in method.verbaliser.values())
    found = dry_run(Experiment.load(file, set=labelled_places))
    assert (found.plan.method.title, [planned.sites for planned in found.rounds]) == ("LP-FL", [2] * 5)
    assert len(found.heldout) == 60 - 20
    assert "[MASK]" not in found.example and "{blank}" in found.example


@pytest.mark.parametrize("file", PRETEXT, ids=[file.stem for file in PRETEXT])
def test_pretext_s_own_figures(file):
    experiment = Experiment.load(file)
    training, method = experiment.training, experiment.method
    llama = file.stem == "pretext-llama2-7b"
    assert (training.lr, training.schedule, experiment.data.max_length) == (2e-4, "constant", 64)
    assert (method.rounds, method.population, method.lookahead, method.steps, method.change) == (11, 2048, 4, 2, 0.3)
    assert (method.text_tokens, method.texts_per_site, method.threshold, method.public_words) == (64, 8, 1, 20)
    assert (method.variation_model, method.generator) == ("FacebookAI/roberta-large", "meta-llama/Llama-2-7b-hf")
    assert (method.sample_tokens, method.samples, method.delta) == (85, 50_000 if llama else 2_000_000, 3e-6)
    assert (training.batch_size, training.epochs) == ((512, 1) if llama else (65_536, 20))
    assert (method.temperature, method.top_p, method.variation_temperature, method.variation_top_p) == (1, 1, 1, 1)
    assert (method.repeats, method.torn, method.unfinished) == ("weigh", "kept", "open" if llama else "ended")
    assert experiment.data.opening == "always"
    if llama:
        assert (experiment.lora.rank, experiment.lora.alpha, len(experiment.lora.targets)) == (4, 8, 7)
    for epsilon, z in ((7.58, 2.31), (1.29, 11.3)):  # the paper's noise for its two levels
        assert plan(Experiment.load(file, set={"method.epsilon": epsilon}).method).noise.std == pytest.approx(z, 5e-3)


def test_pretext_s_sites_are_planned_as_many_as_they_are(text_places):
    found = dry_run(Experiment.load(PRETEXT[0], set=text_places))
    assert [planned.sites for planned in found.rounds] == [1250] * 11 + [0]
    assert {site.records for site in found.sites} == {8}
    assert found.plan.method.title == "PrE-Text ε=7.58"


def test_the_beekeepers_notes_are_neither_public_nor_held_out():
    names = ("notes", "public", "heldout")
    notes, public, heldout = (load_records(EVOLVE.parent / f"{name}.jsonl", Document).records for name in names)
    assert (len(notes), len(public), len(heldout)) == (72, 54, 16)
    assert len({text_hash(record.text) for record in [*notes, *public, *heldout]}) == 142
    assert all(len(record.text.split()) > Experiment.load(EVOLVE).method.public_words for record in public)


def test_the_workshops_records_are_not_in_the_pool_beside_them():
    folder = EXAMPLES / "domain"
    private = [*(folder / "sites").glob("*.jsonl"), folder / "heldout.jsonl"]
    own, public = (
        [record.question for file in files for record in load_records(file, Instruction).records]
        for files in (private, sorted((folder / "pool").glob("*.jsonl")))
    )
    assert (len(own), len(public)) == (32, 84)
    assert len({text_hash(text) for text in own + public}) == 116
    assert "examples/domain/pool/bicycles.jsonl" in (folder / "feddca.toml").read_text()


@pytest.mark.real
def test_the_workshops_are_given_what_is_about_bicycles_whichever_clusters_k_means_finds():
    folder, augment = EXAMPLES / "domain", Experiment.load(EXAMPLES / "domain" / "feddca.toml").augment
    encoder = Encoder("minilm")

    def embedded(files):
        return [encoder.embed([record.question for record in load_records(one, Instruction).records]) for one in files]

    sites = embedded(sorted((folder / "sites").glob("*.jsonl")))
    pool = embedded(folder / "pool" / f"{name}.jsonl" for name in ("bicycles", "garden", "kitchen"))
    for seed in range(12):
        centres = [cluster(own, augment.clusters, seed, augment.smallest_cluster) for own in sites]
        queries = [own.points[pick] for own, pick in zip(centres, greedy(centres), strict=True)]
        found = [one.rows for one in nearest(np.stack(queries), np.concatenate(pool), augment.records)]
        assert np.concatenate(found).max() < len(pool[0])
        assert len(np.unique(np.concatenate(found))) > 2 * augment.records  # each of the three something else


def test_the_classifier_s_table_is_labelled_in_part_and_predicted_on_other_texts():
    with (
        (CLASSIFY.parent / "messages.csv").open(encoding="utf-8") as one,
        (CLASSIFY.parent / "new.csv").open(encoding="utf-8") as other,
    ):
        rows, new = list(csv.DictReader(one)), list(csv.DictReader(other))
    labels = Counter(row["label"] for row in rows)
    assert labels == {"": 52, "thanks": 14, "complaint": 14}
    assert set(labels) - {""} == set(Experiment.load(CLASSIFY).method.verbaliser)
    assert len({row["text"] for row in [*rows, *new]}) == len(rows) + len(new)


@pytest.mark.real
def test_the_classifier_s_words_are_single_tokens_of_the_model_that_it_names():
    assert dry_run(Experiment.load(CLASSIFY)).plan.unknown == []
