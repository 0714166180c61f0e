"""Every refusal that takes more than one section of an experiment to tell: a rule is a function that raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from murmura import methods
from murmura.aggregation.config import LINEAR, PRODUCTS, ROBUST
from murmura.errors import ConfigError
from murmura.experiment.placement import count_workers, gpus_for
from murmura.federation.engines import ENGINES
from murmura.runs.schema import DEPLOYED
from murmura.units import several

if TYPE_CHECKING:
    from murmura.aggregation.config import AggregationConfig
    from murmura.experiment.config import Experiment
    from murmura.federation.method import Method
    from murmura.measure.config import EvaluationConfig
    from murmura.privacy.plan import PrivacyPlan
    from murmura.retrieval.pool import Pool

_FEWEST = 3  # of two sites each learns the other's vector from the sum and its own


@dataclass(frozen=True)
class Run:
    """What is known of a run before its first round.

    Args:
        plan: that the run follows.
        sites: of the federation, where that is known.
    """

    experiment: Experiment
    method: Method
    plan: PrivacyPlan | None
    sites: int | None

    @property
    def evaluation(self) -> EvaluationConfig:
        """How the run is measured, with what is left out decided."""
        secret = self.plan is not None and self.plan.has_secret_cohort
        promises = self.method.protects is not None
        return self.experiment.evaluation.settled(promises=promises, secret_cohorts=secret)


def require_sections(experiment: Experiment) -> None:
    """Hold an experiment to the rules on sections alone.

    Raises:
        ConfigError: one is broken; ``where`` names the option.
    """
    for rule in OF_SECTIONS:
        rule(experiment)


def method_of(experiment: Experiment, pool: Pool | None = None) -> Method:
    """The method of an experiment, held to the rules on methods.

    Raises:
        ConfigError: one is broken; ``where`` names the option.
    """
    method = methods.build(experiment.method, experiment.aggregation)
    for rule in OF_METHODS:
        rule(experiment, method)
    if pool is not None:
        _pool_keeps_promise(experiment, method, pool)
    return method


def require_run(run: Run) -> None:
    """Hold a run to the rules on what it promises and how its sites are summed.

    Raises:
        ConfigError: one is broken; ``where`` names the option.
    """
    for rule in OF_RUNS:
        rule(run)


# ---- sections ----------------------------------------------------------------------------------------------------


def _weights_can_train(experiment: Experiment) -> None:
    model = experiment.model
    if model.trainable == "all" and (model.quantization or model.load_dtype != "float32"):
        key = "quantization" if model.quantization else "dtype"
        what = f"model.trainable is 'all', and only weights in float32 can train, not in {getattr(model, key)}"
        raise ConfigError(what, where=f"model.{key}", fix=f"Remove model.{key}, or set model.trainable = 'adapter'.")


def _adapters_are_combined(experiment: Experiment) -> None:
    if experiment.model.trainable == "all" and not experiment.aggregation.is_mean:
        what = "rules and ranks are about adapters, and model.trainable is 'all'"
        raise ConfigError(what, where="aggregation", fix="Remove them.")


def _ranks_fit(experiment: Experiment) -> None:
    ranks, most = experiment.aggregation.ranks, experiment.lora.rank
    if ranks and max(ranks) > most:
        what = f"ranks go up to {max(ranks)}, lora.rank is {most}"
        raise ConfigError(what, where="aggregation.ranks", fix="Lower them, or raise lora.rank.")


def _magnitudes_are_combined(experiment: Experiment) -> None:
    rule = experiment.aggregation.rule.kind
    if experiment.lora.dora and rule in PRODUCTS:
        what = f"rule '{rule}' is about the products B·A, which with DoRA are not what an adapter changes a weight by"
        rest = ", ".join((*LINEAR, *ROBUST))
        raise ConfigError(what, where="aggregation.rule", fix=f"Choose one of {rest}; or set lora.dora = false.")


def _kind_is_known(experiment: Experiment) -> None:
    kind, known = experiment.data.kind, experiment.method.kinds
    if kind not in known:
        what = f"'{kind}' records do not go with the method, which works with {' or '.join(known)} records alone"
        raise ConfigError(what, where="data.kind", fix="Remove it, or choose another method.")


def _kind_reads_options(experiment: Experiment) -> None:
    for key, reason in experiment.task.idle.items():
        section, _, option = key.partition(".")
        options = getattr(experiment, section)
        if getattr(options, option) != type(options).model_fields[option].get_default(call_default_factory=True):
            raise ConfigError(f"it does nothing {reason}", where=key, fix="Remove it.")


def _instructions_are_augmented(experiment: Experiment) -> None:
    if experiment.augment is not None and experiment.data.kind != "instruction":
        what = f"sites would train on public instructions, and data.kind is '{experiment.data.kind}'"
        raise ConfigError(what, where="augment", fix="Remove the section.")


def _records_are_chosen_again(experiment: Experiment) -> None:
    augment, rounds = experiment.augment, experiment.method.rounds
    if augment is not None and augment.every is not None and augment.selections(rounds) == 1:
        what = f"it does nothing in a run of {rounds} rounds: records are chosen once, in the first"
        raise ConfigError(what, where="augment.every", fix="Remove it, or make it smaller than method.rounds.")


def _gradients_are_of_adapters(experiment: Experiment) -> None:
    augment = experiment.augment
    if augment is not None and augment.by_influence and experiment.model.trainable == "all":
        what, fix = "LESS compares gradients of adapters, and here all parameters train", "Choose another one"
        raise ConfigError(what, where="augment.strategy", fix=f"{fix}, or set model.trainable = 'adapter'.")


def _canaries_are_simulated(experiment: Experiment) -> None:
    if experiment.audit.canaries and experiment.run.engine == DEPLOYED:
        what = f"they would write random secrets into real sites' records (run.engine = '{experiment.run.engine}')"
        raise ConfigError(what, where="audit.canaries", fix=f"Only simulations may: {' or '.join(ENGINES)}.")


def _canaries_have_room(experiment: Experiment) -> None:
    if experiment.audit.canaries and experiment.task.canary("", "") is None:
        what = f"{experiment.data.kind} records have no room for a secret"
        raise ConfigError(what, where="audit.canaries", fix="Remove it.")


def _transcripts_are_simulated(experiment: Experiment) -> None:
    if experiment.audit.keep and experiment.run.engine == DEPLOYED:
        what = f"a real server would keep what real sites send (run.engine = '{experiment.run.engine}')"
        raise ConfigError(what, where="audit.keep", fix=f"Only simulations may: {' or '.join(ENGINES)}.")


OF_SECTIONS = (
    _weights_can_train,
    _adapters_are_combined,
    _ranks_fit,
    _magnitudes_are_combined,
    _kind_is_known,
    _instructions_are_augmented,
    _kind_reads_options,
    _records_are_chosen_again,
    _gradients_are_of_adapters,
    _canaries_are_simulated,
    _canaries_have_room,
    _transcripts_are_simulated,
)

# ---- methods -----------------------------------------------------------------------------------------------------


def _aggregation_suits(experiment: Experiment, method: Method) -> None:
    aggregation, traits = experiment.aggregation, method.traits
    what, fix, combines = "", "Leave the [aggregation] section out, or choose another method.", traits.combines
    if combines is None:
        what = "" if aggregation.is_plain else "aggregates in a way of its own"
    elif aggregation.rule.kind not in combines.rules or (aggregation.ranks and not combines.ranks):
        what = f"does not go with that: {combines.because}" if combines.because else "does not go with that"
        equal = "" if combines.ranks else ", with equal ranks"
        fix = combines.fix or f"Choose one of the rules {', '.join(combines.rules)}{equal}."
    elif aggregation.travel != "float32" and not combines.travels:
        what, fix = "needs uploads whole, to the last bit", "Leave aggregation.travel out."
    for option, kind in (("local", aggregation.local.kind), ("server", aggregation.server.kind)):
        if combines is not None and not what and kind in combines.refused:
            what, fix = f"does not go with {option} '{kind}': {combines.refused[kind]}", "Choose another one."
    if what:
        raise ConfigError(f"{traits.label} {what}", where=_named(aggregation), fix=fix)


def _named(aggregation: AggregationConfig) -> str:
    """The options of an aggregation that are not plain averaging's."""
    plain = {"rule": "mean", "local": "plain", "server": "plain"}
    chosen = {key: getattr(aggregation, key).kind for key in plain}
    named = [f"aggregation.{key} = '{kind}'" for key, kind in chosen.items() if kind != plain[key]]
    named += [f"aggregation.travel = '{aggregation.travel}'"] if aggregation.travel != "float32" else []
    return ", ".join(named) or f"aggregation.{'ranks' if aggregation.ranks else 'secure'}"


