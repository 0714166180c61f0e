"""Tasks of lm-evaluation-harness by name, or from YAML files of the user's own: found, checked, loaded, measured."""

from __future__ import annotations

import logging
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from murmura.errors import ConfigError, DataError, nearest
from murmura.measure.harness.figures import SHARES, key
from murmura.measure.statistics import Estimate
from murmura.overlapping import Overlapping
from murmura.progress import phase

if TYPE_CHECKING:
    from murmura.model_runtime import ModelRuntime
    from murmura.training.adapter import State

WHERE = "evaluation.benchmarks.tasks"
YAML = (".yaml", ".yml")
_OURS = Path(__file__).with_name("own")  # for what the harness has a task whose data cannot be read any more
_PREFERRED = ("acc_norm", "exact_match")
_SEED = 1234  # of answered questions, the harness's own


@dataclass(frozen=True)
class HarnessSet:
    """Tasks that a run asks.

    Attributes:
        tasks: by the name that was asked for: the harness's tasks by name, several of a group or tag.
        limit: most questions of each of these, the first ones.
        form: as ``BenchmarksConfig.form``.
    """

    tasks: Mapping[str, Mapping[str, Any]]
    limit: int | None = None
    form: Literal["plain", "template"] = "plain"

    @property
    def each(self) -> dict[str, Any]:
        """All tasks by name."""
        return {name: task for group in self.tasks.values() for name, task in group.items()}

    @property
    def questions(self) -> list[tuple[str, str]]:
        """What is asked: the name of a task, and a question."""
        return [one for name in self.tasks for one in self.questions_of(name)]

    def questions_of(self, asked: str) -> list[tuple[str, str]]:
        """The same of one of the names that were asked for."""
        tasks = self.tasks[asked]
        return [(name, str(task.doc_to_text(doc))) for name, task in tasks.items() for doc in self._docs(task)]

    @property
    def subjects(self) -> list[str]:
        """What the questions ask, as the harness words them, and each text that a question has: a record may be worded
        as one of them."""
        docs = [doc for task in self.each.values() for doc in self._docs(task)]
        texts = [value for doc in docs if isinstance(doc, Mapping) for value in doc.values() if isinstance(value, str)]
        return list(dict.fromkeys([text for _, text in self.questions] + texts))

    def _docs(self, task: Any) -> list[Any]:
        docs = task.eval_docs
        return [docs[place] for place in range(min(len(docs), self.limit or len(docs)))]

    def require_room(self, context: int | None) -> None:
        """Refuse tasks whose answers the model has no room for.

        Args:
            context: most tokens that it reads, the answer's too; None where that is not known.

        Raises:
            ConfigError: a task allows longer ones.
        """
        from murmura.measure.harness.resident import longest, options_of

        for name, task in self.each.items():
            most = options_of(task)["max_gen_toks"] if task.OUTPUT_TYPE == "generate_until" else 0
            if most >= longest(context):
                what = f"answers may have {most} tokens, and the model reads {longest(context)} with the question"
                fix = "Leave it out, or give it a smaller max_gen_toks in a YAML file of your own."
                raise ConfigError(what, where=f"{WHERE}: {name}", fix=fix)

    def measure(self, runtime: ModelRuntime, adapters: Sequence[State]) -> list[dict[str, Any]]:
        """For each adapter the figure of each task that was asked for (``figures.key``) with the number of questions
        (``..._n``) where each is right or wrong, else with the ends of its 95 % interval, where there is one."""
        with phase("evaluate"), _QUIET.block():
            return [self._of(runtime, adapter) for adapter in adapters]

    def _of(self, runtime: ModelRuntime, adapter: State) -> dict[str, Any]:
        from lm_eval.evaluator import evaluate

        from murmura.measure.harness.resident import ResidentModel

        for task in self.each.values():  # the same answered questions for every adapter, in every round
            task.set_fewshot_seed(seed=_SEED)
        found = evaluate(
            ResidentModel(runtime, adapter, templated=self.form == "template"),
            {"tasks": self.each, "groups": {}, "group_map": {}},
            limit=self.limit,
            bootstrap_iters=0,
            apply_chat_template=self.form == "template",
        )
        assert found is not None, "there is one process"
        figures: dict[str, Any] = {}
        for name, group in self.tasks.items():
            figures |= headline(name, [TaskResult.of(found, task) for task in group])
        return figures


