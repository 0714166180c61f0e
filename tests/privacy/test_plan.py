import json
import math
from dataclasses import FrozenInstanceError, fields, replace

import dp_accounting as dp
import pytest

from murmura.errors import PrivacyError
from murmura.privacy.clipping import AdaptiveSiteClipping, BatchClipping, ExampleClipping, SiteClipping, VoteLimit
from murmura.privacy.mechanisms.banded import BandedNoise
from murmura.privacy.mechanisms.discrete_gaussian import DiscreteGaussianNoise
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.skellam import SkellamNoise
from murmura.privacy.mechanisms.tree import TreeNoise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.renyi import IntegerNoiseDpEvent
from murmura.privacy.samplers import FixedSizeSampling, FullParticipation, MinSeparation, OncePerTree, PoissonSampling
from tests.privacy.plans import RECORDS, SITES, VOTES, of_records, of_sites, of_votes

FIXED = FixedSizeSampling(8, 200)
ADAPTIVE = AdaptiveSiteClipping(norm=0.1, quantile=0.5, learning_rate=0.2, count_noise=62.5)


@pytest.mark.parametrize(
    ("plan", "sensitivity"),
    [
        (RECORDS, 1),
        (of_records(adjacency="replace-one"), 2),
        (of_records(clipping=ExampleClipping(9.0, groups=2)), math.sqrt(2)),
        (of_records(clipping=ExampleClipping(9.0, groups=2), adjacency="replace-one"), 2 * math.sqrt(2)),
        (of_records(clipping=BatchClipping(1.0)), 2),
        (of_records(clipping=BatchClipping(1.0, groups=2), adjacency="replace-one"), 2 * math.sqrt(2)),
        (of_records(sampler=FIXED), 2),
        (of_records(sampler=FIXED, adjacency="replace-one"), 2),
        (SITES, 1),
        (of_sites(adjacency="replace-one"), 2),
        (VOTES, 1),
        (of_votes(adjacency="replace-one"), 2),
    ],
)
def test_sensitivity_in_norms(plan, sensitivity):
    assert plan.sensitivity == pytest.approx(sensitivity)
    assert plan.noise_multiplier == pytest.approx(plan.noise.std / sensitivity)


def test_the_event_is_made_of_the_plans_own_sampler_clipping_and_noise():
    assert RECORDS.event() == dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.04, dp.GaussianDpEvent(2.0)), 50)
    assert RECORDS.event(7).count == 7
    assert SITES.event() == dp.SelfComposedDpEvent(dp.GaussianDpEvent(11.3), 11)
    fixed = of_records(sampler=FIXED, adjacency="replace-one").event(1).event
    assert fixed == dp.SampledWithoutReplacementDpEvent(200, 8, dp.GaussianDpEvent(1.0))


def test_the_event_of_votes_counts_votes():
    assert VOTES.event(2) == dp.SelfComposedDpEvent(IntegerNoiseDpEvent(VOTES.noise, 8, sensitivity=8), 2)
    assert of_votes(adjacency="replace-one").event(1).event == IntegerNoiseDpEvent(VOTES.noise, 8, sensitivity=16)
    shares = of_votes(noise=DiscreteGaussianNoise(2.0, 200))
    assert shares.event(3) == dp.SelfComposedDpEvent(IntegerNoiseDpEvent(shares.noise, 8, 8), 3)
    assert of_votes(noise=GaussianNoise(11.3)).event() == SITES.event()
    assert VOTES.with_noise(0.0).event() == dp.NonPrivateDpEvent()


def test_a_batch_of_everybody_gains_nothing_from_sampling():
    for sampler in (PoissonSampling(1.0), FixedSizeSampling(200, 200), FullParticipation()):
        assert isinstance(of_records(sampler=sampler).event(1).event, dp.GaussianDpEvent)


def test_batch_clipping_with_a_record_replaced_counts_without_sampling():
    # Known bounds are for sums, where the rest of the sample cancels.
    clipped = of_records(clipping=BatchClipping(1.0))
    assert isinstance(clipped.event(1).event, dp.PoissonSampledDpEvent)
    assert replace(clipped, adjacency="replace-one").event(1).event == dp.GaussianDpEvent(1.0)