def _magnitudes_suit(experiment: Experiment, method: Method) -> None:
    if experiment.lora.dora and method.traits.no_magnitudes:
        what = f"{method.traits.label} does not work with DoRA: {method.traits.no_magnitudes}"
        raise ConfigError(what, where="lora.dora", fix="Leave it out, or choose another method.")


def _parameters_suit(experiment: Experiment, method: Method) -> None:
    if experiment.model.trainable == "all" and method.traits.no_whole_models:
        what = f"{method.traits.label} trains adapters alone: {method.traits.no_whole_models}"
        fix = "Set model.trainable = 'adapter', or choose a method that protects whole sites."
        raise ConfigError(what, where="model.trainable", fix=fix)


def _sums_suffice(experiment: Experiment, method: Method) -> None:
    if experiment.aggregation.secure and method.traits.single_replies:
        what = f"{method.traits.label} does not work with sums alone: {method.traits.single_replies}"
        raise ConfigError(what, where="aggregation.secure", fix="Leave it out, or choose another method.")


def _public_records_suit(experiment: Experiment, method: Method) -> None:
    traits = method.traits
    if experiment.augment is not None and traits.no_public_records:
        what = f"{traits.label} has no place for public records: {traits.no_public_records}"
        raise ConfigError(what, where="augment", fix="Leave the section out, or choose another method.")


