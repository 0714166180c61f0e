"""What attacks make of every single record of finished runs, and what two runs differ in on the same records.

    python studies/paired.py RUN...    # writes RUN.scores.json beside each run's folder

The scores are as secret as the records: they say of each, by a digest, how much it looks like a member. A run's own
figures come of counts that sites release, and cannot be paired.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

DRAWS = 2000
Scores = Mapping[str, float]
"""Of each record by its digest."""


@dataclass(frozen=True)
class Scored:
    """What one attack makes of a run's model: the scores of members and of other records."""

    members: Scores
    others: Scores

    @classmethod
    def of(cls, file: Path, attack: str) -> Scored:
        """What ``main`` wrote, of one attack."""
        found = json.loads(file.read_text())
        return cls(*({record: one[attack] for record, one in found[part].items()} for part in ("members", "others")))

    def beats(self) -> np.ndarray:
        """Whether member i scores higher than the other record j, 1/2 where both score the same; [members, others]."""
        members, others = (np.array(list(scores.values())) for scores in (self.members, self.others))
        return (members[:, None] > others) + 0.5 * (members[:, None] == others)


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def shows(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0


def auc(runs: Sequence[Scored]) -> Estimate:
    """The mean AUC of several runs, one for each seed; see ``difference``."""
    every = [[(run, 1.0)] for run in runs]
    return _estimate(every)


def difference(pairs: Sequence[tuple[Scored, Scored]]) -> Estimate:
    """By how much the AUC of the first of two runs is larger, as the mean over pairs, one for each seed.

    The interval is that of the Bayesian bootstrap over records (Rubin 1981): in each draw every record has a random
    weight, the same one in all runs that have it, so that records that are easy or hard in both do not count.
    """
    return _estimate([[(one, 1.0), (other, -1.0)] for one, other in pairs])


def _estimate(sums: Sequence[Sequence[tuple[Scored, float]]]) -> Estimate:
    """The mean over ``sums`` of the signed sum of AUCs."""
    runs = [run for one in sums for run, _ in one]
    records = list(dict.fromkeys(record for run in runs for part in (run.members, run.others) for record in part))
    places = {record: place for place, record in enumerate(records)}
    weights = np.random.default_rng(0).exponential(size=(DRAWS, len(records)))
    weights = np.vstack([np.ones(len(records)), weights])  # first the figure itself
    values = np.zeros(len(weights))
    for one in sums:
        for run, sign in one:
            m, o = (weights[:, [places[record] for record in part]] for part in (run.members, run.others))
            values += sign * ((m @ run.beats()) * o).sum(axis=1) / (m.sum(axis=1) * o.sum(axis=1)) / len(sums)
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Estimate(float(values[0]), float(low), float(high))


def over_runs(differences: Sequence[float]) -> Estimate:
    """The mean over at least two runs, with Student's interval: runs count as independent."""
    from scipy.stats import t

    mean, count = float(np.mean(differences)), len(differences)
    reach = float(t.ppf(0.975, count - 1) * np.std(differences, ddof=1) / count**0.5)
    return Estimate(mean, mean - reach, mean + reach)


def score(folders: Sequence[Path]) -> Iterator[tuple[Path, dict[str, dict[str, dict[str, float]]]]]:
    """Every attack's score of each member (canaries are none) and of each non-member under the models of finished runs,
    by digest of the record. The runs have one base model, adapters of one shape, and one way to read records."""
    from murmura.experiment.config import Experiment
    from murmura.experiment.context import process_context
    from murmura.experiment.prepare import records_of
    from murmura.experiment.validate import method_of
    from murmura.measure.membership import scores
    from murmura.measure.reader import Reader
    from murmura.runs import RunFolder
    from murmura.streams import Stream
    from murmura.training.adapter import load_peft

    first = Experiment.load(RunFolder(folders[0]).config)
    task, context = first.task, process_context(first, method_of(first))
    bench, reader = context.runtime("server"), Reader(task.token_scores)
    for folder in folders:
        experiment = Experiment.load(RunFolder(folder).config)
        stream, method = Stream(experiment.run.seed), method_of(experiment)
        records = records_of(experiment, method, context.reading)
        own = [record for site in records.people.sites for record in method.members(site, stream)]
        members = [record for record in own if record.is_complete]
        every = members + list(records.public.nonmembers)
        adapter, _ = load_peft(RunFolder(folder).adapter)
        [scored] = scores(reader, task, bench, [adapter], [every])
        rows = [dict(zip(scored, map(float, row), strict=True)) for row in zip(*scored.values(), strict=True)]
        named = list(zip([sha256(repr(record).encode()).hexdigest()[:16] for record in every], rows, strict=True))
        yield folder, {"members": dict(named[: len(members)]), "others": dict(named[len(members) :])}


def main() -> None:
    """Score the records of some runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", help="folders of finished runs of one kind")
    for folder, found in score(parser.parse_args().runs):
        beside(folder).write_text(json.dumps(found))


def beside(folder: Path) -> Path:
    """Where the scores of a run are kept."""
    return folder.parent / f"{folder.name}.scores.json"


if __name__ == "__main__":
    main()
