"""All kinds of runs, with what their sites can be asked for."""

from murmura.experiment.config import Experiment
from tests.experiment.small import METHODS

ALWAYS, OPEN, CLOSED = {"join", "commit", "rewind"}, {"attack"}, set()
LABELLED = METHODS["lpfl"]
TEXTS = {"name": "pretext", "public": "public.jsonl"}
NOISE = {"noise_multiplier": 1.0}
SUMS = {"secure": True}
# By [method], [aggregation]: the method's verbs, and what measuring asks by default.
RUNS = [
    *(({"name": "fedit"}, {"local": one}, {"train"}, OPEN) for one in ("plain", "fedprox", "scaffold")),
    *(({"name": "fedit"}, {"server": one}, {"train"}, OPEN) for one in ("fedavgm", "fedadam")),
    ({"name": "centralised"}, {}, {"train"}, OPEN),
    ({"name": "local"}, {}, {"train_alone"}, {*OPEN, "assess", "keep"}),
    ({"name": "fedit"}, {"rule": "fedsa"}, {"train"}, {*OPEN, "assess", "keep"}),
    ({"name": "fedit"}, {"rule": "ffa"}, {"train"}, OPEN),
    ({"name": "fedit"}, SUMS, {"train"}, OPEN),
    ({"name": "fewfedpit"}, {}, {"improve"}, OPEN),
    ({"name": "fewfedpit"}, SUMS, {"improve"}, OPEN),
    ({"name": "fedmit"}, {}, {"improve_together"}, OPEN),
    ({"name": "locit-sg"}, {}, {"improve_alone"}, {*OPEN, "assess", "keep"}),
    ({"name": "fewfedweight"}, {}, {"improve"}, OPEN),
    ({"name": "dplora"}, {}, {"train_private"}, CLOSED),
    ({"name": "dplora"}, SUMS, {"train_private", "tell_privacy"}, CLOSED),
    ({"name": "dplora"}, {"rule": "fedsa"}, {"train_private"}, {"assess", "keep"}),
    ({"name": "dplora", "noise_multiplier": 0.0}, {}, {"train_private"}, OPEN),
    ({"name": "dplora", "noise_multiplier": 0.0}, SUMS, {"train_private"}, OPEN),
    ({"name": "dplora", "preset": "paper"}, {}, {"train_private"}, CLOSED),
    ({"name": "vanilla-fl"}, {}, {"train"}, OPEN),
    ({"name": "tfedavg"}, {}, {"train_ternary"}, OPEN),
    ({"name": "cmfl"}, {}, {"train_relevant"}, OPEN),
    ({"name": "dpfedavg"}, {}, {"train_clipped"}, CLOSED),
    ({"name": "dpfedavg"}, SUMS, {"train_clipped"}, CLOSED),
    ({"name": "dpfedavg", "adaptive": True}, {}, {"train_clipped"}, CLOSED),
    ({"name": "dpfedavg", "noise_multiplier": 0.0}, {}, {"train_clipped"}, OPEN),
    ({"name": "dpftrl"}, {}, {"train_clipped"}, CLOSED),
    ({"name": "dpftrl"}, SUMS, {"train_clipped"}, CLOSED),
    (LABELLED, {}, {"train", "annotate"}, OPEN),
    (LABELLED | {"annotate": False}, {}, {"train"}, OPEN),
    (TEXTS, {}, {"vote"}, CLOSED),
    (TEXTS | NOISE, {}, {"vote"}, CLOSED),
    *((TEXTS | {"noise": one}, SUMS, {"vote"}, CLOSED) for one in ("skellam", "discrete-gaussian")),
    *((TEXTS | {"votes": one}, {}, {"vote"}, CLOSED) for one in ("normalised", "cosine")),
    (TEXTS | {"distance": True}, {}, {"vote", "report_distance"}, CLOSED),
    (TEXTS | {"noise_multiplier": 0.0}, {}, {"vote", "report_distance"}, OPEN),
    (TEXTS | {"noise_multiplier": 0.0, "distance": False}, {}, {"vote"}, OPEN),
    (TEXTS | {"seeds": "public"}, {}, set(), OPEN),
    (TEXTS | {"seeds": "private"}, {}, {"share_texts"}, OPEN),
    (TEXTS | {"seeds": "paraphrased"}, {}, {"paraphrase"}, CLOSED),
]


def experiment(method, aggregation=None, evaluation=None, augment=None):
    table = {"data": {"train": "sites", "heldout": "heldout.jsonl"}, "model": {"name": "x"}, "method": method}
    given = {"aggregation": aggregation, "evaluation": evaluation, "augment": augment}
    return Experiment.of(table | {name: options for name, options in given.items() if options})