def test_no_steps_cost_nothing_and_no_noise_protects_nobody():
    assert RECORDS.epsilon(0).value == 0
    for accountant in ("rdp", "pld", "best"):
        assert RECORDS.with_noise(0.0).epsilon(accountant=accountant).value == math.inf


def test_adaptive_clipping_is_accounted_as_one_gaussian():
    # Andrew et al. 2021, and the example worked out for 1250 sites: z = 34.01 needs 35.3 norms on the sum.
    std = ADAPTIVE.split(34.01)
    assert std == pytest.approx(35.3, abs=0.05)
    plan = of_sites(clipping=ADAPTIVE, noise=GaussianNoise(std))
    assert plan.noise_multiplier == pytest.approx(34.01)
    assert replace(plan, adjacency="replace-one").noise_multiplier == pytest.approx(34.01 / 2)
    assert ADAPTIVE.multiplier(0.0) == ADAPTIVE.split(0.0) == 0.0
    with pytest.raises(PrivacyError, match=r"Make count_noise larger than 62\.5"):
        ADAPTIVE.split(125.0)


def test_calibration_of_an_adaptive_plan_pays_for_the_count_too():
    plan = of_sites(clipping=ADAPTIVE).calibrated(1.0)
    assert plan.epsilon().value == pytest.approx(1.0, rel=1e-4)
    assert plan.noise.std > plan.noise_multiplier
    with pytest.raises(PrivacyError, match="no amount of noise"):
        of_sites(clipping=replace(ADAPTIVE, count_noise=0.5)).calibrated(1.0)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_calibration_inverts(adjacency):
    """With sampling it does too: see test_calibration."""
    plan = of_records(sampler=FullParticipation(), adjacency=adjacency).calibrated(3.0)
    assert 3.0 * (1 - 5e-4) < plan.epsilon().value <= 3.0 * (1 + 1e-4)
    assert plan == of_records(sampler=FullParticipation(), adjacency=adjacency, noise=plan.noise)


@pytest.mark.parametrize("noise", [SkellamNoise(0.0), DiscreteGaussianNoise(0.0), DiscreteGaussianNoise(0.0, 100)])
def test_calibration_inverts_for_votes(noise):
    plan = of_votes(noise=noise).calibrated(1.29)
    assert 1.29 * (1 - 1e-4) < plan.epsilon().value <= 1.29
    assert plan == of_votes(noise=plan.noise)


def test_calibration_keeps_shares_large_enough():
    plan = of_votes(noise=DiscreteGaussianNoise(0.0, 1250)).calibrated(7.58)
    assert plan.noise.std * 8 / math.sqrt(1250) == pytest.approx(1.0)
    assert plan.epsilon().value < 7.58