@dataclass(frozen=True)
class TaskResult:
    """What the harness has found of one task.

    Attributes:
        values: each metric, with its filter: ``acc,none``.
        singles: of each metric what each question gave, float64 [n]; only where the metric is their mean.
        count: how many questions were asked.
    """

    values: Mapping[str, float]
    singles: Mapping[str, np.ndarray]
    count: int

    @classmethod
    def of(cls, found: Mapping[str, Any], task: str) -> TaskResult:
        """Out of what ``lm_eval.evaluate`` gives."""
        told = found["results"][task]
        values = {
            name: float(value)
            for name, value in told.items()
            if "," in name and "_stderr," not in name and isinstance(value, int | float)
        }
        singles: dict[str, np.ndarray] = {}
        samples = found["samples"][task]
        for name, value in values.items():
            metric, _, filtered = name.partition(",")
            own = [sample.get(metric) for sample in samples if sample["filter"] == filtered]
            if own and all(isinstance(one, bool | int | float | np.number) for one in own):
                numbers = np.array(own, dtype=np.float64)
                if abs(numbers.mean() - value) < 1e-9:
                    singles[name] = numbers
        return cls(values, singles, len({sample["doc_id"] for sample in samples}))

    @property
    def first(self) -> str:
        """The metric that stands for the task: acc_norm or exact_match where it has them, else its first one."""
        preferred = [name for best in _PREFERRED for name in self.values if name.startswith(f"{best},")]
        return (preferred or list(self.values))[0]


def headline(name: str, results: Sequence[TaskResult]) -> dict[str, Any]:
    """The figure of a task, or of a group: the mean over its questions, as where the harness weighs by size.

    The metric is the one that stands for the first of its tasks that has one; those that lack it take no part.

    Raises:
        ConfigError: none has a metric that is a number.
    """
    metric = next((one.first for one in results if one.values), None)
    if metric is None:
        fix = "Leave it out, or give its YAML file a metric that is one, such as metric_list: [{metric: acc}]."
        raise ConfigError("no metric of the task is a number", where=f"{WHERE}: {name}", fix=fix)
    having = [one for one in results if metric in one.values]
    total = sum(one.count for one in having)
    value = sum(one.values[metric] * one.count for one in having) / total
    told: dict[str, Any] = {(told_as := key(name, metric)): value}
    if not all(metric in one.singles for one in having):
        return told
    singles = np.concatenate([one.singles[metric] for one in having])
    if np.isin(singles, (0, 1)).all():
        return told | {f"{told_as}_n": total}
    is_share = metric.partition(",")[0] in SHARES and 0 <= singles.min() <= singles.max() <= 1
    over = Estimate.of_shares(singles.tolist()) if is_share else Estimate.of(singles.tolist())
    return told if over.low is None else told | {f"{told_as}_low": over.low, f"{told_as}_high": over.high}


def load(
    names: Sequence[str], *, limit: int | None = None, few_shot: int | None = None, form: Any = "plain"
) -> HarnessSet:
    """Find tasks, and read their data.

    Args:
        names: of tasks, groups or tags of the harness; or paths of YAML files.
        limit: most questions of each task.
        few_shot: answered questions before each, in place of each task's own number.
        form: as ``BenchmarksConfig.form``.

    Raises:
        ConfigError: the extra is not installed, there is no such task, or one that cannot be measured here.
        DataError: a task's data cannot be read.
    """
    with _QUIET.block():
        manager, specs = _specified(names)
        found = {}
        for spec in specs:
            name, tasks = _loaded(manager, spec)
            for task_name, task in tasks.items():
                _require(task_name, task)
                _set_few_shot(task_name, task, few_shot)
            found[name] = tasks
    return HarnessSet(found, limit, form)


def _specified(names: Sequence[str]) -> tuple[Any, list[Any]]:
    """What finds tasks, and of each name what to ask it for."""
    try:
        from lm_eval.tasks import TaskManager
    except ImportError:
        fix = "Install it: pip install 'murmura[eval]'."
        raise ConfigError("tasks of lm-evaluation-harness need the extra 'eval'", where=WHERE, fix=fix) from None
    specs: list[Any] = [_own(Path(name)) if name.endswith(YAML) else name for name in names]
    # To read the harness's own thousands of files takes a while, and tasks of the user's own need none of them.
    known = any(isinstance(one, str) or "group" in one for one in specs)
    manager = TaskManager(include_defaults=known, include_path=_OURS)
    for name in specs:
        if isinstance(name, str) and name not in manager.task_index:
            hint = nearest(name, manager.all_tasks)
            fix = hint if hint.startswith("Did") else "`lm-eval ls tasks` lists them."  # which are thousands
            raise ConfigError(f"lm-evaluation-harness has no task '{name}'", where=WHERE, fix=fix)
    return manager, specs


def _own(path: Path) -> dict[str, Any]:
    """A YAML file of the user's own, whose files of data are beside it."""
    from lm_eval.tasks._yaml_loader import load_yaml

    if not path.is_file():
        fix = "Paths in an experiment are relative to its file, and those of --tasks to where you are."
        raise ConfigError("there is no such file", where=f"{WHERE}: {path}", fix=fix)
    try:
        told = load_yaml(path, resolve_func=True)
    except Exception as error:  # whatever a file of somebody's own may do
        raise ConfigError(f"it cannot be read ({error})", where=str(path)) from None
    if not isinstance(told, dict) or not ("task" in told or "group" in told):
        raise ConfigError("it names no task", where=str(path), fix="Give it a line 'task: my_task'.")
    options = told.get("dataset_kwargs") or {}
    if "data_files" in options:
        told["dataset_kwargs"] = options | {"data_files": _beside(options["data_files"], path.parent)}
    return told


