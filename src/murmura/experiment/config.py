"""The experiment file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import AfterValidator, Field, SerializeAsAny, model_validator

from murmura import methods
from murmura.aggregation.config import AggregationConfig
from murmura.augment.config import AugmentConfig
from murmura.config import WITH_UNIT, ModelSource, RunPlace, Section, Source, read_toml
from murmura.data.config import DataConfig
from murmura.errors import ConfigError, nearest
from murmura.experiment.names import spelling
from murmura.experiment.validate import require_sections
from murmura.federation.engines import ENGINES
from murmura.federation.method_config import MethodConfig
from murmura.measure.config import AuditConfig, EvaluationConfig
from murmura.models.loading import DEVICES, is_device
from murmura.personal.config import PersonalConfig
from murmura.precision import DecodeDtype
from murmura.privacy.budget import BudgetConfig
from murmura.runs.previous import is_run
from murmura.runs.schema import DEPLOYED
from murmura.tasks import TASKS, Task
from murmura.tracking.config import TrackingConfig
from murmura.training.config import CACHE_BYTES, LocalTraining, LoraSpec

COMPARE = "compare"
"""The table of a comparison, which an experiment has none of."""


def _known_engine(name: str) -> str:
    if name not in ENGINES and name != DEPLOYED:
        raise ValueError(f"there is no such engine. {nearest(name, ENGINES)}")
    return name


class RunConfig(Section):
    """The run itself."""

    name: str = Field("run", min_length=1)
    """Names the run, and its folder runs/NAME unless `folder` is given."""
    seed: int = 0
    """Source of all randomness."""
    folder: str | None = None
    """Where the run is kept."""
    chosen_by: list[RunPlace] = Field([])
    """Folders of other runs over the same records by which options of this one were chosen, such as its rate; relative
    to the experiment file, else to the current folder. After the last round ε counts them all. A comparison names those
    of an arm's search itself."""
    engine: Annotated[str, AfterValidator(_known_engine)] = "local"
    """local: all sites share one resident model in this process; processes: worker processes, each with a model and a
    share of the sites, to which asks and replies travel as bytes."""
    workers: int | None = Field(None, ge=1)
    """With engine 'processes', the number of workers; if not given, one per GPU, or two where there is none."""
    answer_seconds: float | None = Field(None, gt=0)
    """How long to wait for an answer of another process; if not given, without limit with engine 'processes', and an
    hour where sites are on machines of their own."""
    min_replies: int = Field(1, ge=1)
    """The run stops if fewer sites than this answer."""
    slots: int = Field(8, ge=1)
    """Most adapters in memory at once; a larger cohort is processed in chunks, with the same results."""
    cache_bytes: Annotated[int, Field(ge=0), WITH_UNIT] = CACHE_BYTES
    """Most memory of each process, a number or "500MB", for what the layers below all adapters compute for each record
    (lora.layers), which is the same in every pass. Of a site's own records the rest is in its private folder until the
    run ends; 0: nothing is kept."""
    decode_rows: int = Field(32, ge=1)
    """Number of texts written at once."""
    decode_dtype: DecodeDtype = "auto"
    """Of products with the base model's weights while writing. auto: bfloat16 where the device multiplies it natively,
    else model, which is what they are in. Texts differ."""

    @model_validator(mode="after")
    def _options_of_processes(self) -> Self:
        if self.engine == "local":
            self.refuse_idle(["workers", "answer_seconds"], "with engine 'local'")
        return self

    @property
    def path(self) -> Path:
        return Path(self.folder) if self.folder else Path("runs") / self.name


def _a_device(name: str) -> str:
    """Whether there is one here, a run finds out."""
    if not is_device(name):
        raise ValueError(f"'{name}' is no device that models run on; valid: {DEVICES}")
    return name


Device = Annotated[str, AfterValidator(_a_device)]


