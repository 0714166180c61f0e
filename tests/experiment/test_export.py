"""What is handed over answers elsewhere as it does here."""

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCard
from peft import PeftModel
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from typer.testing import CliRunner

from murmura import runs
from murmura.cli import app
from murmura.errors import CheckpointError, ConfigError, ModelError, may_pass
from murmura.experiment import export as exporting
from murmura.experiment.export import export
from murmura.experiment.run import run
from murmura.experiment.trained import Trained
from murmura.federation.adapter_folder import given_as
from murmura.report.card import run_card
from murmura.runs.previous import make_way, previous_of
from murmura.units import bound

pytestmark = pytest.mark.usefixtures("no_page")

LEARNT = {"method": {"rounds": 2}, "training": {"lr": 0.3}, "run": {"decode_dtype": "model"}}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("learnt") / "run"


@pytest.fixture
def folder(make, kept, tmp_path):
    """A copy of a finished run, which is made once."""
    if not kept.exists():
        shutil.copytree(run(make(**LEARNT)).folder, kept)
    return shutil.copytree(kept, tmp_path / "run", dirs_exist_ok=True)


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits


def ours(folder, ids, site=None):
    trained = Trained.load(folder, site)
    trained.runtime.bank.load([trained.after])
    trained.runtime.bank.route(torch.zeros(len(ids), dtype=torch.long))
    return logits(trained.runtime.bank.model, ids)


def test_an_adapter_stands_alone(folder, tmp_path, llama_folder):
    made = export(folder, tmp_path / "given" / "adapter", "adapter")
    tokenizer = AutoTokenizer.from_pretrained(made)
    ids = tokenizer("the patient asks", return_tensors="pt")["input_ids"]
    model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(llama_folder), made)
    assert torch.allclose(logits(model, ids), ours(folder, ids), atol=1e-5)
    for file in (folder / "adapter").iterdir():
        file.chmod(0o444)
    (folder / "adapter").chmod(0o555)  # as of a run that was put where nobody changes it
    again = export(folder, made, "adapter", overwrite=True)
    assert all(path.stat().st_mode & 0o200 for path in (again, *again.iterdir()))
    (folder / "adapter").chmod(0o755)


@pytest.mark.parametrize(("precision", "close"), [("float32", 1e-4), ("bfloat16", 0.2)])
def test_a_merged_model_needs_no_peft_and_gives_the_same_logits(folder, tmp_path, llama_folder, precision, close):
    made = export(folder, tmp_path / "whole", "merged", precision=precision)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(made), AutoTokenizer.from_pretrained(made)
    assert next(model.parameters()).dtype == getattr(torch, precision) and not (made / "adapter_config.json").exists()
    ids = tokenizer("the patient asks", return_tensors="pt")["input_ids"]
    wanted = ours(folder, ids)
    assert torch.allclose(logits(model, ids).float(), wanted, atol=close)
    before = logits(AutoModelForCausalLM.from_pretrained(llama_folder), ids)
    assert not torch.allclose(before, wanted, atol=0.2)  # else nothing would be shown
    assert tokenizer.chat_template == AutoTokenizer.from_pretrained(folder / "adapter").chat_template


def test_an_adapter_of_a_head_that_shares_the_embeddings_is_merged_into_the_head_alone(make, tmp_path):
    where = run(make(**LEARNT, lora={"targets": ["q_proj", "lm_head"]})).folder
    ids = torch.tensor([[3, 5, 7, 9]])
    made = AutoModelForCausalLM.from_pretrained(export(where, tmp_path / "whole", "merged"))
    assert torch.allclose(logits(made, ids), ours(where, ids), atol=1e-3)