def _beside(files: Any, folder: Path) -> Any:
    """Files of data, those that lie in a folder with their whole path."""
    if isinstance(files, dict):
        return {split: _beside(some, folder) for split, some in files.items()}
    if isinstance(files, list):
        return [_beside(one, folder) for one in files]
    beside = (folder / files).resolve()
    return str(beside) if beside.exists() else files


def _loaded(manager: Any, spec: Any) -> tuple[str, dict[str, Any]]:
    name = spec if isinstance(spec, str) else spec.get("group") or spec["task"]
    try:
        with _seeded():
            tasks = manager.load([spec])["tasks"]
        for task in tasks.values():
            _read_once(task)
            len(task.eval_docs)
    except Exception as error:  # of a library, a hub, or a file of somebody's own
        fix = "Its data come from the Hugging Face hub, or from files that its YAML names: see that they are there."
        what = f"the task cannot be loaded ({_first_line(error)})"
        raise DataError(what, where=f"{WHERE}: {name}", fix=fix) from error
    return name, tasks


def _read_once(task: Any) -> None:
    """Have what a task makes of its data made once: the harness does so anew for each look at them, and options that
    are shuffled between would be judged by another order than they were asked in, or a question not be known among
    the answered ones before it."""
    process, shown = task.get_config("process_docs"), task.fewshot_cfg.process_docs
    if process:
        task.set_config("process_docs", once := cache(_seeded()(process)))
        task.fewshot_cfg.process_docs = once if shown is process else shown and cache(_seeded()(shown))


@contextmanager
def _seeded() -> Iterator[None]:
    """With the numbers that the harness's own program draws first: some tasks shuffle options when these are read."""
    state, numbers = random.getstate(), np.random.get_state()
    random.seed(0)
    np.random.seed(_SEED)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numbers)


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]


def _require(name: str, task: Any) -> None:
    """Refuse what is not measured here, with no model."""
    from murmura.measure.harness.resident import options_of

    where = f"{WHERE}: {name}"
    if not task.aggregation():
        raise ConfigError("the task has no metric", where=where, fix="Give its YAML file one, or leave it out.")
    if getattr(task, "UNSAFE_CODE", False) or getattr(task.config, "unsafe_code", False):
        fix = "For HumanEval use [evaluation.benchmarks.humaneval], which runs programs in a sandbox."
        raise ConfigError("the task runs programs that a model wrote in this very process", where=where, fix=fix)
    if getattr(task, "MULTIMODAL", False):
        raise ConfigError("the task shows pictures or plays sounds", where=where, fix="Leave it out.")
    if task.OUTPUT_TYPE == "generate_until" and options_of(task).get("do_sample"):
        fix = "Leave it out, or set do_sample: false in a YAML file of your own."
        raise ConfigError("the task draws answers at random, and here they are written greedily", where=where, fix=fix)


def _set_few_shot(name: str, task: Any, few_shot: int | None) -> None:
    """How many answered questions stand before each one. Whether there are so many is tried with the first one: the
    harness finds out when a model is measured, which may be after all its training."""
    own = task.get_config("num_fewshot")
    count = (own or 0) if few_shot is None or own == 0 else few_shot
    task.set_config(key="num_fewshot", value=count)
    task.set_fewshot_seed(seed=_SEED)
    try:
        task.build_all_requests(limit=1)
    except Exception as error:  # of a library, or a file of somebody's own
        what = f"its questions cannot be asked with {count} answered ones before each ({_first_line(error)})"
        fix = "Lower few_shot (--few-shot), or leave the task out."
        raise ConfigError(what, where=f"{WHERE}: {name}", fix=fix) from error


def _quietened() -> Callable[[], None]:
    from datasets.utils import logging as bars

    restoring = ExitStack()
    try:
        from lm_eval.api import task as tasks
    except ImportError:  # told where it is needed
        return restoring.close
    log = logging.getLogger("lm_eval")
    restoring.callback(log.setLevel, log.level)
    restoring.callback(setattr, tasks, "tqdm", tasks.tqdm)
    if bars.is_progress_bar_enabled():
        restoring.callback(bars.enable_progress_bar)
    restoring.enter_context(warnings.catch_warnings())
    tasks.tqdm = partial(tasks.tqdm, disable=True)
    log.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    warnings.simplefilter("ignore")
    return restoring.close


_QUIET = Overlapping(_quietened)
"""Without the harness's own log, bars and warnings, which are about what the user cannot change."""
