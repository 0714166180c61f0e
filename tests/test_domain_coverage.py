"""The study of domain coverage: what it deals out, fetches, measures, keeps and tells, on a few vectors."""

import json
from dataclasses import replace

import numpy as np
import pytest

from murmura.augment.influence import features, influences, projection
from murmura.data.records import Instruction
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.selection import greedy
from murmura.streams import Stream
from tests.conftest import WORDS, make_encoder
from tests.experiment.small import write_lines
from tests.retrieval.pools import make_pool

DOMAINS = ("code", "math", "finance", "medical", "general")


@pytest.fixture
def coverage(study):
    return study("domain_coverage")


@pytest.fixture
def world(coverage):
    """Five domains of 60 records each, around a corner of their own, every record with three directions within it."""
    rng = Stream(2).numpy()
    owners = np.repeat(np.arange(5), 60)
    vectors = np.eye(5, 16)[owners] + 0.4 * np.eye(3, 16, 5)[np.arange(300) % 3] + 0.1 * rng.normal(size=(300, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    small = (vectors @ rng.normal(size=(16, 10))).astype(np.float32)

    def influence(rows, own):
        return np.stack([(vectors[rows] @ vectors[one].T).max(axis=1) for one in own], axis=1)

    return coverage.World(vectors, small / np.linalg.norm(small, axis=1, keepdims=True), owners, DOMAINS, influence)


@pytest.fixture
def setting(coverage):
    return coverage.Setting("math", fetched=8, clusters=3, alpha=None, sites=4, records=6)


def test_records_are_dealt_out_in_the_domain_and_by_the_seed(coverage, world, setting):
    one, same, other = (coverage.Case(world, setting, seed) for seed in (0, 0, 1))
    assert [len(rows) for rows in one.sites] == [6] * 4
    assert len(one.private) == 24 and set(one.private) <= set(world.rows_of("math"))
    assert len(one.public) == 276 and not set(one.public) & set(one.private)
    assert np.array_equal(one.private, same.private) and not np.array_equal(one.private, other.private)


def test_sites_differ_the_more_the_smaller_the_concentration(coverage, world, setting, monkeypatch):
    monkeypatch.setitem(coverage.Case.__post_init__.__globals__, "LABELS", 3)

    def spread(concentration):
        case = coverage.Case(world, replace(setting, dirichlet=concentration), 0)
        assert [len(rows) for rows in case.sites] == [6] * 4
        return np.mean([world.vectors[rows].var(axis=0).sum() for rows in case.sites])

    assert spread(0.01) < 0.8 * spread(100.0)


def test_mixtures_have_records_of_all_domains_and_clusters_of_their_own_if_they_are_not_iid(coverage, world, setting):
    def domains(way):
        case = coverage.Case(world, replace(setting, private=way), 0)
        assert len(case.private) == len(np.unique(case.private)) == 24
        return [set(world.domain[rows]) for rows in case.sites]

    assert len(set.union(*domains("iid"))) == 5
    assert len(set.union(*domains("non-iid"))) >= 4


@pytest.mark.parametrize("alpha", [None, 0.7])
def test_no_strategy_fetches_what_is_private_or_more_than_it_may(coverage, world, setting, alpha):
    case = coverage.Case(world, replace(setting, alpha=alpha), 0)
    for arm, fetch in coverage.ARMS.items():
        fetched, again = fetch(case), fetch(coverage.Case(world, case.setting, 0))
        assert len(fetched) == 4 and all(map(np.array_equal, fetched, again))
        for rows in fetched:
            assert len(rows) == len(np.unique(rows)) == (0 if arm == "local" else 8)
            assert not np.isin(rows, case.private).any()


def test_where_some_records_are_all_that_is_public_no_strategy_fetches_others(coverage, world, setting):
    few = [coverage.Case(world, replace(setting, candidates=150), seed) for seed in (0, 1)]
    drawn = [np.union1d(case.public, np.intersect1d(case.private, few[1 - k].public)) for k, case in enumerate(few)]
    assert len(few[0].public) < 150 and len(np.union1d(*drawn)) <= 150  # the same for every seed
    for arm in coverage.WITH_LESS:
        for rows in coverage.ARMS[arm](few[0]):
            assert np.isin(rows, few[0].public).all() and len(rows) == (0 if arm == "local" else 8)


def test_a_domain_with_few_records_may_have_its_share_of_what_is_public(coverage, world, setting):
    few = replace(setting, private="medical", candidates=50, own=20)
    cases = [coverage.Case(world, few, seed) for seed in (0, 1)]
    medical = world.rows_of("medical")
    drawn = np.union1d(*(case.public for case in cases))
    assert len(np.setdiff1d(drawn, medical)) == 30 and len(np.intersect1d(drawn, medical)) <= 20  # whatever the seed
    for case in cases:
        own = np.intersect1d(case.public, medical)
        assert 0 < len(own) < 20 and not np.isin(case.private, case.public).any()
        assert all(np.isin(rows, case.public).all() for rows in coverage.ARMS["random"](case))


def test_a_warm_up_has_no_record_that_is_private_where_it_is_used(coverage, world, setting, monkeypatch, tmp_path):
    alike, [(medical, arms)] = coverage.cells_with_less(900)
    assert [(one.private, one.candidates, one.fetched) for one, _ in alike] == [
        (private, 900, 18) for private in ("code", "math", "finance")
    ]
    assert (medical.candidates, medical.own, medical.fetched, "LESS" in arms) == (300, 150, 6, True)
    monkeypatch.setattr(coverage, "Influence", lambda pool, public, folder: public)
    monkeypatch.setattr(coverage.Pool, "open", lambda folder: None)
    private = {name: replace(setting, private=name) for name in ("math", "medical")}
    for name, other in (("math", "medical"), ("medical", "math")):
        public = coverage.influence(world, [(private[name], arms)], [0, 1], tmp_path)
        held = [coverage.Case(world, private[name], seed).private for seed in (0, 1)]
        assert not np.isin(public, held).any() and np.isin(world.rows_of(other), public).all()


def test_less_leaves_out_what_it_cannot_compare(coverage, world, setting):
    case = coverage.Case(world, setting, 0)
    too_long = world.rows_of("math")[::2]

    def influence(rows, own):
        found = world.influence(rows, own)
        found[np.isin(rows, too_long)] = -np.inf
        return found

    found = coverage.ARMS["LESS"](coverage.Case(replace(world, influence=influence), setting, 0))
    assert all(len(rows) == 8 and not np.isin(rows, too_long).any() for rows in found)
    assert not np.isin(np.concatenate(found), case.private).any()


def test_gradients_are_compared_as_less_compares_them_and_made_once(study, tokenizer, llama_folder, tmp_path):
    less, rng = study("coverage_less"), Stream(3).python()
    records = [Instruction(" ".join(rng.choices(WORDS, k=6)), "", rng.choice(WORDS)) for _ in range(12)]
    records[5] = Instruction("dose", "", "fever " * 200)
    pool = make_pool(tmp_path / "pool", np.eye(12, dtype=np.float32), records=records)
    options = less.Options(str(llama_folder), targets=("q_proj",), max_length=96, warm_up=4, dimension=64)
    rows, own = np.arange(2, 8), [np.array([0, 5]), np.array([8, 9])]
    influence = less.Influence(pool, np.array([1, 10, 11, 7]), tmp_path / "less", options)
    found = influence(rows, own)
    assert found.shape == (6, 2) and (found[3] == -np.inf).all() and np.isfinite(np.delete(found, 3, 0)).all()
    again = less.Influence(pool, np.array([1, 10, 11, 7]), tmp_path / "less", replace(options))
    again._made = None
    np.testing.assert_allclose(again(rows[:3], own), found[:3], atol=1e-6)

    bank, milestone = influence._bank, influence._milestone
    some = influence._tokenised(rows).items
    bank.load([milestone.state])
    project = projection(Stream(0) / "coverage" / "less", 64)
    given = [features(bank, influence._tokenised(one).items, influence._training, project)[None] for one in own]
    expected = influences(bank, some, [milestone], given, influence._training, project)
    np.testing.assert_allclose(np.delete(found, 3, 0), expected.numpy(), atol=1e-5)
    moved = influence._bank.initial(Stream(0) / "coverage" / "less" / "training" / "adapter")
    assert any(not np.allclose(milestone.state[name], moved[name]) for name in moved)


def test_retrieval_finds_the_domain_and_chance_does_not(coverage, world, setting):
    found = {arm: coverage.measured(coverage.Case(world, setting, 0), arm) for arm in coverage.ARMS}
    assert all(found[arm].right == 1.0 for arm in ("direct", "FedDCA", "coverage", "random in the domain"))
    assert found["random"].right < 0.5 and found["local"].right is None
    own = found["local"].coverage["math"]
    assert own < found["random"].coverage["math"] < found["FedDCA"].coverage["math"] < 1


def test_coverage_is_that_of_what_sites_hold_of_the_domain(coverage, world, setting):
    case = coverage.Case(world, setting, 0)
    fetched = [world.rows_of("code")[:3], *[np.setdiff1d(world.rows_of("math"), case.private)[:2]] * 3]
    held = [*case.private, *fetched[1]]
    best = (world.vectors[world.rows_of("math")] @ world.vectors[held].T).max(axis=1)
    assert case.covered("math", fetched) == pytest.approx(best.mean(), abs=1e-6)


def test_what_is_as_like_a_centre_as_alpha_is_left_to_others(coverage, world, setting):
    case = coverage.Case(world, replace(setting, alpha=0.9), 0)
    centres = case.centres
    for rows, own, pick in zip(coverage.ARMS["FedDCA"](case), centres, greedy(centres), strict=True):
        assert (world.vectors[rows] @ own.points[pick]).max() < 0.9 + 1e-6


def test_a_projector_sees_no_private_record(coverage, world, setting, monkeypatch):
    seen, case = [], coverage.Case(world, setting, 0)
    arms = coverage.ARMS["FedDCA*"].__globals__
    own = arms["train"]
    monkeypatch.setitem(arms, "train", lambda small, large, *rest: seen.append(large) or own(small, large, *rest))
    coverage.ARMS["FedDCA*"](case)
    coverage.ARMS["FedDCA*"](coverage.Case(world, replace(setting, fetched=9, alpha=0.5), 0))
    assert len(seen) == 1  # the same public texts, so the same projector
    coverage.ARMS["FedDCA*"](coverage.Case(world, setting, 1))
    assert len(seen) == 2
    private = {tuple(vector) for vector in world.vectors[case.private]}
    assert len(seen[0]) == 276 and not private & {tuple(vector) for vector in seen[0]}


def test_the_authors_projector_is_smaller_and_trained_for_less_and_a_perfect_one_needs_no_training(
    coverage, world, setting, monkeypatch
):
    asked, case = [], coverage.Case(world, setting, 0)
    arms = coverage.ARMS["FedDCA*"].__globals__
    own = arms["train"]
    monkeypatch.setitem(arms, "train", lambda *given: asked.append(given[3]) or own(*given))
    for arm in ("FedDCA*", "FedDCA*, authors' projector", "FedDCA*, perfect projector"):
        coverage.ARMS[arm](case)
    none, authors = asked
    assert none is None and (authors.hidden, authors.epochs, authors.lr, authors.heldout) == (128, 3, 1e-4, 0)
    # With the server's encoder at the sites there is nothing to project, and FedDCA* is FedDCA.
    same = coverage.Case(replace(world, small=world.vectors), setting, 0)
    fetched = coverage.ARMS["FedDCA*, perfect projector"](same)
    for one, other in zip(fetched, coverage.ARMS["FedDCA"](same), strict=True):
        assert np.array_equal(one, other)


def test_what_is_found_is_kept_and_not_made_again(coverage, world, setting, tmp_path, monkeypatch):
    results, file = coverage.Results(tmp_path / "coverage.json"), tmp_path / "coverage.json"
    coverage.complete(results, world, [(setting, ["local", "random"])], [0])
    before, made, measured = json.loads(file.read_text()), [], coverage.measured
    monkeypatch.setattr(coverage, "measured", lambda case, arm: made.append(arm) or measured(case, arm))
    for _ in range(2):
        coverage.complete(coverage.Results(file), world, [(setting, ["local", "random", "direct"])], [0])
    assert made == ["direct"]
    assert json.loads(file.read_text())[:2] == before
    assert [row["arm"] for row in json.loads(file.read_text())] == ["local", "random", "direct"]


@pytest.fixture
def results(coverage, tmp_path):
    """Two seeds of three strategies on code, one of math."""
    found = coverage.Results(tmp_path / "coverage.json")
    values = {"local": (0.5, 0.6), "random": (0.6, 0.64), "direct": (0.9, 0.6)}

    def one(private, arm, seed, value, options):
        right = None if arm == "local" else value / 2
        return coverage.Found(private, options, seed, arm, {private: value}, right, 1200)

    found.keep([one("code", arm, seed, both[seed], {}) for arm, both in values.items() for seed in (0, 1)])
    found.keep([one("math", "local", 0, 0.25, {}), one("code", "random", 0, 0.625, {"fetched": 50})])
    return coverage.Results(tmp_path / "coverage.json")


def test_tables_have_means_and_standard_errors(coverage, results):
    text = coverage.tables(results, [0, 1], 100).splitlines()
    assert "| coverage | code | math |" in text  # of other domains there is nothing
    assert "| local | 0.550 ± 0.0500 | 0.250 |" in text
    assert "| random | 0.620 ± 0.0200 | – |" in text
    assert "| random | 31.0%, 1,200 |" in text


def test_strategies_are_compared_on_the_same_records(coverage, results):
    text = coverage.tables(results, [0, 1], 100).splitlines()
    assert "| random − local | +0.0700 ± 0.0300 | 2 of 2 |" in text
    assert "| direct − random | +0.1300 ± 0.1700 | 1 of 2 |" in text
    assert not any("FedDCA" in line and "±" in line for line in text)  # of which there is nothing


def test_the_comparison_with_less_has_tables_of_its_own(coverage, results):
    for work in coverage.cells_with_less(100):
        for setting, _ in work:
            for arm, value in {"random": 0.3, "LESS": 0.25, "direct": 0.5}.items():
                covered = {setting.private: value + 0.1 * (setting.private == "medical")}
                results.keep([coverage.Found(setting.private, setting.options, 0, arm, covered, 0.5, 10)])
    text = coverage.tables(results, [0], 100).splitlines()
    assert "| LESS | 0.250 | 0.250 | 0.250 | 0.350 | 0.275 |" in text
    assert "| direct | 0.500 | 0.500 | 0.500 | 0.600 | 0.525 |" in text
    assert "| random − LESS | +0.0500 | +0.0500 | +0.0500 | +0.0500 | 4 of 4 |" in text
    assert "| LESS | 0.350 |" in coverage.tables(results, [0], 50).splitlines()  # medicine, which has its own number


def test_a_curve_has_the_usual_setting_where_it_belongs(coverage, results):
    text = coverage.tables(results, [0, 1], 100).splitlines()
    assert "| fetched | 50 | 200 |" in text
    assert "| code, random | 0.625 | 0.620 ± 0.0200 |" in text
    assert not any("code, direct" in line for line in text)
    assert not any("dirichlet" in line and "0.01" in line for line in coverage.tables(results, [7], 100).splitlines())


def test_settings_are_known_by_what_is_unusual_about_them(coverage):
    cells = list(coverage.every_cell())
    keys = [(setting.private, tuple(setting.options.items()), arm) for setting, arms in cells for arm in arms]
    assert len(set(keys)) == len(keys)
    assert not any("LESS" in arms or setting.candidates for setting, arms in cells)
    assert {setting.private for setting, _ in cells} == {"code", "math", "finance", "medical", "iid", "non-iid"}
    assert list(coverage.main_cells()) == [cell for cell in cells if not cell[0].options][:4]


def test_a_pool_and_a_shorter_encoder_are_made_once(coverage, tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    encoder = tmp_path / "encoder"
    make_encoder(tokenizer).save_pretrained(encoder)
    tokenizer.save_pretrained(encoder)
    files = {}
    for domain in DOMAINS:
        rows = [{"instruction": f"{domain} question {k}", "input": "", "output": "fever"} for k in range(3)]
        if domain == "finance":
            rows = [{"text": f"dose {k}", "label": "neutral"} for k in range(3)]
        files[domain] = [write_lines(tmp_path / f"{domain}.jsonl", rows)]
    monkeypatch.setattr(coverage, "LAYERS", 1)
    world = coverage.prepare(files, tmp_path / "out", str(encoder))
    assert (world.domains, world.vectors.shape, world.small.shape) == (DOMAINS, (15, 32), (15, 32))
    assert [len(world.rows_of(domain)) for domain in DOMAINS] == [3] * 5
    assert not np.allclose(world.vectors, world.small, atol=1e-4)
    short = Encoder(str(tmp_path / "out" / "site-encoder"), device="cpu")
    assert np.allclose(short.embed(["code question 0"]), world.small[:1], atol=1e-5) and short.dimension == 32
    monkeypatch.setattr(Encoder, "batches", None)  # nothing is embedded again
    assert np.array_equal(coverage.prepare(files, tmp_path / "out", str(encoder)).small, world.small)
