"""Tiny models with real tokenizers, built once a session."""

import copy
import functools
import gc
import importlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny models: more threads only wait for one another

import hypothesis
import pytest
import typer.main
import typer.testing

from murmura.experiment import skeleton
from murmura.models import loading
from murmura.privacy import accounting, curve
from murmura.third_party import settle
from tests.forking import forks_instead

settle()

# Runs are small and many files are replaced in them, for which a disk takes a fifth of the time.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > 2 * 2**30:
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None  # where it was asked for already

# No test pulls the plug, and waiting for the disk was a fifth of their time. What is synced must be open all the same.
os.fsync = os.fstat

# Each call of the command line in a test builds every command anew, which takes longer than most commands.
typer.testing._get_command = functools.cache(typer.main.get_command)

# Folders and files of tests that look at the last digits of an ε.
EXACT = {"oracles", "test_plan.py", "test_accounting.py", "test_loss.py", "test_snippets_in_docs.py", "test_studies.py"}
FINE = accounting._GRID

# How long an example takes says nothing on a machine that has other things to do.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


def pytest_configure(config):
    """Tests compute on the CPU, wherever they run, but for those that are asked for by `-m gpu`."""
    if config.option.markexpr.strip() != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One worker more than there are cores, as xdist counts them: slow tests often wait for processes of their own."""
    return (yield) + 1


def pytest_collection_modifyitems(items):
    """Slow tests first: of several processes one that has done its own takes over what is last of another's."""
    items.sort(key=lambda item: "slow" not in item.keywords)


def pytest_collection_finish():
    """What was imported stays: to look through it for garbage time and again is some of what tests take."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def forked_workers(monkeypatch):
    """Worker processes start at once: they are forks of a process that has imported what they need."""
    forks_instead(monkeypatch)


@pytest.fixture
def fine_grid(monkeypatch):
    """Noisy sums are hardly rounded, where a test looks at what is in them and not at their grid."""
    monkeypatch.setattr("murmura.privacy.mechanisms.gaussian._FINENESS", 2.0**40)


@pytest.fixture(autouse=True)
def coarse_curves(request, monkeypatch):
    """Pages draw what an ε allows with a tenth of the points: all bounds still, and most of what a page takes."""
    if not {"privacy", "test_privacy.py", "test_snippets_in_docs.py"}.intersection(request.path.parts):
        monkeypatch.setattr(curve, "_EPSILONS", curve._EPSILONS[::10])


@pytest.fixture
def last_digits():
    """For tests that look at the last digits of an ε in files whose others do not."""


@pytest.fixture(autouse=True)
def coarse_losses(request):
    """Privacy loss distributions are ten times as coarse, which takes a sixth of the time and rounds up by some 1e-4 of
    ε, except where tests look at last digits or hold them against others'."""
    exact = EXACT.intersection(request.path.parts) or "last_digits" in request.fixturenames
    width = FINE if exact else 10 * FINE
    if width != accounting._GRID:
        accounting._GRID = width
        accounting._epsilon.cache_clear()
        accounting._tightest.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def flower_ends_with_its_module(request):
    """Flower's processes ask for work a few times a second. Where few tests need them they end with the module."""
    yield
    flowered = sys.modules.get("tests.federation.engines.flowered")
    if flowered is not None and "not deployed" in request.config.option.markexpr:
        flowered.Link.end()


@functools.cache
def remembering():
    """What takes most of the time of moments accounting, each function with a memory of what it has computed."""
    from dp_accounting.rdp import rdp_privacy_accountant as rdp

    names = ("_compute_log_a", "_compute_rdp_sample_wor_gaussian_int")
    return rdp, {name: functools.lru_cache(2**18)(getattr(rdp, name)) for name in names}


@pytest.fixture(autouse=True)
def moments_remembered(request, monkeypatch):
    """Tests make runs of few different plans. Those of accounting itself, and of what it warns of, compute anew."""
    if (
        not {"privacy", "test_privacy.py", "oracles"}.intersection(request.path.parts)
        and "dp_accounting" in sys.modules
    ):
        module, functions = remembering()
        for name, function in functions.items():
            monkeypatch.setattr(module, name, function)


SMALL = 2**20  # bytes: a model that a test has built


