"""What a linear model comes to that sees every label in one place, to see arms beside: it costs seconds, and guarantees
nothing."""

from __future__ import annotations

from collections.abc import Sequence

from murmura.compare.jobs import Job
from murmura.data.records import Labelled
from murmura.experiment.prepare import prepare
from murmura.streams import Stream

WORDS = "TF-IDF and logistic regression, all labels in one place"


def accuracies(jobs: Sequence[Job]) -> dict[int, float]:
    """The accuracy of a linear model by seed, on the labelled and the held-out records of runs of one arm.

    Raises:
        MurmuraError: the records cannot be read.
    """
    return {job.seed: _accuracy_of(job) for job in jobs}


def _accuracy_of(job: Job) -> float:
    plan = prepare(job.experiment)
    _, records = plan.complete
    stream = Stream(job.seed)
    known = [record for site in records.people.sites for record in plan.method.members(site, stream)]
    return accuracy([record for record in known if record.is_complete], records.public.heldout)


def accuracy(known: Sequence[Labelled], asked: Sequence[Labelled]) -> float:
    """The share of texts that get their own label by TF-IDF and logistic regression, as scikit-learn has them unless
    told otherwise. Texts without a word, and labels of one kind alone, teach nothing: then all get the most frequent.

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
