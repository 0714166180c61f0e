import json
import shutil

import numpy as np
import pytest

from murmura.errors import ModelError
from murmura.retrieval.encoder import Encoder
from tests.augment.public import save_encoder
from tests.conftest import make_encoder

TEXTS = ["fever", "the rash on her skin spread to the heart", "blood test on monday", "a dose", "fever"]


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    return save_encoder(tmp_path_factory.mktemp("encoder"), tokenizer)


def test_vectors_are_unit_float32_in_the_texts_order(folder):
    vectors = Encoder(str(folder), device="cpu").embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, 32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert np.allclose(vectors[0], vectors[4], atol=1e-6)
    assert not np.allclose(vectors[0], vectors[3], atol=1e-2)


def test_batches_do_not_change_the_vectors(folder):
    whole = Encoder(str(folder), device="cpu").embed(TEXTS)
    for size in (1, 4):
        assert np.allclose(Encoder(str(folder), batch_size=size, device="cpu").embed(TEXTS), whole, atol=1e-5)


def test_alone_a_vector_depends_on_no_other_text_in_any_bit(folder):
    encoder = Encoder(str(folder), device="cpu")
    every = encoder.embed_each(TEXTS)
    assert np.array_equal(encoder.embed_each(TEXTS[2:4]), every[2:4])
    assert np.array_equal(encoder.embed_each(TEXTS[::-1]), every[::-1])
    assert np.allclose(every, encoder.embed(TEXTS), atol=1e-5)


def test_a_group_shares_passes_with_no_other_and_none_is_larger_than_a_batch(folder, monkeypatch):
    encoder, passes = Encoder(str(folder), batch_size=2, device="cpu"), []
    encode = encoder._encode
    monkeypatch.setattr(encoder, "_encode", lambda texts: passes.append(texts) or encode(texts))
    [own] = encoder.embed_apart([TEXTS])
    assert sorted(map(len, passes)) == [1, 2, 2] and sorted(text for batch in passes for text in batch) == sorted(TEXTS)
    assert np.allclose(own, encoder.embed(TEXTS), atol=1e-5)
    among = encoder.embed_apart([TEXTS[:1], TEXTS, []])
    assert np.array_equal(among[1], own) and among[2].shape == (0, 32)


def test_alone_a_text_without_a_direction_stops_nothing(folder, monkeypatch):
    encoder = Encoder(str(folder), device="cpu")
    nothing = np.full((1, encoder.dimension), np.nan, dtype=np.float32)
    monkeypatch.setattr(encoder, "_encode", lambda texts: nothing)
    assert np.isnan(encoder.embed_each(["a dose"])).all()
    with pytest.raises(ModelError, match="no direction"):
        encoder.embed(["a dose"])


def test_vectors_equal_the_librarys_own(folder):
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
    assert np.allclose(Encoder(str(folder), device="cpu").embed(TEXTS), reference, atol=1e-5)


def test_no_texts_are_no_vectors_of_the_right_length(folder):
    assert Encoder(str(folder), device="cpu").embed([]).shape == (0, 32)


def test_the_model_is_loaded_when_it_is_needed(tmp_path):
    encoder = Encoder(str(tmp_path / "absent"))
    with pytest.raises(ModelError, match="absent"):
        encoder.embed(["fever"])


def test_weights_that_were_cut_short_are_an_error_of_ours(folder, tmp_path):
    broken = shutil.copytree(folder, tmp_path / "broken")
    with (broken / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(ModelError, match=r"broken: cannot be loaded as a sentence encoder"):
        Encoder(str(broken), device="cpu").embed(["fever"])


def test_a_fingerprint_is_of_weights_vocabulary_and_pooling(folder, tokenizer, tmp_path):
    from sentence_transformers import SentenceTransformer

    encoder = Encoder(str(folder), device="cpu")
    assert len(bytes.fromhex(encoder.fingerprint)) == 32
    SentenceTransformer(str(folder), device="cpu").save(str(tmp_path / "saved"))  # other files, the same encoder
    assert Encoder(str(tmp_path / "saved"), device="cpu").fingerprint == encoder.fingerprint

    pooling = tmp_path / "saved" / "1_Pooling" / "config.json"
    pooling.write_text(pooling.read_text().replace("mean", "cls"))
    assert Encoder(str(tmp_path / "saved"), device="cpu").fingerprint != encoder.fingerprint

    lower = json.loads((folder / "tokenizer.json").read_text()) | {"normalizer": {"type": "Lowercase"}}
    shutil.copytree(folder, tmp_path / "lower")
    (tmp_path / "lower" / "tokenizer.json").write_text(json.dumps(lower))
    assert Encoder(str(tmp_path / "lower"), device="cpu").fingerprint != encoder.fingerprint

    make_encoder(tokenizer, seed=1).save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    assert Encoder(str(tmp_path / "other"), device="cpu").fingerprint != encoder.fingerprint


@pytest.mark.real
def test_minilm_places_like_meanings_together():
    fever, temperature, shares = Encoder(device="cpu").embed(
        ["She is running a fever.", "The patient has a high temperature.", "The shares rose on Monday."]
    )
    assert fever @ temperature > 0.4
    assert abs(fever @ shares) < 0.2
