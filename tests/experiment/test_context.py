from murmura.experiment.context import process_context
from murmura.experiment.validate import method_of
from tests.experiment.small import experiment


def test_sites_share_passes_but_for_whole_models_and_nothing_is_loaded_for_it(tmp_path, llama_folder, monkeypatch):
    monkeypatch.setattr("murmura.models.load", None)
    for trainable, slots in (("adapter", 3), ("all", 1)):
        small = experiment(tmp_path, llama_folder, model={"trainable": trainable}, run={"slots": 3})
        assert process_context(small, method_of(small)).runtime("site").slots == slots