def as_they_lie(folder):
    """The files of a model's folder, as they are now; None if they are not those of a small model."""
    if not (folder / "config.json").is_file():
        return None
    found = sorted((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in folder.iterdir())
    return tuple(found) if sum(size for *_, size in found) < SMALL else None


def remembering_files(plain):
    """A function of a model's folder, which hands out copies of what it has made of the same files."""
    made = functools.lru_cache(8)(lambda files, *inputs: plain(*inputs))

    def copied(folder, *inputs):
        files = as_they_lie(Path(folder).expanduser())
        return plain(folder, *inputs) if files is None else copy.deepcopy(made(files, folder, *inputs))

    return copied


WEIGHTS, WEIGHTS_ANEW = remembering_files(loading._weights), loading._weights
READ, BUILT = remembering_files(skeleton.config_and_tokenizer), {}


def weights(folder, task, dtype, device, quantization):
    made = WEIGHTS if quantization is None and device.type == "cpu" else WEIGHTS_ANEW
    return made(folder, task, dtype, device, quantization)


def built(name, config, kind):
    """A model without numbers, which is only looked at."""
    wanted = type(config), config.to_json_string(use_diff=False), kind
    if wanted not in BUILT:
        BUILT[wanted] = skeleton.skeleton_of(name, config, kind)
    return BUILT[wanted]


@pytest.fixture(autouse=True)
def models_remembered(request, monkeypatch):
    """Runs of tests begin with copies of the same few models: to read one takes some tenth of a run."""
    if "models" not in request.path.parts:
        monkeypatch.setattr(loading, "_weights", weights)
        for name in {"murmura.experiment.model_spec", "murmura.experiment.resources"}.intersection(sys.modules):
            monkeypatch.setattr(f"{name}.config_and_tokenizer", READ)
            monkeypatch.setattr(f"{name}.skeleton_of", built)


@pytest.fixture
def no_page(monkeypatch):
    """For tests that look at no run's page: making one takes up to half of a small run."""
    monkeypatch.setattr("murmura.experiment.run.build_report", lambda folders, out: out)


@pytest.fixture(autouse=True)
def pictures_not_written(request, monkeypatch):
    """Pages of runs have their pictures drawn, but written down only where tests look at pages: it takes half a run."""
    if not {"report", "cli", "compare", "integration", "test_studies.py"}.intersection(request.path.parts):
        monkeypatch.setattr("murmura.report.drawing._written", lambda canvas: "<svg />")


@pytest.fixture(autouse=True)
def same_on_every_processor(request, monkeypatch):
    """Where nothing is said of precision, tests compute in float32, whatever this machine multiplies natively."""
    if request.path.stem != "test_precision":
        monkeypatch.setattr("murmura.precision.is_native", lambda device: False)


STUDIES = Path(__file__).parent.parent / "studies"

WORDS = """the patient asks whether the new tablets may be taken with food and when to come back for a blood test
please call the clinic if the rash spreads or if you feel short of breath before the next visit on monday morning
instruction response below is a task that describes write appropriately completes request input further context
kidney heart skin child fever dose daily evening doctor nurse letter summary result explain draft reply note""".split()  # noqa: SIM905 (a text is easier to read)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def tokenizer():
    """A byte-level BPE of about 600 tokens, trained on a few words, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>", "[MASK]"]
    options = {"initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=special, **options)
    core.train_from_iterator([" ".join(WORDS)] * 4, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token="<|im_end|>", pad_token="<|pad|>", mask_token="[MASK]"
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def sizes(tokenizer, *, hidden=32, layers=2, positions=512, **more):
    """Options of a tiny model's config, as most architectures call them."""
    found = {"vocab_size": len(tokenizer), "hidden_size": hidden, "intermediate_size": 2 * hidden}
    found |= {"num_hidden_layers": layers, "num_attention_heads": 4, "max_position_embeddings": positions}
    return found | {"pad_token_id": tokenizer.pad_token_id} | more


def make_llama(tokenizer, *, hidden=32, layers=2, seed=0):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    shape = sizes(tokenizer, hidden=hidden, layers=layers, num_key_value_heads=2, tie_word_embeddings=True)
    return LlamaForCausalLM(LlamaConfig(**shape, **ends)).eval()


def make_gpt2(tokenizer, *, seed=0):
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    shape = {"vocab_size": len(tokenizer), "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 512}
    dropout = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "pad_token_id": tokenizer.pad_token_id}
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), tokenizer.eos_token_id)
    return GPT2LMHeadModel(GPT2Config(**shape, **dropout, **ends)).eval()


def make_bert(tokenizer, *, seed=0):
    import torch
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(seed)
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForMaskedLM(BertConfig(**sizes(tokenizer, positions=256), **dropout)).eval()


def restless(model):
    """Larger weights, so that what an untrained model finds likely depends on what it reads."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    return model


def make_encoder(tokenizer, *, hidden=32, seed=0):
    """A BERT; sentence-transformers averages its vectors where a folder says nothing else."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
    )
    return BertModel(config)


@pytest.fixture
def llama(tokenizer):
    return make_llama(tokenizer)


@pytest.fixture
def gpt2(tokenizer):
    return make_gpt2(tokenizer)


@pytest.fixture
def bert(tokenizer):
    return make_bert(tokenizer)


@pytest.fixture(scope="session")
def llama_folder(tokenizer, tmp_path_factory):
    """A tiny causal model of one layer and its tokenizer saved as transformers does."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    make_llama(tokenizer, layers=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def deep_folder(tokenizer, tmp_path_factory):
    """The same with two layers, of which the last may have an adapter alone."""
    folder = tmp_path_factory.mktemp("deep-llama")
    make_llama(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def wide_folder(tokenizer, tmp_path_factory):
    """The same with layers that are wide enough to be quantised, and weights in bfloat16."""
    import torch

    folder = tmp_path_factory.mktemp("wide-llama")
    restless(make_llama(tokenizer, hidden=128)).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def study(monkeypatch):
    """Loads a module of the studies by its name."""
    monkeypatch.syspath_prepend(STUDIES)

    def load(name):
        # A benchmark may have the same name, and neither is to find the other.
        own = {file.stem for file in STUDIES.glob("*.py")}
        for one in own:
            sys.modules.pop(one, None)
        module = importlib.import_module(name)
        for one in own:
            sys.modules.pop(one, None)
        return module

    return load
