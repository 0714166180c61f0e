import pytest
from transformers import MptConfig

from murmura.errors import ConfigError
from murmura.experiment.reading import reading
from tests.experiment.small import experiment
from tests.generation.families import phi3


def test_records_that_are_longer_than_the_model_reads_are_refused(tmp_path, llama_folder, tokenizer):
    small = experiment(tmp_path, llama_folder, data={"max_length": 64})
    for config in (MptConfig(max_seq_len=32), phi3(tokenizer).config):
        with pytest.raises(ConfigError, match="may have 64 tokens, and the model reads 32 at most"):
            reading(small, tokenizer, config, masked=False)
