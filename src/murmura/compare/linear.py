"""What a linear model comes to that sees every label in one place, to see arms beside: it costs seconds, and guarantees
nothing."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.compare.jobs import Job
from murmura.data.records import Labelled
from murmura.experiment.augmenting import opened
from murmura.experiment.context import process_context
from murmura.experiment.prepare import records_of
from murmura.experiment.validate import method_of
from murmura.streams import Stream

WORDS = "TF-IDF and logistic regression, all labels in one place"


def accuracies(jobs: Sequence[Job]) -> dict[int, float]:
    """The accuracy of a linear model by seed, on the labelled and the held-out records of runs of one arm.

    Raises:
        MurmuraError: the records cannot be read.
    """
    found, reading = {}, None
    for job in jobs:
        experiment, pool = opened(job.experiment)
        method = method_of(experiment, pool)
        reading = reading or process_context(experiment, method).reading  # of the arm, whatever the seed
        records, stream = records_of(experiment, method, reading), Stream(job.seed)
        known = [record for site in records.people.sites for record in method.members(site, stream)]
        found[job.seed] = accuracy([record for record in known if record.is_complete], records.public.heldout)
    return found


def accuracy(known: Sequence[Labelled], asked: Sequence[Labelled]) -> float:
    """The share of texts that get their own label by TF-IDF and logistic regression, as scikit-learn has them, but
    that words of one letter count and that it may take 1,000 steps. Texts without a word, and labels of one kind alone,
    teach nothing: then all get the most frequent.

    Args:
        known: texts to learn from, at least one.
        asked: texts to label, at least one.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    texts, labels = [record.text for record in known], [record.label for record in known]
    words = TfidfVectorizer(token_pattern=r"\w+")
    taught = len(set(labels)) > 1 and any(map(words.build_analyzer(), texts))
    model = make_pipeline(words, LogisticRegression(max_iter=1000)) if taught else DummyClassifier()
    model.fit(texts, labels)
    return float(model.score([record.text for record in asked], [record.label for record in asked]))
