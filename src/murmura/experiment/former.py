"""Options of earlier versions, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

_STEP = 'in [aggregation.server], with kind = "fedadam" or another step'
_LOCAL, _SERVER = ("fedprox", "scaffold"), ("fedavgm", "fedadam", "fedyogi", "fedadagrad")

FORMER: Mapping[str, str] = {
    "aggregation.residual_rank": 'residual_rank in [aggregation.rule], with kind = "fedex" or "flora"',
    "aggregation.ridge": 'ridge in [aggregation.rule], with kind = "fair"',
    "aggregation.mu": 'mu in [aggregation.local], with kind = "fedprox"',
    "aggregation.server_lr": f"lr {_STEP}",
    **{f"aggregation.{name}": f"{name} {_STEP}" for name in ("tau", "beta1", "beta2", "second_moment", "damping")},
    "aggregation.secure_threshold": "threshold in [aggregation.secure]",
    "aggregation.secure_range": "range in [aggregation.secure]",
    "aggregation.secure_weight": "weight in [aggregation.secure]",
    "aggregation.allow_cohort_change_on_retry": "allow_cohort_change_on_retry in [aggregation.secure]",
    "method.server_lr": f"lr {_STEP}",
    "method.mu": 'mu in [aggregation.local], with kind = "fedprox"',
    **{f"method.{name}": f"{name} {_STEP}" for name in ("tau", "beta1", "beta2", "second_moment", "damping")},
    "method.sites_per_round": 'sites_per_round in [method.sampler], with kind = "poisson" or "fixed"',
    "method.quantile": "quantile in [method.adaptive]",
    "method.clip_lr": "lr in [method.adaptive]",
    "method.count_noise": "count_noise in [method.adaptive]",
    "method.restart_every": 'restart_every in [method.noise], with kind = "tree"',
    "method.honaker": 'honaker in [method.noise], with kind = "tree"',
    "method.bands": 'bands in [method.noise], with kind = "banded"',
    "method.algorithm = 'fedavg'": 'nothing with fedit, and name = "vanilla-fl" for that of dplora',
    "method.algorithm = 'dplora'": "nothing: it is what dplora does",
    **{f"method.algorithm = '{one}'": f'name = "{one}"' for one in ("tfedavg", "cmfl")},
    "method.variant = 'fewfedpit'": "nothing: it is what fewfedpit does",
    **{f"method.variant = '{one}'": f'name = "{one}"' for one in ("fedmit", "locit-sg")},
    "method.algorithm = 'centralised'": 'name = "centralised"',
    "method.algorithm = 'local'": 'name = "local"',
    **{f"method.algorithm = '{one}'": f'local = "{one}" in [aggregation]' for one in _LOCAL},
    **{f"method.algorithm = '{one}'": f'server = "{one}" in [aggregation]' for one in _SERVER},
}
"""By full key, or by ``key = value`` where only some values have gone."""


def former_of(section: str) -> dict[str, str]:
    """Those of one section, by their keys in it."""
    return {key.removeprefix(f"{section}."): value for key, value in FORMER.items() if key.startswith(f"{section}.")}
