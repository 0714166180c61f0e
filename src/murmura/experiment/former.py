"""Options of earlier versions, and what to write instead."""

from __future__ import annotations

from collections.abc import Mapping

_STEP = 'in [aggregation.server], with kind = "fedadam" or another step'
_OF_STEPS = ("tau", "beta1", "beta2", "second_moment", "damping")
_LOCAL, _SERVER = ("fedprox", "scaffold"), ("fedavgm", "fedadam", "fedyogi", "fedadagrad")
_PROXIMAL = 'mu in [aggregation.local], with kind = "fedprox"'
_SAMPLED = 'sites_per_round in [method.sampler], with kind = "poisson" or "fixed"'
_NOTHING = "nothing: it does that anyway"

SECTIONS: Mapping[str, str] = {
    "aggregation.residual_rank": 'residual_rank in [aggregation.rule], with kind = "fedex" or "flora"',
    "aggregation.ridge": 'ridge in [aggregation.rule], with kind = "fair"',
    "aggregation.mu": _PROXIMAL,
    "aggregation.server_lr": f"lr {_STEP}",
    **{f"aggregation.{name}": f"{name} {_STEP}" for name in _OF_STEPS},
    **{f"aggregation.secure_{name}": f"{name} in [aggregation.secure]" for name in ("threshold", "range", "weight")},
    "aggregation.allow_cohort_change_on_retry": "allow_cohort_change_on_retry in [aggregation.secure]",
}
"""By full key."""

METHODS: Mapping[str, Mapping[str, str]] = {
    "fedit": {
        "mu": _PROXIMAL,
        "server_lr": f"lr {_STEP}",
        **{name: f"{name} {_STEP}" for name in _OF_STEPS},
        "algorithm = 'fedavg'": _NOTHING,
        **{f"algorithm = '{one}'": f'name = "{one}"' for one in ("centralised", "local")},
        **{f"algorithm = '{one}'": f'local = "{one}" in [aggregation]' for one in _LOCAL},
        **{f"algorithm = '{one}'": f'server = "{one}" in [aggregation]' for one in _SERVER},
    },
    "dplora": {
        "algorithm = 'dplora'": _NOTHING,
        "algorithm = 'fedavg'": 'name = "vanilla-fl"',
        **{f"algorithm = '{one}'": f'name = "{one}"' for one in ("tfedavg", "cmfl")},
    },
    "fewfedpit": {
        "variant = 'fewfedpit'": _NOTHING,
        **{f"variant = '{one}'": f'name = "{one}"' for one in ("fedmit", "locit-sg")},
    },
    "dpfedavg": {
        "sites_per_round": _SAMPLED,
        "quantile": "quantile in [method.adaptive]",
        "clip_lr": "lr in [method.adaptive]",
        "count_noise": "count_noise in [method.adaptive]",
    },
    "dpftrl": {
        "restart_every": "restart_every in [method.noise]",
        "honaker": "honaker in [method.noise]",
        "bands": 'bands in [method.noise], with kind = "banded"',
    },
}
"""By the method's name, and by key, or ``key = value``."""