def test_infinite_epsilon_needs_no_noise():
    assert RECORDS.calibrated(math.inf).noise.std == 0
    assert of_votes(noise=DiscreteGaussianNoise(1.0)).calibrated(math.inf).noise.std == 0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RECORDS.calibrated(0.0), "ε = 0.0. Ask for a positive ε"),
        (lambda: RECORDS.calibrated(-1.0), "ε = -1.0. Ask for a positive ε"),
        (lambda: RECORDS.calibrated(math.nan), "ε = nan. Ask for a positive ε"),
        (lambda: of_records(delta=0.0), "δ = 0.0. δ lies between 0 and 1"),
        (lambda: of_records(delta=1.0), "δ = 1.0. δ lies between 0 and 1"),
        (lambda: PoissonSampling(1.01), "sampling rate = 1.01. A sampling rate is a probability"),
        (lambda: PoissonSampling(0.0), "sampling rate = 0.0. A sampling rate is a probability"),
        (lambda: FixedSizeSampling(9, 8), "the data set is smaller than the batch: 8 units, batch 9. Make"),
        (lambda: FixedSizeSampling(0, 8), "batch = 0. A batch holds at least 1"),
        (lambda: OncePerTree(0), "batch = 0. A batch holds at least 1"),
        (lambda: ExampleClipping(0.0), "clipping norm = 0.0. Give a positive number"),
        (lambda: SiteClipping(math.inf), "clipping norm = inf. Give a positive number"),
        (lambda: BatchClipping(1.0, 0), "groups = 0. There is at least 1"),
        (lambda: GaussianNoise(-1.0), "the noise multiplier is -1.0. Give a finite number"),
        (lambda: GaussianNoise(math.nan), "the noise multiplier is nan. Give a finite number"),
        (lambda: TreeNoise(1.0, 0), "restart_every = 0. A tree spans at least 1"),
        (lambda: replace(ADAPTIVE, quantile=1.5), "quantile = 1.5. A quantile lies in"),
        (lambda: replace(ADAPTIVE, learning_rate=0.0), "learning_rate = 0.0. Give a positive"),
        (lambda: replace(ADAPTIVE, count_noise=0.0), "count_noise = 0.0. Give a positive"),
        (lambda: of_records(steps=0), "steps = 0. Give a whole number"),
        (lambda: of_records(steps=2.5), "steps = 2.5. Give a whole number"),
        (lambda: of_records(unit="user"), "unit = 'user' is unknown. Use 'record' or 'site'"),
        (lambda: of_records(adjacency="swap"), "adjacency = 'swap' is unknown. Use 'zero-out'"),
        (lambda: of_records(adjacency="add-remove"), "Use 'zero-out', which was called add-remove before"),
        (lambda: of_records(unit="site"), "example clipping does not bound the influence of a site. Clip whole"),
        (lambda: of_sites(unit="record"), "site clipping does not bound the influence of a record. Clip examples"),
        (
            lambda: of_records(noise=TreeNoise(1.0, 4)),
            "ε of tree noise is not known with the sampler 'poisson'. Choose one of these: full, once-per-tree",
        ),
        (
            lambda: of_sites(noise=TreeNoise(1.0, 4), clipping=ADAPTIVE),
            "ε of tree noise is not known with the clipping 'adaptive-site'",
        ),
        (lambda: of_sites(sampler=OncePerTree(4)), "ε of gaussian noise is not known with the sampler 'once-per-tree'"),
        (lambda: of_records(clipping=BatchClipping(1.0)).calibrated(2.0), "what clipping does not give. Clip each"),
        (lambda: VoteLimit(0), "at most 0 votes a site. Give a whole number"),
        (lambda: VoteLimit(1.5), "at most 1.5 votes a site. Give a whole number"),
        (lambda: SkellamNoise(-1.0), "the noise multiplier is -1.0. Give a finite number"),
        (lambda: DiscreteGaussianNoise(1.0, 0), "discrete Gaussian noise of 0 sites. Give a whole number"),
        (lambda: of_votes(unit="record"), "votes clipping does not bound the influence of a record"),
        (
            lambda: of_sites(noise=SkellamNoise(1.0)),
            "ε of skellam noise is not known with the clipping 'site'. Choose one of these: votes",
        ),
        (
            lambda: of_votes(sampler=PoissonSampling(0.5)),
            "ε of skellam noise is not known with the sampler 'poisson'. Choose one of these: full",
        ),
        (lambda: of_votes(noise=TreeNoise(1.0, 4)), "ε of tree noise is not known with the clipping 'votes'"),
        (
            lambda: of_votes(noise=BandedNoise(1.0, 4), sampler=MinSeparation(8, 4)),
            "ε of banded noise is not known with the clipping 'votes'",
        ),
        (lambda: of_votes(noise=DiscreteGaussianNoise(2.31, 1250)), "noise of 0.523 votes, whose sum is too little"),
        (lambda: of_votes(noise=DiscreteGaussianNoise(2.31, 1250)), "Use Skellam noise, whose shares may be as small"),
        (lambda: VOTES.epsilon(accountant="exact"), "no closed form for integer noise. Use the accountant 'rdp'"),
        (lambda: VOTES.epsilon(accountant="pld"), "does not support such a release. Use another accountant"),
        (lambda: RECORDS.epsilon(accountant="moments"), "accountant 'moments' is unknown"),
        (lambda: RECORDS.epsilon(accountant="exact"), "no closed form for sampled steps. Use the accountant 'pld'"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_change(make, told):
    with pytest.raises(PrivacyError) as refused:
        make()
    assert told in str(refused.value)


PLANS = [
    RECORDS,
    SITES,
    of_records(sampler=FIXED, clipping=BatchClipping(2.0, 2), adjacency="replace-one"),
    of_sites(clipping=ADAPTIVE),
    of_sites(sampler=OncePerTree(4), noise=TreeNoise(1.0, 4, honaker=False)),
    VOTES,
    of_votes(noise=DiscreteGaussianNoise(11.3, 1250)),
    of_votes(noise=GaussianNoise(2.31)),
]


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_survives_json(plan):
    again = PrivacyPlan.from_json(plan.to_json())
    assert again == plan


def test_every_field_is_in_the_json():
    changes = [
        {"adjacency": "replace-one"},
        {"sampler": PoissonSampling(0.041)},
        {"clipping": ExampleClipping(1.6)},
        {"clipping": ExampleClipping(1.5, 2)},
        {"clipping": BatchClipping(1.5)},
        {"noise": GaussianNoise(2.1)},
        {"steps": 51},
        {"delta": 1e-6},
    ]
    assert {name for change in changes for name in change} | {"unit"} == {field.name for field in fields(PrivacyPlan)}
    texts = [RECORDS.to_json(), SITES.to_json(), *(of_records(**change).to_json() for change in changes)]
    assert len(set(texts)) == len(texts)


def test_a_plan_is_frozen():
    with pytest.raises(FrozenInstanceError):
        RECORDS.delta = 0.1


@pytest.mark.parametrize("text", ["", "[]", "{}", '"plan"', RECORDS.to_json().replace('"rate"', '"speed"')])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(PrivacyError, match="not a privacy plan"):
        PrivacyPlan.from_json(text)


def test_an_unknown_part_is_named():
    data = json.loads(RECORDS.to_json())
    data["sampler"]["kind"] = "poison"
    with pytest.raises(PrivacyError, match=r"'poison' is unknown in a privacy plan\. Did you mean 'poisson'"):
        PrivacyPlan.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (
            RECORDS,
            "record-level, zero-out; Poisson sampling at rate 0.04; each example's gradient clipped to 1.5; "
            "Gaussian noise 2 norms; 50 steps; δ = 1e-05",
        ),
        (
            PLANS[2],
            "record-level, replace-one; 8 of 200 without replacement; each batch's gradient clipped to 2 in each of 2 "
            "groups of tensors; Gaussian noise 2 norms; 50 steps; δ = 1e-05",
        ),
        (
            PLANS[3],
            "site-level, zero-out; every unit in every step; each site's update clipped to the 0.5-quantile of norms "
            "(from 0.1, count noise 62.5); Gaussian noise 11.3 norms; 11 steps; δ = 3e-06",
        ),
        (
            PLANS[4],
            "site-level, zero-out; 4 a step, each at most once a tree; each site's update clipped to 0.5; "
            "tree noise 1 norms a node, restarted every 4 steps; 11 steps; δ = 3e-06",
        ),
        (
            VOTES,
            "site-level, zero-out; every unit in every step; at most 8 votes a site; Skellam noise 11.3 norms; "
            "11 steps; δ = 3e-06",
        ),
        (
            PLANS[6],
            "site-level, zero-out; every unit in every step; at most 8 votes a site; discrete Gaussian noise 11.3 "
            "norms in 1250 shares; 11 steps; δ = 3e-06",
        ),
    ],
)
def test_people_get_one_line(plan, told):
    assert plan.describe() == told


def test_the_divisor_is_the_expected_batch():
    assert PoissonSampling(0.04).expected(200) == pytest.approx(8)
    assert FIXED.expected(200) == OncePerTree(8).expected(200) == 8
    assert FullParticipation().expected(200) == 200


@pytest.mark.parametrize(
    ("plan", "records", "whom"),
    [
        (of_records(delta=0.02), [49, 20], None),
        (of_records(delta=0.02), [49, 50], "one record of a site"),
        (of_sites(delta=0.2), [1000] * 4, None),
        (of_sites(delta=0.2), [1] * 5, "one site"),
    ],
)
def test_a_delta_of_no_use_is_told(plan, records, whom):
    told = plan.caveat(records)
    assert (told is None) == (whom is None)
    assert whom is None or f"is of no use: to publish {whom}, picked at random, would keep" in told