class ModelConfig(Section):
    """The base model."""

    name: ModelSource = "smollm2-135m"
    """An alias (see `murmura models list`), a folder, or a Hugging Face id."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """auto: bfloat16 on a GPU, float32 on a CPU and wherever all parameters train."""
    device: Device = "auto"
    """auto, cpu, cuda, cuda:1 ..., mps. auto: a GPU where there is one."""
    quantization: Literal["int8", "4bit"] | None = None
    """Quantise the base with bitsandbytes."""
    trainable: Literal["adapter", "all"] = "adapter"
    """all: train and exchange every parameter (one site at a time)."""
    adapter: Source | None = None
    """A PEFT folder that training begins with, such as the `adapter` of another run, in place of a fresh adapter; it
    must have the rank, targets, layers and scale of [lora]. What it was trained on is in no guarantee of this run."""

    @model_validator(mode="after")
    def _adapter_of_adapters(self) -> Self:
        if self.trainable == "all":
            self.refuse_idle(["adapter"], "where all parameters train: give the folder `model` of that run as the name")
        return self

    @property
    def load_dtype(self) -> Literal["auto", "float32", "bfloat16", "float16"]:
        """``dtype``, where "auto" asks for weights that an optimiser can train, if that is what it is to do."""
        return "float32" if self.dtype == "auto" and self.trainable == "all" else self.dtype


class Experiment(Section):
    """One experiment, as written in a TOML file. Each attribute is a table of it; ``murmura init METHOD --all`` prints
    all options with what they mean.

    Attributes:
        run: Name, folder and seed of the run, and what it is carried out with.
        model: The base model, and what of it is trained.
        lora: The adapter.
        data: The records: which, of what kind, and how they become sites.
        training: Training at a site.
        aggregation: How the server combines what sites send.
        augment: Public records that sites are given; None for none.
        personal: Adapters that each site trains for itself at the end; None for none.
        method: The method and its own options.
        evaluation: What is measured, and how often.
        audit: What is done for an audit, in simulations alone.
        budget: ε that each site's owner allows over all runs.
        tracking: Where else figures are sent.
    """

    run: RunConfig = RunConfig()
    model: ModelConfig = ModelConfig()
    lora: LoraSpec = LoraSpec()
    data: DataConfig
    training: LocalTraining = LocalTraining()
    aggregation: AggregationConfig = AggregationConfig()
    augment: AugmentConfig | None = None
    personal: PersonalConfig | None = None
    method: SerializeAsAny[MethodConfig]
    evaluation: EvaluationConfig = EvaluationConfig()
    audit: AuditConfig = AuditConfig()
    budget: BudgetConfig = BudgetConfig()
    tracking: TrackingConfig = TrackingConfig()

    @property
    def task(self) -> Task:
        """The kind of record that the experiment is about."""
        assert self.data.kind is not None, "Experiment.of writes it out"
        return TASKS[self.data.kind]

    @property
    def model_task(self) -> Literal["causal", "either"]:
        """What the model must be: labelled texts can be read by a masked one too."""
        return "either" if self.task.masked else "causal"

    @classmethod
    def load(cls, path: str | Path, set: Mapping[str, Any] | None = None) -> Self:
        """Read an experiment file.

        Args:
            path: the TOML file. Data and models that it names are looked for in its folder first, but for a run's,
                which may have left ``sites`` or ``model`` there; run.folder is relative to the current one.
            set: overrides, dotted key to value: ``{"method.beta": 0.7}``.

        Raises:
            ConfigError: with the line of a TOML error, or the key and its nearest valid name.
        """
        file = Path(path)
        table = read_table(file)
        if COMPARE in table:
            fix = f"Give it to `murmura {COMPARE}`."
            raise ConfigError("this is a comparison, of which each arm is an experiment", where=str(path), fix=fix)
        for key, value in (set or {}).items():
            override(table, key, value, f"--set {key}")
        return cls.of(table, where=str(path), base=None if is_run(file.parent) else file.parent)

    @classmethod
    def of(cls, table: Mapping[str, Any], where: str = "experiment", base: Path | None = None) -> Self:
        """Validate tables as an experiment file has them.

        Args:
            table: the file's tables, by their names.
            where: who says so, for messages.
            base: the folder in which data and models that it names are looked for first.

        Raises:
            ConfigError: with the key, and its nearest valid name.
        """
        if not isinstance(table.get("method"), Mapping):
            raise ConfigError("there is no [method] table", where=where, fix=f"name = {' | '.join(methods.METHODS)}.")
        name = table["method"].get("name")
        if isinstance(name, str) and name not in methods.METHODS and (written := spelling(name)):
            raise ConfigError(f"there is no method '{name}'", where=f"{where} [method]", fix=written)
        # The method's own options are validated by its own section; for the others it is taken as it is.
        method = methods.parse_config(table["method"], f"{where} [method]", base, lambda: _quoted(cls.keys()))
        data, given = table.get("data"), table.get("training", {})
        if isinstance(data, Mapping):  # what is no table is told by its own section
            table = {**table, "data": method.filled_data(data)}
        if isinstance(given, Mapping):  # else its own section says what is wrong
            table = {**table, "training": method.filled_training(given)}
        elsewhere = lambda: _quoted(cls.keys() | type(method).keys("method."))  # noqa: E731
        made = cls.parse({**table, "method": method}, where, base, elsewhere)
        try:
            require_sections(made)
        except ConfigError as error:
            raise ConfigError(error.what, where=f"{where}: {error.where}", fix=error.fix) from None
        return made

    def without_records(self) -> Self:
        """The same for sites that have records of their own.

        Raises:
            ConfigError: what the run is measured on would come out of their records; or an option is for owners to
                decide, or nothing that such sites do.
        """
        if self.data.heldout is None or self.data.nonmember_records is not None:
            fix = "Give data.heldout = a file of public records, and no data.nonmember_records."
            what = "sites keep their records, so none can be set apart to measure with"
            raise ConfigError(what, where="data.heldout", fix=fix)
        if self.budget.folder is not None:
            fix = "Leave [budget] out, and have each owner write it into the site's site.toml."
            raise ConfigError("a budget is for the owner of each site to set", where="budget.folder", fix=fix)
        unheard = {
            "data.skip_bad": self.data.skip_bad,
            "data.few_shot": self.data.few_shot,
            "data.sites.records": self.data.sites.records,
        }  # where the records of `train` come from, and who has which, goes with it
        for where, given in unheard.items():
            if given:
                what = "sites take part with all records of their own file, in which none may be bad"
                raise ConfigError(what, where=where, fix="Leave it out, and have owners look through their files.")
        return self.model_copy(update={"data": self.data.model_copy(update={"train": None})})

    def tables(self) -> dict[str, Any]:
        """The experiment as JSON has it, with every option written out; those that are not set are left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def dump(self) -> str:
        """The same as TOML."""
        return tomli_w.dumps(self.tables())