def test_a_model_of_which_transformers_names_no_head_is_merged_too(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(PreTrainedModel, "get_output_embeddings", lambda model: None)
    assert (export(folder, tmp_path / "whole", "merged") / "model.safetensors").is_file()


@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_whoever_may_read_its_config_may_read_the_weights(folder, tmp_path, form):
    export(folder, tmp_path / "out", form)
    modes = {path.stat().st_mode for path in (tmp_path / "out").iterdir()}
    assert len(modes) == 1 and any(path.suffix == ".safetensors" for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("copied", [False, True])
def test_an_adapter_is_not_joined_to_another_base_than_it_was_trained_beside(make, tmp_path, llama_folder, copied):
    """A model's folder, or what a hub has under its name, may have changed since; a copy of a run may not know."""
    base = shutil.copytree(llama_folder, tmp_path / "base")
    where = run(make(**LEARNT, model={"name": str(base)})).folder
    other = AutoModelForCausalLM.from_pretrained(base)
    other.model.norm.weight.data.mul_(2)
    other.save_pretrained(base)
    if copied:
        shutil.rmtree(where / "private")
        Trained.load(where)
        export(where, tmp_path / "whole", "merged")
        return
    told = r"model\.name = .*base is not what the run has read: model\.safetensors changed since"
    for join in (Trained.load, lambda folder: export(folder, tmp_path / "whole", "merged")):
        with pytest.raises(CheckpointError, match=told):
            join(where)
    assert not (tmp_path / "whole").exists()
    export(where, tmp_path / "adapter", "adapter")  # which names its base, and holds none


@pytest.mark.parametrize("trainable", ["adapter", "all"])
def test_a_base_whose_settings_for_writing_contradict_one_another_is_handed_over_all_the_same(
    make, tmp_path, llama_folder, trainable
):
    """Sampling is set, and nothing says to sample: as some models are published, and as transformers warns about."""
    base = shutil.copytree(llama_folder, tmp_path / "base")
    (base / "generation_config.json").write_text('{"eos_token_id": 0, "temperature": 0.7}')
    where = run(make(**LEARNT, model={"name": str(base), "trainable": trainable})).folder
    made = export(where, tmp_path / "whole", "merged")
    for place in (made, *([where / "model"] if trainable == "all" else [])):
        given = AutoModelForCausalLM.from_pretrained(place).generation_config
        # It ends with the tokenizer's token, too, with which it was trained to.
        assert given.temperature == 0.7 and given.eos_token_id == [0, 2]
    left = where / ("model" if trainable == "all" else "adapter")
    assert "max_new_tokens=128, eos_token_id=[0, 2])" in (left / "README.md").read_text()


def test_no_adapter_is_merged_into_a_base_that_is_published_quantised(tmp_path, monkeypatch):
    """transformers casts no such model, and would say so when all is merged."""
    known = SimpleNamespace(model=SimpleNamespace(trainable="adapter", name="base"), model_task="causal")
    quantised = SimpleNamespace(model=SimpleNamespace(is_quantized=True))
    monkeypatch.setattr(exporting.models, "load", lambda *_: quantised)
    with pytest.raises(ConfigError, match=r"^base: .*published quantised.* Export it with --adapter\.$"):
        exporting._merge(known, None, tmp_path, tmp_path / "whole", "float32")


def test_a_precision_is_for_a_whole_model(folder, tmp_path):
    with pytest.raises(ConfigError, match="as it was trained"):
        export(folder, tmp_path / "a", "adapter", precision="bfloat16")
    assert not (tmp_path / "a").exists()


def test_a_model_that_was_trained_whole_is_copied(make, tmp_path):
    where = run(make(**LEARNT, model={"trainable": "all"})).folder
    made = export(where, tmp_path / "whole", "merged")
    ids = torch.tensor([[3, 5, 7]])
    ended, given = (AutoModelForCausalLM.from_pretrained(one) for one in (where / "model", made))
    assert torch.equal(logits(ended, ids), logits(given, ids))
    with pytest.raises(ConfigError, match="no adapter"):
        export(where, tmp_path / "adapter", "adapter")
    (where / "model").rename(tmp_path / "gone")
    with pytest.raises(ConfigError, match="left no model"):
        export(where, tmp_path / "again", "merged")


def test_a_sites_own_adapter_is_named(make, tmp_path):
    where = run(make(method={"name": "local", "rounds": 1})).folder
    with pytest.raises(ConfigError, match="--site"):
        export(where, tmp_path / "a", "adapter")
    assert (export(where, tmp_path / "a", "adapter", site="skin") / "adapter_config.json").exists()


def test_the_card_says_what_the_record_says(folder, tmp_path):
    record = runs.read(folder)
    for form in ("adapter", "merged"):
        card = ModelCard.load(export(folder, tmp_path / form, form) / "README.md")
        assert card.data.to_dict()["library_name"] == {"adapter": "peft", "merged": "transformers"}[form]
        assert f"{record.last.values['heldout_loss']:.3f}" in card.text and "FedAvg" in card.text
        for told in ("What is guaranteed", "Nothing.", "adapter", "What left", "2, a file each", "Limits"):
            assert told in card.text, told
        assert ("PeftModel" in card.text) == (form == "adapter")


def test_the_card_of_a_guarantee_has_all_its_terms_and_no_number_of_records(make, tmp_path):
    where = run(make(method={"name": "dplora", "noise_multiplier": 1.0, "rounds": 1})).folder
    record = runs.read(where)
    text = (export(where, tmp_path / "a", "adapter") / "README.md").read_text()
    told = record.last.privacy
    full = text.split("## The guarantee in full")[1].split("\n## ")[0]
    for term in (f"{told['delta']:g}", told["adjacency"], told["accountant"], told["unit"], bound(told["epsilon"])):
        assert str(term) in full, term
    assert f"Differential privacy for each {told['unit']}" in text and "The sites took part" not in text


def test_the_card_of_a_method_with_noise_says_where_there_was_none(folder, tmp_path):
    record = runs.read(folder)
    assert "added no noise" not in run_card(record, "FedAvg")
    config = record.config.replace("[method]\n", "[method]\nnoise_multiplier = 0.0\n")
    assert "the method added no noise (noise_multiplier = 0)" in run_card(replace(record, config=config), "DP-LoRA")


def test_the_card_says_how_it_was_trained_and_that_the_licence_is_not_known(folder, tmp_path):
    card = ModelCard.load(export(folder, tmp_path / "a", "adapter") / "README.md")
    assert card.data.license == "unknown" and card.data.tags == ["murmura", "lora"] and "## Licence" in card.text
    options = tomllib.loads(card.text.split("```toml\n")[1].split("```")[0])
    config = tomllib.loads((folder / "config.toml").read_text())
    assert options == {name: config[name] for name in ("method", "aggregation", "lora", "training")}
    assert "The sites took part with 9 records." in card.text  # small.SIZES


def test_an_epsilon_is_not_said_to_hold_for_a_sites_own_adapter(make, tmp_path, monkeypatch):
    where = run(make(method={"name": "local", "rounds": 1})).folder
    others = []
    copy = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", lambda a, b: (others.append(b.parent.stat().st_mode & 0o077), copy(a, b)))
    text = (export(where, tmp_path / "a", "adapter", site="skin") / "README.md").read_text()
    assert "it does not hold for this adapter" in text and "The guarantee in full" not in text
    assert "adapter of site skin alone, of the run 'small'" in text
    assert "The sites took part with 9 records, this one with 3 of them." in text
    # As private as the records, and from the first file on.
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0 and {*others} == {0}


def test_the_card_of_a_model_that_a_site_trained_further_says_from_what(make, tmp_path):
    where = run(make(method={"rounds": 1}, personal={"steps": 3, "heldout": 0.4})).folder
    text = (export(where, tmp_path / "own", "adapter", site="skin") / "README.md").read_text()
    assert "It began as the adapter of all sites, and figures are those of that one." in text
    assert "The sites took part with 6 records, this one with 2 of them." in text
    assert tomllib.loads(text.split("```toml\n")[1].split("```")[0])["personal"]["steps"] == 3
    shared = (export(where, tmp_path / "all", "adapter") / "README.md").read_text()
    assert "[personal]" not in shared and "The sites took part with 6 records." in shared


def test_the_card_says_what_sites_trained_on_beside_their_records_and_which_never_took_part(folder):
    record = runs.read(folder)
    for option, told in (('pool = "/home/me/pools/icd"', "the pool `pools/icd`"), ("", "a model has written after")):
        config = f"{record.config}\n[augment]\nrecords = 7\n{option}\n"
        text = run_card(replace(record, config=config, silent=("skin",)), "FedAvg")
        assert told in text and "The sites took part with 6 records." in text and "/home/me" not in text
        assert tomllib.loads(text.split("```toml\n")[1].split("```")[0])["augment"]["records"] == 7


def test_the_card_has_the_end_of_paths_and_patterns_whole(folder):
    record = runs.read(folder)
    config = record.config.replace("[method]\n", '[method]\npatterns = ["/n {text}/It was {blank}"]\n')
    config = config.replace("[model]\n", '[model]\nadapter = "../of-dr-eve/first/adapter"\n')
    text = run_card(replace(record, config=config), "LP-FL")
    method = tomllib.loads(text.split("```toml\n")[1].split("```")[0])["method"]
    assert method["patterns"] == ["/n {text}/It was {blank}"]
    assert "the adapter in `first/adapter`" in text and "of-dr-eve" not in text


@pytest.mark.parametrize("whole", [False, True])
def test_the_python_of_a_merged_models_card_runs_without_murmura(make, tmp_path, monkeypatch, whole, capsys):
    where = run(make(**LEARNT, model={"trainable": "all"} if whole else {})).folder
    card = (export(where, tmp_path / "m", "merged") / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    assert "murmura" not in code and "peft" not in code.lower() and "murmura path" not in card
    monkeypatch.chdir(tmp_path / "m")
    found: dict = {}
    exec(code, found)
    assert found["model"].config.model_type == "llama" and capsys.readouterr().out


def test_a_model_that_fills_in_blanks_is_loaded_as_one():
    card = "---\nlibrary_name: peft\nlicense: unknown\ntags:\n- murmura\n- lora\n---\n\n# An adapter for b\n\n"
    code = "from peft import PeftModel\nfrom transformers import AutoModelForMaskedLM, AutoTokenizer\n\n"
    code += (
        'base = AutoModelForMaskedLM.from_pretrained(resolve("b"))\nmodel = PeftModel.from_pretrained(base, folder)\n'
    )
    found = given_as("merged", f"{card}```python\n{code}```\n\nIt was.\n")
    assert "model = AutoModelForMaskedLM.from_pretrained(folder)" in found and "peft" not in found.lower()
    assert "It was." in found and "# All of b" in found and "serves" not in found


def test_nothing_is_overwritten_unasked(folder, tmp_path):
    place = tmp_path / "there"
    place.mkdir()
    (place / "mine.txt").write_text("keep")
    for overwrite, why in ((False, r"Give another --out\.$"), (True, "this was not")):
        with pytest.raises(CheckpointError, match=why):
            export(folder, place, "adapter", overwrite=overwrite)
        assert (place / "mine.txt").read_text() == "keep"
    made = export(folder, tmp_path / "b", "adapter")
    with pytest.raises(CheckpointError, match="--overwrite"):
        export(folder, made, "merged")
    (made / "mine.txt").write_text("keep")
    with pytest.raises(CheckpointError, match=r"would remove mine\.txt, which no export has written"):
        export(folder, made, "merged", overwrite=True)
    assert (made / "adapter_config.json").exists()
    (made / "mine.txt").unlink()
    (made / "vocabulary-notes.md").write_text("keep")
    (made / "model_before.safetensors").write_text("keep")
    for name in ("tokenizer_experiments", "vocab.json"):
        (made / name).mkdir()
    mine = r"model_before\.safetensors, tokenizer_experiments, vocab\.json and vocabulary-notes\.md"
    with pytest.raises(CheckpointError, match=f"would remove {mine}, which"):
        export(folder, made, "merged", overwrite=True)
    for name in ("vocabulary-notes.md", "model_before.safetensors"):
        assert (made / name).read_text() == "keep"
        (made / name).unlink()
    for name in ("tokenizer_experiments", "vocab.json"):
        (made / name).rmdir()
    (made / "additional_chat_templates").mkdir()
    assert (export(folder, made, "merged", overwrite=True) / "model.safetensors").is_file()
    assert not (made / "adapter_config.json").exists()
    with pytest.raises(CheckpointError, match="no such run folder"):
        export(tmp_path / "nowhere", tmp_path / "c", "adapter")


def test_what_a_killed_export_left_is_removed_and_what_it_moved_aside_is_put_back(folder, tmp_path):
    export(folder, tmp_path / "a", "adapter").rename(tmp_path / "..a.123.partial")
    (tmp_path / ".a.123.partial").mkdir()
    (tmp_path / ".a.lock").write_text("")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(CheckpointError, match="already exists"):
        export(folder, tmp_path / "a", "merged")
    assert (tmp_path / "a" / "adapter_config.json").is_file()
    assert {path.name for path in tmp_path.iterdir()} ^ before == {"a", "..a.123.partial", ".a.123.partial", ".a.lock"}
    assert (export(folder, tmp_path / "a", "merged", overwrite=True) / "model.safetensors").is_file()


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_directory_that_an_export_is_started_from_is_not_replaced(folder, tmp_path, monkeypatch, overwrite):
    monkeypatch.chdir(export(folder, tmp_path / "a", "adapter"))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(CheckpointError, match=r"^\.: the current directory is in it, and would be replaced\. Start"):
        export(folder, Path(), "merged", overwrite=overwrite)
    assert sorted(tmp_path.iterdir()) == before and Path("adapter_config.json").is_file()


def test_two_exports_to_one_folder_are_refused(folder, tmp_path, monkeypatch):
    merge = exporting._merge

    def meanwhile(*given):
        with pytest.raises(CheckpointError, match="another process is exporting to this folder"):
            export(folder, tmp_path / "a", "adapter")
        merge(*given)

    monkeypatch.setattr(exporting, "_merge", meanwhile)
    assert (export(folder, tmp_path / "a", "merged") / "model.safetensors").is_file()


def test_what_no_export_has_written_is_not_replaced(make, folder, tmp_path, llama_folder):
    """A downloaded model has a card and a configuration, too; so has what another run has left."""
    mine = shutil.copytree(llama_folder, tmp_path / "mine")
    (mine / "README.md").write_text("---\nlicense: mit\n---\n# My own\n")
    begun = run(make(**LEARNT | {"model": {"name": str(mine)}, "run": {"folder": str(tmp_path / "begun")}})).folder
    exported = export(begun, tmp_path / "exported", "merged")
    kept = {"name": str(exported), "adapter": str(export(folder, tmp_path / "first", "adapter"))}
    last = run(make(**LEARNT | {"model": kept, "run": {"folder": str(tmp_path / "last")}})).folder
    refusals = {mine: "this was not", begun / "adapter": "another run", exported: "began", tmp_path / "first": "began"}
    before = {path: path.read_bytes() for place in refusals for path in place.iterdir()}
    for place, why in refusals.items():
        with pytest.raises(CheckpointError, match=why):
            export(last, place, "merged", overwrite=True)
    assert {path: path.read_bytes() for place in refusals for path in place.iterdir()} == before
    with pytest.raises(CheckpointError, match="began"):
        export(begun, mine, "merged", overwrite=True)


@pytest.mark.parametrize("form", ["adapter", "merged"])
def test_a_damaged_adapter_is_not_handed_over(folder, tmp_path, form):
    weights = folder / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"adapter_model\.safetensors: this is damaged"):
        export(folder, tmp_path / "a", form)
    (folder / "adapter" / "adapter_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"adapter_config\.json: this is damaged"):
        export(folder, tmp_path / "a", form)
    assert not (tmp_path / "a").exists()


def test_the_card_of_a_resumed_run_says_which_options_changed(make, tmp_path):
    where = run(make(method={"rounds": 1}, training={"lr": 0.5})).folder
    run(make(method={"rounds": 2}, training={"lr": 0.25}), resume=True)
    text = (export(where, tmp_path / "a", "adapter") / "README.md").read_text()
    assert "- Options changed: training.lr after round 1" in text and "these are the last values" in text


def test_the_card_of_a_model_that_was_trained_whole_tells_of_no_adapter(make, tmp_path, llama_folder):
    where = run(make(method={"rounds": 1}, model={"trainable": "all"})).folder
    text = (export(where, tmp_path / "whole", "merged", precision="bfloat16") / "README.md").read_text()
    options = tomllib.loads(text.split("```toml\n")[1].split("```")[0])
    assert options["model"] == {"trainable": "all"} and "lora" not in options
    assert "## This copy\n\nThe weights are in bfloat16." in text  # and not below what is guaranteed
    assert str(llama_folder) not in text  # whoever gets it has other folders


@pytest.mark.parametrize("where", [".", "adapter", "..", "new"])
def test_a_run_is_never_replaced_by_what_is_made_of_it(folder, where):
    before = sorted(path for path in folder.rglob("*") if path.name != ".lock")
    with pytest.raises(CheckpointError, match="the run's own folder"):
        export(folder, folder / where, "adapter", overwrite=True)
    assert sorted(path for path in folder.rglob("*") if path.name != ".lock") == before


def test_a_place_that_cannot_be_written_is_told(folder, tmp_path):
    (tmp_path / "file").write_text("keep")
    with pytest.raises(CheckpointError, match="cannot be written"):
        export(folder, tmp_path / "file" / "a", "adapter")
    with pytest.raises(CheckpointError, match="this was not"):
        export(folder, tmp_path / "file", "adapter", overwrite=True)
    assert (tmp_path / "file").read_text() == "keep"


def test_what_a_disk_has_no_room_for_is_told(folder, tmp_path, monkeypatch):
    """Libraries that write weights and tokenizers raise errors of their own."""
    for writer, error in ((PreTrainedTokenizerBase, Exception), (PreTrainedModel, SafetensorError)):

        def full(*_, error=error, **__):
            raise error("Error while serializing: I/O error: No space left on device (os error 28)")

        monkeypatch.setattr(writer, "save_pretrained", full)
        with pytest.raises(CheckpointError, match=r"cannot be written.*No space left.*Free some space") as told:
            export(folder, tmp_path / "whole", "merged")
        assert may_pass(told.value) and not (tmp_path / "whole").exists()


def test_a_model_with_canaries_is_not_for_release(make, tmp_path, llama_folder):
    where = run(make(method={"rounds": 1}, audit={"canaries": 2})).folder
    with pytest.raises(ConfigError, match="random secrets"):
        export(where, tmp_path / "a", "adapter")
    made = export(where, tmp_path / "a", "adapter", canaries=True)
    assert "> **Not for release." in (made / "README.md").read_text() and (made / "NOT_FOR_RELEASE.txt").exists()
    assert "The sites took part with 9 records." in (made / "README.md").read_text()  # which canaries are none of
    begun = {"name": str(tmp_path / "model"), "adapter": str(made)}
    shutil.copytree(llama_folder, begun["name"])
    later = run(make(method={"rounds": 1}, model=begun, run={"folder": str(tmp_path / "later")})).folder
    own = run(make(method={"name": "local", "rounds": 1}, model=begun, run={"folder": str(tmp_path / "own")})).folder
    shutil.rmtree(made)
    for folder, site in ((later, None), (own, "skin")):
        with pytest.raises(ConfigError, match="what it began with, has learnt random secrets"):
            export(folder, tmp_path / "b", "adapter", site=site)
    assert (export(where, tmp_path / "m", "merged", canaries=True) / "NOT_FOR_RELEASE.txt").exists()
    again = shutil.copytree(where, tmp_path / "copy")
    make_way(where)
    shutil.move(again, where)
    assert make_way(where) == previous_of(where)  # what it has written keeps no run from being replaced


class TestGGUF:
    """llama.cpp's converter is another program: what it is told, and what becomes of what it does."""

    @pytest.fixture
    def converter(self, tmp_path):
        script = tmp_path / "convert_hf_to_gguf.py"
        script.write_text(
            "import json, sys, pathlib\n"
            "model, _, out, _, kind = sys.argv[1:]\n"
            "held = sorted(path.name for path in pathlib.Path(model).iterdir())\n"
            "if kind == 'f16': sys.exit('this kind is not for me')\n"
            "pathlib.Path(out).write_text(json.dumps({'held': held, 'kind': kind}))\n"
        )
        return script

    def test_it_is_given_the_merged_model(self, folder, tmp_path, converter):
        made = export(folder, tmp_path / "m", "gguf", converter=converter, precision="bfloat16")
        told = json.loads((made / "model.gguf").read_text())
        assert told["kind"] == "bf16" and {"config.json", "model.safetensors", "tokenizer.json"} <= set(told["held"])
        assert sorted(path.name for path in made.iterdir()) == ["README.md", "model.gguf"]
        assert sorted(path.name for path in tmp_path.glob(".m*")) == []  # nothing is left behind
        card = ModelCard.load(made / "README.md")
        assert card.data.to_dict()["library_name"] == "gguf"
        assert "from llama_cpp" in card.text and "resolve" not in card.text
        assert "What is guaranteed" in card.text

    def test_what_it_says_when_it_fails_is_told_and_nothing_is_left(self, folder, tmp_path, converter):
        with pytest.raises(ConfigError, match="this kind is not for me"):
            export(folder, tmp_path / "m", "gguf", converter=converter, precision="float16")
        assert not (tmp_path / "m").exists() and list(tmp_path.glob(".m*")) == []

    def test_a_masked_model_is_refused(self, tmp_path, bert, converter):
        bert.save_pretrained(tmp_path / "bert")
        with pytest.raises(ConfigError, match="fills in blanks"):
            exporting._convert(converter, tmp_path / "bert", tmp_path / "m.gguf", "float32")
        assert not (tmp_path / "m.gguf").exists()

    def test_without_it_the_user_is_told_where_to_get_it(self, folder, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        for named in (None, tmp_path / "none.py"):
            with pytest.raises(ConfigError, match=r"pip download .* llama-cpp-python"):
                export(folder, tmp_path / "m", "gguf", converter=named)


def test_the_command(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (
        "export: one form is needed. Give one of --adapter" in CliRunner().invoke(app, ["export", str(folder)]).output
    )
    done = CliRunner().invoke(app, ["export", str(folder), "--adapter"])
    assert done.exit_code == 0 and (tmp_path / "run-adapter" / "adapter_config.json").exists(), done.output
    words = ["export", str(folder), "--merged"]
    assert "only --gguf is made by a converter" in CliRunner().invoke(app, [*words, "--converter", "x.py"]).stderr
    monkeypatch.setenv("MURMURA_GGUF_CONVERTER", "x.py")  # for all exports
    found = CliRunner().invoke(app, [*words, "--precision", "bfloat16"])
    assert found.exit_code == 0 and (tmp_path / "run-merged" / "config.json").exists(), found.output
