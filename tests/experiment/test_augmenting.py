"""Runs with ``[augment]``, from their file to their folder."""

import json
import shutil
import tomllib
from dataclasses import asdict
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from safetensors.torch import load_file

import murmura.federation.site.cohort
from murmura.augment.noise import planned
from murmura.data.records import Instruction
from murmura.errors import CheckpointError, ConfigError, DataError, PrivacyError
from murmura.experiment.forecast.dry_run import dry_run
from murmura.experiment.forecast.timing import timing
from murmura.experiment.forecast.view import show
from murmura.experiment.run import run
from murmura.federation.server import rounds
from murmura.federation.site.cohort import Cohort
from murmura.federation.wire.messages import decode
from murmura.methods.averaging import Averaging
from murmura.methods.dplora.guarantee import plan
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.pool import VECTORS, Pool
from murmura.runs import read
from murmura.training.adapter import is_same
from tests.augment.public import embedded_pool, public, save_encoder
from tests.experiment.small import SIZES, experiment, record, write_data, write_lines
from tests.retrieval.pools import devices_asked, make_pool, unit

ROWS = 30
QUICK = {"attacks": False, "sample": 1, "every": 9}


@pytest.fixture(scope="module")
def encoder(tokenizer, tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"), tokenizer)


@pytest.fixture(scope="module")
def pool(encoder, tmp_path_factory):
    """Public records of two domains; the second one is also a record of the site heart."""
    own = public(1, first=2)
    return embedded_pool(tmp_path_factory.mktemp("pool"), encoder, [*public(1), *own, *public(ROWS - 2, first=102)])


@pytest.fixture
def make(tmp_path, llama_folder, pool, monkeypatch):
    """Makes experiments in which each site is given four records."""
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    write_data(tmp_path)

    def made(method=None, augment=None, **sections):
        chosen = {"pool": str(pool.folder), "records": 4, **(augment or {})}
        strategy = chosen.setdefault("strategy", "feddca")
        # Vectors of a random encoder are all alike, and α would leave none.
        chosen |= {} if strategy == "random" else {"clusters": 2} | ({} if strategy == "direct" else {"alpha": 0})
        return experiment(tmp_path, llama_folder, method, augment=chosen, **sections)

    return made


@pytest.mark.parametrize(
    "strategy", ["feddca", "random", *(pytest.param(name, marks=pytest.mark.slow) for name in ("coverage", "direct"))]
)
def test_a_run_tells_what_was_given_to_whom_and_why(make, strategy, monkeypatch):
    devices = devices_asked(monkeypatch)
    domain = {"domain": "heart"} if strategy == "feddca" else {}
    result = run(make(augment={"strategy": strategy} | domain, evaluation=QUICK))
    [choice] = read(result.folder).augment
    asked = {(row.verb, row.field): row.messages for row in read(result.folder).disclosure}
    assert choice.round == 1 and {site: one.rows for site, one in choice.sites.items()} == dict.fromkeys(SIZES, 4)
    assert devices == (set() if strategy == "random" else {"cpu"})  # the model's, and not whichever there is
    assert len(choice.examples) == 8 and (len(choice.points) > 15) == bool(domain)
    assert [row.get("coverage") for row in result.rows] == [None, choice.coverage, choice.coverage]
    written = tomllib.loads((result.folder / "config.toml").read_text())["augment"]
    if strategy == "random":
        assert not choice.private and choice.histogram is None and ("centres", "centres") not in asked
        assert "encoder" not in written
    else:
        assert choice.private and asked["centres", "centres"] == asked["centres", "sizes"] == 2
        assert choice.centres == 2 * len(SIZES) and choice.mean_similarity > 0
        assert written["encoder"] == Pool.open(written["pool"]).encoder.name
    sent = sum(one.bytes for one in choice.sites.values())
    assert result.rows[1]["bytes_down"] > result.rows[2]["bytes_down"] + sent


@pytest.mark.usefixtures("no_page")
def test_sites_train_on_what_they_are_given_and_count_for_it(make, shards, monkeypatch):
    examples, answered = {}, Averaging.answered

    def counted(self, *args, **options):
        replies = answered(self, *args, **options)
        examples.update((reply.site, reply["examples"]) for reply in replies)
        return replies

    monkeypatch.setattr(Averaging, "answered", counted)
    result = run(make({"rounds": 1}, {"strategy": "random", "records": ROWS}, evaluation=QUICK))
    # One of the pool's records is heart's own, which it leaves out; nobody else is told.
    assert shards == {"heart": 6 + ROWS - 1, "skin": 3 + ROWS}
    assert examples == {"heart": 6 + ROWS, "skin": 3 + ROWS}
    notes = (result.folder / "private" / "heart" / "notes.txt").read_text()
    assert f"of {ROWS} public records that the server has sent, 1 ask" in notes and "left out" in notes
    assert not (result.folder / "private" / "skin" / "notes.txt").exists()
    assert read(result.folder).augment[0].sites["heart"].rows == ROWS


@pytest.fixture
def trained(monkeypatch):
    """What sites train on, in turn: (purpose, how many records each has, whether they start from the same adapter)."""
    seen, train = [], Cohort.train

    def noting(self, shards, starts, lr, purpose, **options):
        seen.append((purpose, [len(shard) for shard in shards], is_same(starts[0], starts[-1])))
        return train(self, shards, starts, lr, purpose, **options)

    monkeypatch.setattr(Cohort, "train", noting)
    return seen


@pytest.mark.parametrize(
    "method",
    [{"name": "local"}, {"name": "cmfl"}, {"name": "tfedavg"}, {"name": "dpftrl", "noise_multiplier": 0.0}],
    ids=str,
)
@pytest.mark.usefixtures("no_page")
def test_other_methods_train_on_public_records_with_the_own_ones_too(make, trained, method):
    run(make(method | {"rounds": 1}, {"strategy": "random", "records": 7}, evaluation=QUICK))
    assert trained == [("private", [6 + 7, 3 + 7], True)]


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", [{"local": "fedprox"}, {"local": "scaffold"}, {"server": "fedavgm"}], ids=str)
@pytest.mark.usefixtures("no_page")
def test_other_ways_to_aggregate_do_too(make, trained, aggregation):
    public = {"strategy": "random", "records": 7}
    run(make({"rounds": 1}, public, aggregation=aggregation, evaluation=QUICK))
    assert trained == [("private", [6 + 7, 3 + 7], True)]


@pytest.mark.usefixtures("no_page")
def test_in_fewfedpit_public_records_join_the_public_branch_and_no_other(make, trained):
    writing = {"name": "fewfedpit", "rounds": 1, "keep": 2, "instruction_tokens": 4, "example_tokens": 4}
    result = run(make(writing, {"strategy": "random", "records": 5}, evaluation=QUICK))
    assert trained == [("private", [6, 3], True), ("synthetic", [5, 5], True)]  # a random model writes nothing of use
    assert not result.rows[1]["events"] and "sites.without_synthetic" not in result.rows[1]["counts"]
    trained.clear()
    run(
        make(
            writing | {"name": "fedmit"},
            {"strategy": "random", "records": 5},
            evaluation=QUICK,
            run={"folder": str(result.folder.parent / "fedmit")},
        )
    )
    assert trained[-1] == ("together", [6 + 5, 3 + 5], True)


@pytest.mark.usefixtures("no_page")
def test_dp_lora_trains_on_public_records_first_and_its_epsilon_counts_private_steps_alone(make, trained, monkeypatch):
    pulled, train = [], Cohort.train

    def pulling(self, shards, starts, *rest, **options):
        pulled.append((starts[0], options["anchors"][0]))
        return train(self, shards, starts, *rest, **options)

    monkeypatch.setattr(Cohort, "train", pulling)
    private = {"name": "dplora", "noise_multiplier": 1.0, "accountant": "rdp", "rounds": 1}
    fedprox = {"local": "fedprox"}
    experiment = make(private, {"strategy": "random", "records": ROWS}, evaluation=QUICK, aggregation=fedprox)
    result = run(experiment)
    first, second = trained
    (sent, to), (_, to_then) = pulled  # FedProx's term pulls to the global adapter in either phase
    assert is_same(sent, to) and is_same(to, to_then)
    # heart has one of the public records too: to leave it out would depend on its private records.
    assert first == ("public", [ROWS, ROWS], True) and second == ("private", [6, 3], False)
    plans = [plan(experiment.method, experiment.training, size) for size in SIZES.values()]
    spent = max(one.epsilon(accountant="rdp").value for one in plans)
    assert result.rows[-1]["epsilon"] == pytest.approx(spent) and result.rows[-1]["privacy"]["refused"] is None
    notes = (result.folder / "private" / "heart" / "notes.txt").read_text()
    assert "trained on as public records all the same" in notes


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_all_sites_of_a_run_with_secret_cohorts_are_given_theirs(make, trained):
    secret = {
        "name": "dpfedavg",
        "noise_multiplier": 1.0,
        "sampler": {"kind": "poisson", "sites_per_round": 1},
        "rounds": 2,
    }
    result = run(make(secret | {"accountant": "rdp"}, {"strategy": "random"}, evaluation=QUICK))
    [choice] = read(result.folder).augment
    assert {site: one.rows for site, one in choice.sites.items()} == dict.fromkeys(SIZES, 4)
    sent = sum(one.bytes for one in choice.sites.values())
    assert sent < result.rows[1]["bytes_down"] - result.rows[2]["bytes_down"] < sent + 50
    assert all(size in (6 + 4, 3 + 4) for _, sizes, _ in trained for size in sizes)


@pytest.mark.usefixtures("no_page")
def test_in_feddca_star_sites_have_another_encoder_and_the_server_projects_its_vectors(make, tokenizer, tmp_path):
    small = str(save_encoder(tmp_path / "small", tokenizer, hidden=16))
    experiment = make({"rounds": 1}, {"site_encoder": small, "projector_epochs": 1}, evaluation=QUICK)
    result = run(experiment)
    [choice] = read(result.folder).augment
    assert choice.strategy == "FedDCA, projected" and choice.scored_by == "dot product"
    assert all(one.rows == 4 and one.similarity.most <= 1 for one in choice.sites.values())
    [told] = json.loads((result.folder / "environment.json").read_text())["resources"]
    assert (told["option"], told["place"]) == ("augment.site_encoder", "at the sites and the server")
    [row] = [row for row in read(result.folder).disclosure if row.field == "centres"]
    assert row.bytes == 2 * 2 * 16 * 4  # sites, centres, numbers, bytes


@pytest.mark.usefixtures("no_page")
def test_what_is_nearly_a_sites_own_is_not_sent_to_it(make, monkeypatch, tmp_path, encoder):
    """The golden example of retrieval, from the file to the site's store: α is about rows of the pool."""
    cosines = np.array([0.95, 0.9, 0.69, 0.2, 0.68])
    vectors = np.stack([cosines, np.sqrt(1 - cosines**2)], axis=1).astype(np.float32)
    made = make_pool(tmp_path / "golden", vectors)
    monkeypatch.setattr(Encoder, "embed", lambda self, texts: np.tile(np.float32([1, 0]), (len(texts), 1)))
    monkeypatch.setattr(Encoder, "fingerprint", made.encoder.fingerprint)
    augment = {"pool": str(made.folder), "encoder": str(encoder), "records": 2}
    experiment = make({"rounds": 1}, augment, evaluation=QUICK)
    result = run(experiment.model_copy(update={"augment": experiment.augment.model_copy(update={"alpha": 0.7})}))
    for site in SIZES:
        stored = decode(max((result.folder / "private" / site).glob("round-*")).read_bytes())
        assert [Instruction(*fields) for fields in stored["public"]] == made.records([2, 4])
    assert [one.similarity for one in read(result.folder).augment[0].examples[::2]] == pytest.approx([0.69, 0.68])
    assert "fewer centres than the 2 asked for" in result.rows[1]["events"][0]  # all vectors are one


@pytest.mark.usefixtures("no_page")
def test_what_the_run_is_measured_with_is_given_to_nobody(make, tmp_path, encoder, capsys):
    heldout = [Instruction(**record("kidney", number)) for number in range(2)]
    folder = embedded_pool(tmp_path / "own", encoder, [*heldout, *public(2)]).folder
    result = run(make({"rounds": 1}, {"strategy": "random", "pool": str(folder)}, evaluation=QUICK))
    assert {one.rows for one in read(result.folder).augment[0].sites.values()} == {2}
    assert "2 records of the pool ask what the run is measured with" in capsys.readouterr().err


@pytest.mark.parametrize("by", ["partition", "file"])
@pytest.mark.usefixtures("no_page")
def test_what_one_file_has_shared_out_to_the_sites_is_given_to_none(make, tmp_path, encoder, capsys, by):
    """Where sites have files of their own, each knows its own records alone."""
    private = [record(site, number) for site in SIZES for number in range(2)]
    folder = embedded_pool(tmp_path / "own", encoder, [*(Instruction(**one) for one in private), *public(2)]).folder
    write_lines(
        tmp_path / "all.jsonl", [record(site, number) for site, size in SIZES.items() for number in range(size)]
    )
    shared = {"train": str(tmp_path / "all.jsonl"), "sites": {"by": "partition", "count": 2}}
    result = run(
        make(
            {"rounds": 1},
            {"strategy": "random", "pool": str(folder), "records": 6},
            evaluation=QUICK,
            **({"data": shared} if by == "partition" else {}),
        )
    )
    given = {one.rows for one in read(result.folder).augment[0].sites.values()}
    said = "4 records of the pool were shared out to the sites" in capsys.readouterr().err
    assert (given, said) == (({2}, True) if by == "partition" else ({6}, False))


@pytest.mark.usefixtures("no_page")
def test_a_run_does_not_go_on_with_another_pool_and_keeps_what_it_has(make, tmp_path, encoder):
    folder = embedded_pool(tmp_path / "own", encoder, public(8)).folder
    augment = {"strategy": "random", "pool": str(folder)}
    first = run(make({"rounds": 1}, augment, evaluation=QUICK)).folder
    told = (first / "augment.json").read_text()
    shutil.rmtree(folder)
    embedded_pool(folder, encoder, public(9))
    with pytest.raises(CheckpointError, match=r"augment\.pool = .* is not what the run has read"):
        run(make({"rounds": 2}, augment, evaluation=QUICK), resume=True)
    other = embedded_pool(tmp_path / "other", encoder, public(9)).folder
    with pytest.raises(ConfigError, match="this is another pool than the run was started with"):
        run(make({"rounds": 2}, augment | {"pool": str(other)}, evaluation=QUICK), resume=True)
    moved = embedded_pool(tmp_path / "moved", encoder, public(8)).folder
    run(make({"rounds": 2}, augment | {"pool": str(moved)}, evaluation=QUICK), resume=True)
    assert (first / "augment.json").read_text() == told  # chosen once


@pytest.mark.slow
@pytest.mark.usefixtures("no_page")
def test_worker_processes_give_the_same(make, tmp_path, forked_workers):
    found = {}
    for engine in ("local", "processes"):
        augment = {"every": 1, "focus": "hardest", "domain": "heart"}
        result = run(make(augment=augment, run={"engine": engine, "folder": str(tmp_path / engine)}, evaluation=QUICK))
        adapter = load_file(result.folder / "adapter" / "adapter_model.safetensors")
        found[engine] = adapter, [asdict(one) for one in read(result.folder).augment]
    (adapter, told), (other, again) = found.values()
    assert [{site: one["rows"] for site, one in row["sites"].items()} for row in told] == [dict.fromkeys(SIZES, 4)] * 2
    assert [[one["text"] for one in row["examples"]] for row in told] == [
        [one["text"] for one in row["examples"]] for row in again
    ]
    assert all((adapter[name] - other[name]).abs().max() < 1e-5 for name in adapter)


@pytest.mark.usefixtures("no_page")
def test_a_dry_run_foresees_steps_and_bytes_and_tells_what_would_be_sent(make, monkeypatch):
    steps = []

    def counting(*args, **options):
        results = train(*args, **options)
        steps.append(sum(result.steps for result in results))
        return results

    train = murmura.federation.site.cohort.train
    monkeypatch.setattr(murmura.federation.site.cohort, "train", counting)
    planned = make(augment={"records": 5, "every": 1, "strategy": "coverage"}, evaluation=QUICK)
    found = dry_run(planned)
    result = run(planned)
    assert [one.steps for one in found.rounds] == steps
    assert [site.steps for site in found.sites] == [(6 + 5 + 1) // 2, (3 + 5) // 2]
    public = found.public
    assert public.records == 5
    told = json.loads((result.folder / "disclosure.json").read_text())
    assert public.up == sum(row["bytes"] for row in told if row["verb"] == "centres")
    sent = [one.bytes for choice in read(result.folder).augment for one in choice.sites.values()]
    assert public.down == pytest.approx(sum(sent), rel=0.1)
    assert {(row.verb, row.field) for row in found.disclosure} >= {("centres", "centres"), ("centres", "sizes")}
    assert any("no ε covers it" in note for note in found.notes)
    assert found.count("texts to embed") == 2 * sum(SIZES.values()) and timing(found).of("choosing") > 0
    out = Console(file=StringIO(), width=200)
    show(found, out)
    assert "at most 5 a site of 30 in the pool, chosen 2 times (coverage)" in out.file.getvalue()
    assert "augment.encoder" in out.file.getvalue()


# ---- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "augment", "said"),
    [
        ({"name": "centralised"}, {}, "augment: .*: all records are in one place"),
        ({"name": "fewfedweight"}, {}, "augment: FewFedWeight .* writes and weighs answers"),
        ({"name": "fewfedpit", "beta": 1.0}, {}, r"augment: .*with method\.beta = 1 there is no branch"),
        ({"name": "dplora"}, {}, r"augment\.strategy: .*promises an ε .*not cover.* centres of clusters.*'random'"),
        ({"name": "dpfedavg"}, {"strategy": "direct"}, r"augment\.strategy: .*promises an ε"),
        ({}, {"domain": "hart"}, r"augment\.domain: .*'hart'.*Did you mean 'heart'"),
        ({}, {"site_encoder": "SAME"}, r"augment\.site_encoder: .* is the pool's own encoder"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(make, encoder, method, augment, said):
    augment = {key: str(encoder) if value == "SAME" else value for key, value in augment.items()}
    refused = make(method, augment)
    for tried in (dry_run, run):
        with pytest.raises(ConfigError, match=said):
            tried(refused)
    assert not refused.run.path.exists()


def test_a_domain_of_which_the_pool_has_no_record_is_refused(make, tmp_path):
    empty = make_pool(tmp_path / "empty", unit(1, 8), ("heart", "letter"))
    with pytest.raises(ConfigError, match=r"augment\.domain: .*'letter' and no records of it.*murmura pool info"):
        dry_run(make(augment={"pool": str(empty.folder), "domain": "letter", "strategy": "random"}))


@pytest.mark.parametrize(
    ("method", "augment", "said"),
    [
        ({"name": "dplora"}, {"strategy": "random"}, "the ε that DP-LoRA"),
        ({"name": "dpfedavg"}, {"strategy": "random"}, "promises would not cover"),
        ({}, {"noise_multiplier": 2.0}, "the centres' ε"),
        ({}, {"strategy": "random"}, None),
    ],
)
@pytest.mark.usefixtures("no_page")
def test_no_epsilon_is_stated_over_a_pool_from_which_private_records_are_missing(
    make, encoder, tmp_path, method, augment, said
):
    folder = tmp_path / "without"
    embedded_pool(folder, encoder, public(ROWS))
    manifest = json.loads((folder / "pool.json").read_text())
    (folder / "pool.json").write_text(json.dumps(manifest | {"without_private": True}))
    chosen = make(method, augment | {"pool": str(folder)})
    if said is None:
        assert run(make(method | {"rounds": 1}, augment | {"pool": str(folder)}, evaluation=QUICK)).rows
        assert read(chosen.run.path).augment[0].without_private
        return
    for tried in (dry_run, run):
        with pytest.raises(ConfigError, match=rf"augment\.pool: private records were left out.*{said}"):
            tried(chosen)


def test_only_sites_with_instructions_are_augmented(make):
    with pytest.raises(ConfigError, match=r"train on public instructions, and data\.kind is 'document'"):
        make(data={"kind": "document"})


@pytest.mark.usefixtures("no_page")
def test_a_pool_that_is_missing_damaged_or_anothers_is_told_before_the_run_begins(make, pool, tmp_path, tokenizer):
    folder = shutil.copytree(pool.folder, tmp_path / "copy")
    data = (folder / VECTORS).read_bytes()
    (folder / VECTORS).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    other = save_encoder(tmp_path / "other", tokenizer, seed=1)
    for augment, said in (
        ({"pool": str(tmp_path / "nowhere")}, "nowhere: there is no pool here"),
        ({"pool": str(folder)}, "copy/vectors.npy: the pool is damaged"),
        ({"search": "approximate"}, "the pool has no index for approximate search.*murmura pool index"),
        ({"encoder": str(other)}, "the pool's vectors are of the encoder .* and .*other' is another one"),
    ):
        refused = make(augment=augment)
        with pytest.raises(DataError, match=said):
            run(refused)
        assert not refused.run.path.exists()


# ---- noise on centres --------------------------------------------------------------------------------------------


def test_a_dry_run_tells_the_epsilon_of_noisy_centres_as_theirs_alone(make):
    found = dry_run(make(augment={"noise_multiplier": 2.0}))
    [told] = [one for one in found.notes if "behind noise" in one]
    assert "they alone are covered by ε = 5.545" in told and "the run has none" in told
    assert found.guarantee == "none" and not any("no ε covers it" in one for one in found.notes)


@pytest.mark.usefixtures("no_page")
def test_noisy_centres_that_left_in_a_round_that_was_lost_count_too(make, monkeypatch):
    """The server dies after sites have answered; the round is repeated, and centres are sent again."""
    chosen = make({"rounds": 1}, {"noise_multiplier": 2.0}, evaluation=QUICK)
    saved = rounds.save

    def dying(path, checkpoint):
        if checkpoint.round:
            raise RuntimeError("the lights go out")
        saved(path, checkpoint)

    monkeypatch.setattr(rounds, "save", dying)
    with pytest.raises(RuntimeError, match="lights"):
        run(chosen)
    monkeypatch.setattr(rounds, "save", saved)
    [choice] = read(run(chosen, resume=True).folder).augment
    spent = planned(chosen.augment, rounds=1)
    assert choice.guarantee.epsilon == pytest.approx(spent.epsilon(2 * spent.steps).value)
    assert choice.guarantee.epsilon > spent.epsilon().value


@pytest.mark.usefixtures("no_page")
def test_a_run_does_not_go_on_to_more_noisy_centres_than_its_sites_have_planned(make):
    augment = {"noise_multiplier": 2.0, "every": 1}
    folder = run(make({"rounds": 2}, augment, evaluation=QUICK)).folder
    ledger = folder / "private" / "heart" / "centres.journal"
    before = ledger.read_bytes()
    with pytest.raises(PrivacyError, match="noisy centres in 2 rounds, and would go on with some in 3 rounds"):
        run(make({"rounds": 3}, augment, evaluation=QUICK), resume=True)
    assert ledger.read_bytes() == before and len(read(folder).augment) == 2