def _quoted(keys: Mapping[str, str]) -> dict[str, str]:
    """Keys inside sections, by their full names as messages show them; a section's own name is no key."""
    return {f"'{full}'": key for full, key in keys.items() if "." in full}


def parse_override(text: str) -> tuple[str, Any]:
    """``method.beta=0.7`` as key and value; the value is read as TOML, and as a plain string where it is none.

    Raises:
        ConfigError: there is no '='.
    """
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise ConfigError(f"'{text}' is not KEY=VALUE", where="--set", fix="For example: --set method.beta=0.7")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):  # as of read_toml
        return key.strip(), value.strip()


def read_table(file: Path) -> dict[str, Any]:
    """The tables of an experiment file, as they stand there.

    Raises:
        ConfigError: it cannot be read, or is no TOML; with the line.
    """
    try:
        return read_toml(file)
    except OSError as error:
        fix = "Name an experiment file."
        raise ConfigError(f"cannot be read ({error.strerror})", where=str(file), fix=fix) from None
    except ConfigError as error:
        if file.suffix != ".toml":
            error.fix = "Records are named in an experiment file, which murmura init prints."
        raise


def override(table: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set an option in the tables of an experiment file.

    Args:
        key: its full name in dots.
        where: who says so, for a message.

    Raises:
        ConfigError: there is no such section.
    """
    *path, last = key.split(".")
    for depth, part in enumerate(path):
        if depth == 0 and part not in Experiment.model_fields:
            fix = nearest(part, Experiment.model_fields)
            raise ConfigError(f"unknown section '{part}'", where=where, fix=fix)
        if isinstance(inner := table.get(part), str | bool):  # short for a table
            table[part] = {"kind": inner} if isinstance(inner, str) else {}
        table = table.setdefault(part, {})
        if not isinstance(table, dict):
            raise ConfigError(f"'{part}' is not a section", where=where)
    table[last] = value
