"""The figures of docs/privacy.md that no other command prints.

    python studies/privacy_figures.py rounding    # how far a record's company moves the others' clipped gradients
    python studies/privacy_figures.py canaries    # the largest ε that so many canaries can show
    python studies/privacy_figures.py sums        # noise in sums of updates: trees, banded noise, fresh noise
    python studies/privacy_figures.py centres     # what noise leaves of the centres of clusters

Each takes less than a minute on two cores; nothing is downloaded, and no data is needed.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from murmura.methods.dpftrl.config import Banded, DPFTRLConfig, Tree
from murmura.methods.dpftrl.method import plan as sums_plan
from murmura.privacy.clipping import ExampleClipping
from murmura.privacy.entropy import Entropy, SeededEntropy
from murmura.privacy.lower_bound import audited
from murmura.privacy.mechanisms.gaussian import GaussianNoise
from murmura.privacy.mechanisms.noise import Noise
from murmura.privacy.plan import PrivacyPlan
from murmura.privacy.samplers import FixedSizeSampling
from murmura.retrieval.noisy import noisy_centres, plan_of
from murmura.streams import Stream
from murmura.training.bank import Bank
from murmura.training.config import LocalTraining, LoraSpec
from murmura.training.private import Private, PrivateStep
from murmura.units import at_least
from runs import pipes

# ---- rounding --------------------------------------------------------------------------------------------------------

_NORM = 0.01  # C; every gradient is longer
_TOKENS = (100, 1_000, 100_000)  # training.tokens_per_pass


@dataclass(frozen=True)
class Item:
    """A tokenised record."""

    ids: list[int]
    labels: list[int]


def rounding(sizes: Sequence[int] = (2, 8, 32), seeds: int = 5, longest: int = 64) -> str:
    """What one record less moves a sum by, besides its own clipped gradient: the largest of all sizes and seeds, and
    of any two ways in which records share passes."""
    lines = []
    torch.manual_seed(0)
    shape = {"vocab_size": 500, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 512}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=True)).eval()
    bank = Bank(model, LoraSpec(rank=4, alpha=8))
    for precision in ("float32", "bfloat16"):
        others, whole = 0.0, 0.0
        for size, seed in itertools.product(sizes, range(seeds)):
            records = _records(size, seed, longest)
            alone = _sum_of_clipped(bank, records[:1], precision, seed, _TOKENS[0])
            full, rest = (
                [_sum_of_clipped(bank, kept, precision, seed, tokens) for tokens in _TOKENS]
                for kept in (records, records[1:])
            )
            for one, other in itertools.product(full, rest):
                others = max(others, float((one - other - alone).norm()) / _NORM)
                whole = max(whole, float((one - other).norm() / alone.norm()))
        lines.append([precision, f"{others:.1e}", f"{whole:.6f}"])
    return pipes(
        ["the model computes in", "others move together by, in C", "the whole sum, had it no margin, by, in C"], lines
    )


def _records(count: int, seed: int, longest: int) -> list[Item]:
    """Of 6 tokens to ``longest``, the second half of which is to be predicted."""
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        ids = [rng.randrange(10, 250) for _ in range(rng.randint(6, longest))]
        half = len(ids) // 2
        made.append(Item(ids, [-100] * half + ids[half:]))
    return made


def _sum_of_clipped(bank: Bank, records: Sequence[Item], precision: str, seed: int, tokens: int) -> torch.Tensor:
    """Float64 [P]: as training adds it up, before noise."""
    training = LocalTraining(optimizer="sgd", precision=precision, tokens_per_pass=tokens)
    one = FixedSizeSampling(1, len(records))  # sums are divided by 1
    plan = PrivacyPlan("record", "replace-one", one, ExampleClipping(_NORM), GaussianNoise(0.0), 1, 1e-5)
    generator = torch.Generator().manual_seed(seed)
    start = {name: 0.1 * torch.randn(t.shape, generator=generator) for name, t in bank.initial(Stream(seed)).items()}
    bank.load([start])
    privacy = Private([plan], [SeededEntropy(Stream(seed))])
    with bank.trainable(None):
        step = PrivateStep(bank, [list(records)], training, [Stream(seed)], None, privacy=privacy, frozen=None)
        step.gradients({0: list(range(len(records)))}, 0)
    assert step.summed is not None
    return step.summed[0].clone()


# ---- canaries --------------------------------------------------------------------------------------------------------


def canaries(counts: Sequence[int] = (8, 100, 1_000, 10_000), delta: float = 1e-5) -> str:
    """The least ε, with 95 % confidence, had all coins been guessed right."""
    lines = []
    for count in counts:
        shown = [audited([1.0] * count, [1] * count, delta, kind).epsilon for kind in ("replace-one", "zero-out")]
        lines.append([f"{count:,}", *(at_least(epsilon, 2) for epsilon in shown)])
    return pipes(["canaries", "a record exchanged", "a record blanked"], lines, words=())


# ---- sums ------------------------------------------------------------------------------------------------------------


class Unit(Entropy):
    """The k-th draw is the k-th unit vector: sums then show how much of each draw is in them."""

    def __init__(self) -> None:
        self.drawn = 0

    def bytes(self, count: int) -> bytes:
        raise AssertionError("only normals are drawn")

    def normal(self, count: int) -> torch.Tensor:
        self.drawn += 1
        return torch.eye(count)[self.drawn - 1]


def sums(
    settings: Sequence[tuple[int, int, int]] = ((100, 10, 100), (100, 10, 300), (1_000, 10, 100), (1_000, 50, 200)),
    epsilon: float = 8.0,
    delta: float = 1e-5,
) -> str:
    """The noise in the sum of all updates so far, of all rounds since the first, at one ε: root mean square over the
    rounds, and after the last one."""
    lines = []
    for sites, each, rounds in settings:
        for name, options in _noises(sites // each):
            config = DPFTRLConfig(rounds=rounds, epsilon=epsilon, delta=delta, sites_per_round=each, **options)
            noise = sums_plan(config, sites).noise
            found = _variances(noise, rounds)
            mean, last = (sum(found) / rounds) ** 0.5, found[-1] ** 0.5
            lines.append([f"{sites:,}, {each}, {rounds}", name, *(f"{one:.2f}" for one in (noise.std, mean, last))])
    head = ["sites, a round, rounds", "noise", "of a draw, in C", "in all sums, in C", "in the last sum, in C"]
    return pipes(head, lines, words=(0, 1))


def _noises(epoch: int) -> list[tuple[str, dict[str, object]]]:
    """By name the options of each noise, where a site's turn comes every ``epoch`` rounds."""
    bands = sorted({2, epoch // 4, epoch // 2, epoch} - {0, 1})
    return [
        ("fresh in each round", {"noise": Banded(kind="banded", bands=1)}),
        (f"trees of {epoch} rounds", {"noise": Tree(honaker=False)}),
        (f"trees of {epoch} rounds, Honaker", {}),
        *((f"{count} bands", {"noise": Banded(kind="banded", bands=count)}) for count in bands),
    ]


def _variances(noise: Noise, rounds: int) -> list[float]:
    """Of one weight of the sum after each round, in squared norms: from the code that makes the sums."""
    entropy, nothing = Unit(), {"sum": torch.zeros(2 * rounds)}
    made, span = noise.prefix_sums(1.0, entropy), noise.parameters().get("restart_every", rounds)
    done, last, found = torch.zeros(2 * rounds), torch.zeros(2 * rounds), []
    for round in range(rounds):
        if round and round % span == 0:
            done = done + last  # the model goes on from what the tree before has come to
        last = made.add(nothing)["sum"]
        found.append(float((done + last).square().sum()))
    return found


# ---- centres ---------------------------------------------------------------------------------------------------------

_APART = 1.2  # standard deviation of a vector around its centre, over all dimensions: means then have a length of 0.64


def centres(
    epsilons: Sequence[float] = (2.0, 8.0),
    each: Sequence[int] = (5, 50, 500, 5_000),
    clusters: int = 10,
    dimension: int = 384,
    iterations: int = 3,
    delta: float = 1e-5,
    seeds: int = 3,
) -> str:
    """The mean cosine of noisy centres with the means of the same clusters, where k-means starts next to these."""
    lines = []
    for epsilon in epsilons:
        plan = plan_of(1.0, iterations, 1, delta).calibrated(epsilon)
        found = [
            np.mean([_kept(count, clusters, dimension, iterations, plan, seed) for seed in range(seeds)])
            for count in each
        ]
        lines.append([f"{epsilon:g}", f"{plan.noise.std:.3g}", *(f"{one:.2f}" for one in found)])
    return pipes(["ε", "noise", *(f"{count:,} records in a cluster" for count in each)], lines, words=())


def _kept(each: int, clusters: int, dimension: int, iterations: int, plan: PrivacyPlan, seed: int) -> float:
    """The mean cosine, for random clusters of so many vectors each."""
    draw = np.random.default_rng(seed)
    middles = draw.normal(size=(clusters, dimension))
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    vectors = np.repeat(middles, each, axis=0)
    vectors += draw.normal(size=vectors.shape) * _APART / dimension**0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    means = vectors.reshape(clusters, each, dimension).mean(axis=1)
    entropy = SeededEntropy(Stream(seed))
    points = noisy_centres(vectors, middles, iterations, plan, entropy).points
    lengths = np.linalg.norm(points, axis=1) * np.linalg.norm(means, axis=1)
    return float(((points * means).sum(axis=1) / lengths).mean())


FIGURES: dict[str, Callable[[], str]] = {"rounding": rounding, "canaries": canaries, "sums": sums, "centres": centres}


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", metavar="|".join(FIGURES), help="which figures; all if not given")
    which = parser.parse_args().which or list(FIGURES)
    if unknown := [name for name in which if name not in FIGURES]:
        parser.error(f"{unknown[0]} is unknown; take {', '.join(FIGURES)}")
    print("\n".join(FIGURES[name]() for name in which))


if __name__ == "__main__":
    main()