def _choice_keeps_promise(experiment: Experiment, method: Method) -> None:
    from murmura.augment.strategies import strategy

    augment = experiment.augment
    if augment is None or not method.protects:
        return
    if reads := strategy(augment).private:
        what = f"{method.traits.label} promises an ε for private records, which would not cover what is read: {reads}"
        raise ConfigError(what, where="augment.strategy", fix="Take 'random', which reads none.")


def _pool_keeps_promise(experiment: Experiment, method: Method, pool: Pool) -> None:
    from murmura.retrieval.pool import WITHOUT_PRIVATE

    noisy = experiment.augment is not None and experiment.augment.noise_multiplier is not None
    if pool.manifest.without_private and (method.protects or noisy):
        whose = "the centres' ε" if noisy else f"the ε that {method.traits.label} promises"
        what = f"{WITHOUT_PRIVATE}; {whose} would not cover that"
        fix = "Build it again and leave no private records out: sites do that themselves."
        raise ConfigError(what, where="augment.pool", fix=fix)


def _personal_models_suit(experiment: Experiment, method: Method) -> None:
    options, traits = experiment.personal, method.traits
    if options is None:
        return
    reasons = {
        "all records are in one place, and so there is no site": traits.pooled,
        "no site has the model that trains": traits.trained_at != "sites",
        "its sites have adapters of their own already": method.keeps_adapters,
        "sites of unequal ranks have adapters of unequal shapes": bool(experiment.aggregation.ranks),
        "a site's own model is an adapter, and model.trainable is 'all'": experiment.model.trainable == "all",
    }
    if reason := next((reason for reason, found in reasons.items() if found), None):
        what = f"{traits.label} does not go with models of the sites' own: {reason}"
        raise ConfigError(what, where="personal", fix="Leave the section out, or choose another method.")
    if method.protects and options.heldout:
        what = f"sites would tell losses on private records, which the ε that {traits.label} promises does not cover"
        raise ConfigError(
            what, where="personal.heldout", fix="Remove it: sites train models of their own all the same."
        )


def _transcript_has_uploads(experiment: Experiment, method: Method) -> None:
    if experiment.audit.keep and not method.uploads_are_heard:
        what = "of this method no server sees what could be kept: sites send it no adapter of theirs"
        raise ConfigError(what, where="audit.keep", fix="Remove it; `murmura audit` attacks what the run leaves.")


OF_METHODS = (
    _aggregation_suits,
    _magnitudes_suit,
    _parameters_suit,
    _sums_suffice,
    _public_records_suit,
    _choice_keeps_promise,
    _personal_models_suit,
    _transcript_has_uploads,
)

