"""The pool of ``[augment]`` before a run."""

from __future__ import annotations

from collections.abc import Iterable

from murmura.augment.config import AugmentConfig
from murmura.augment.lead import asking
from murmura.augment.strategies import Rows
from murmura.data.records import Instruction
from murmura.errors import ConfigError, DataError
from murmura.experiment.config import Experiment
from murmura.federation.method import Method
from murmura.resources import Loader
from murmura.retrieval.approximate import Index
from murmura.retrieval.pool import Pool


def opened(experiment: Experiment) -> tuple[Experiment, Pool | None]:
    """The pool of an experiment, as far as that is known without reading all of it; and the experiment with the
    encoder written out that sites need.

    Raises:
        DataError: there is no pool, it is damaged, or lacks the index that is asked for.
        ConfigError: what is asked for does not fit the pool, or needs faiss.
    """
    config = experiment.augment
    if config is None or config.pool is None:
        return experiment, None
    pool = Pool.open(config.pool)
    if config.domain is not None:
        try:
            rows = pool.rows_of(config.domain)
        except DataError as error:
            raise ConfigError(error.what, where="augment.domain", fix=error.fix) from None
        if not len(rows):
            what = f"the pool has the domain '{config.domain}' and no records of it"
            fix = f"`murmura pool info {config.pool}` says what became of them. Name another domain, or remove it."
            raise ConfigError(what, where="augment.domain", fix=fix)
    if config.site_encoder == pool.encoder.name:
        what = f"'{config.site_encoder}' is the pool's own encoder, so there is nothing to project"
        raise ConfigError(what, where="augment.site_encoder", fix="Remove it.")
    if config.search == "approximate":
        Index.open(pool)  # or told now, before sites have done anything
    return experiment.model_copy(update={"augment": _written_out(config, pool)}), pool


def _written_out(config: AugmentConfig, pool: Pool) -> AugmentConfig:
    if not config.by_centres or config.site_encoder is not None or config.encoder is not None:
        return config
    return config.model_copy(update={"encoder": pool.encoder.name})


def require_whole(experiment: Experiment, pool: Pool, loader: Loader) -> None:
    """Read all of a pool before a run, and hold it to the encoder that it must have been embedded with.

    Raises:
        DataError: it is damaged, or was embedded with another one.
        ModelError: the encoder cannot be loaded.
    """
    pool.verify()
    if experiment.augment is not None and experiment.augment.encoder is not None:
        pool.refuse_other(loader.encoder(experiment.augment.encoder))


def shared_out(
    experiment: Experiment, method: Method, pool: Pool | None, records: Iterable[Instruction]
) -> Rows | None:
    """The rows of a pool that one file has been shared out with, over simulated sites: the pool of the same data set is
    what is left of it (FedDCA, Wang et al. 2024, arXiv 2409.20135). A site knows its own records among
    public ones, and no server knows any; so nothing is taken out where sites have files of their own, or where an ε is
    told, which holds for what follows from public records.

    Args:
        records: all sites' private ones.

    Returns:
        int64, ascending; None where nothing is taken out.
    """
    config = experiment.augment
    if config is None or pool is None or experiment.data.sites.by != "partition":
        return None
    if method.protects or config.noise_multiplier:
        return None
    return asking(pool, (record.question for record in records))
