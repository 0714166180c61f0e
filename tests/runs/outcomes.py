"""What runs leave in files of their own."""

import math

from murmura.runs import RunFolder
from murmura.runs.augment import CentresGuarantee, Example, Given, MapPoint, PublicSelection, ScoreHistogram, Similarity
from murmura.runs.evolution import CurvePoint, Generation
from murmura.runs.names import CURVE, EVOLUTION

SELECTION = PublicSelection(
    1,
    "FedDCA",
    {
        "a": Given(3, 0, 300, {"code": 2, "math": 1}, Similarity(0.5, 0.25, 0.75)),
        "b": Given(1, 2, 100, {"math": 1}, Similarity(0.25, 0.25, 0.25)),
    },
    records=3,
    clusters=4,
    scored_by="dot product",
    domain="code",
    coverage=0.75,
    examples=(Example("a", "code", 0.75, "Sort a list.", "nearest to centre 2"),),
    points=(MapPoint(0.5, -1.25, "fetched", "code"), MapPoint(0.0, 2.0, "pool", "code")),
    histogram=ScoreHistogram((0.0, 0.5, 1.0), {"code": (1, 1), "math": (2, 0)}),
    guarantee=CentresGuarantee(math.inf, 1e-5, "zero-out", "the plan"),
    centres=8,
    alone=1,
)
ROUNDS = (
    Generation(("bees fly", "trains stop", "soup boils"), (21.5, -3.25, 4.0), (2, 0, 1)),
    Generation(("bees fly far", "bees sleep", "soup is cold"), (12.5, 8.0, -1.5), (2, 1, 0)),
)
POINTS = (CurvePoint(24, 5.5, 0.25), CurvePoint(96, 5.0, 0.375))


def leave(folder, rounds=ROUNDS, points=POINTS):
    RunFolder(folder).write_outcomes({EVOLUTION: rounds, CURVE: points})
    return folder
