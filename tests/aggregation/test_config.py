"""What options of aggregation may be, and how many sites a secure sum needs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from murmura.aggregation.config import AggregationConfig, SecureSumConfig


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "fedexx"}, "fedex"),
        ({"rule": {"kind": "mean", "residual_rank": 4}}, "residual_rank"),
        ({"rule": {"kind": "fair", "ridge": 0.0}}, "greater than 0"),
        ({"rule": {"kind": "flora", "residual_rank": 0}}, "greater than or equal to 1"),
        ({"rule": "fedsa", "ranks": [2, 4]}, "'ranks' does not go with rule 'fedsa'"),
        ({"rule": "mean", "ranks": [2, 0]}, "'ranks' must be at least 1"),
        ({"rule": "mean", "lambda": 1}, "lambda"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        AggregationConfig.model_validate(options)


def test_a_secure_sum_stands_drop_outs():
    least = SecureSumConfig().least
    assert [least(sites) for sites in (1, 3, 4, 9, 100)] == [1, 3, 3, 7, 67]  # ⌊2n/3⌋ + 1
    half = SecureSumConfig(threshold=0.5).least
    assert [half(sites) for sites in (3, 4, 100)] == [2, 3, 51]  # always more than half: no two sums of others
    assert SecureSumConfig(threshold=1).least(5) == 5
    assert all(3 * least(n) > 2 * n >= 3 * (least(n) - 1) for n in range(1, 3000))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "fedex"}, "rule 'fedex' needs what each site sends"),
        ({"ranks": [2, 1]}, "rule 'mean' with 'ranks' needs what each site sends"),
    ],
)
def test_what_cannot_be_secure_is_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        AggregationConfig(secure=True, **options)