# ---- runs --------------------------------------------------------------------------------------------------------


def _transcript_keeps_promise(run: Run) -> None:
    if run.experiment.audit.keep and run.plan is not None and run.plan.unit == "site":
        what = "the ε of whole sites holds for the noisy sum: single uploads have no noise, and tell who took part"
        raise ConfigError(what, where="audit.keep", fix="Remove it; `murmura audit` attacks the model all the same.")


def _cohorts_stay_secret(run: Run) -> None:
    """Whoever sees the traffic of a site sees whether a round has asked it."""
    if run.experiment.run.engine == DEPLOYED and run.plan is not None and run.plan.has_secret_cohort:
        what = "the run's ε counts on nobody knowing whom a round has asked, and a network shows which sites are asked"
        raise ConfigError(what, where="method.sampler", fix="Set method.sampler = 'full', or simulate the federation.")


def _timeouts_are_isolated(run: Run) -> None:
    """Sites that share a process are late together: one site could keep others' answers out of a sum, and move it by
    more than its own."""
    experiment, sites = run.experiment, run.sites or 0
    if run.plan is None or run.plan.unit != "site" or experiment.run.answer_seconds is None:
        return
    if experiment.run.engine == DEPLOYED:  # each has a machine of its own
        return
    if count_workers(experiment, gpus_for(experiment.model.device)) < sites:
        what = (
            "sites that share a worker are late together, so that one site could keep others out of a sum, which the ε "
            "of whole sites does not cover"
        )
        fix = f"Leave it out, or give each site a worker of its own: run.workers = {sites}."
        raise ConfigError(what, where="run.answer_seconds", fix=fix)


def _secure_sums_hide(run: Run) -> None:
    """Nothing else may need what each site sends, and a sum must hide it."""
    if not run.experiment.aggregation.secure:
        return
    what = fix = None
    sites = run.sites if run.sites is None else min(run.experiment.method.cohort_size or run.sites, run.sites)
    attacked = run.evaluation.attacks or run.experiment.audit.canaries
    if run.experiment.audit.keep:
        what = "audit.keep keeps what each site sends, which no server sees where sums are secure"
        fix = "Remove one of the two."
    elif attacked and run.evaluation.uploads and run.method.uploads_are_heard:
        what = "single uploads are to be attacked, which no server sees where sums are secure"
        fix = "Set evaluation.uploads = 0: the model is attacked all the same."
    elif run.plan is not None and run.plan.has_secret_cohort:
        what = "the run's ε counts on nobody knowing whom a round has asked, and sites of a secure sum know one another"
        fix = "Set method.sampler = 'full', or leave 'secure' out."
    elif sites is not None and sites < _FEWEST:
        what = f"a sum over {sites} sites hides nothing: of two, each knows the other's part"
        fix = f"Have {_FEWEST} sites or more in a round."
    if what is not None:
        raise ConfigError(what, where="aggregation.secure", fix=fix)


def _rule_has_sites(run: Run) -> None:
    """Against so many liars a rule needs more sites than answer in a round."""
    least, sites = run.method.rule.least, run.sites
    asked = None if sites is None else min(run.experiment.method.cohort_size or sites, sites)
    if asked is not None and asked < least:
        kind = run.experiment.aggregation.rule.kind
        what = f"rule '{kind}' needs {least} answers in a round, and {asked} sites are asked"
        fix = f"Lower it{' (or aggregation.rule.chosen)' * (kind == 'krum')}, or have more sites in a round."
        raise ConfigError(what, where="aggregation.rule.liars", fix=fix)


def _ranks_have_sites(run: Run) -> None:
    ranks = run.experiment.aggregation.ranks
    if run.sites is not None and len(ranks) > run.sites:
        what = f"{len(ranks)} ranks are given for {several(run.sites, 'site')}"
        raise ConfigError(what, where="aggregation.ranks", fix=f"Leave {run.sites} of them at most.")


OF_RUNS = (
    _rule_has_sites,
    _ranks_have_sites,
    _cohorts_stay_secret,
    _transcript_keeps_promise,
    _timeouts_are_isolated,
    _secure_sums_hide,
)
