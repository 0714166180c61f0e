"""The attack on noise as floats (Mironov 2012): which sums can have become what was released, digit by digit."""

import torch

from murmura.privacy.entropy import Entropy, OSEntropy
from tests.training.helpers import Told

_NEIGHBOURS = 3  # normals to each side of the one that was needed


class After(Entropy):
    """Some draws that everybody knows, then those of another source."""

    def __init__(self, known, source):
        self._known, self._source = list(known), source

    def bytes(self, count):
        return self._source.bytes(count)

    def normal(self, count):
        return self._known.pop(0) if self._known else self._source.normal(count)


def contradictions(release, published, noise):
    """At how many numbers no normal that can be drawn makes what was published.

    Args:
        release: publishes the hypothesised sum with the normals of an entropy, as one tensor.
        published: by another call of the same code.
        noise: [n]; how many standard deviations are between what was published and the hypothesis.
    """
    kind = OSEntropy().normal(1).dtype
    up = down = noise.to(kind)
    found = release(Told(up)) == published
    for _ in range(_NEIGHBOURS):
        up, down = (torch.nextafter(one, torch.full_like(one, to)) for one, to in ((up, 40.0), (down, -40.0)))
        found |= (release(Told(up)) == published) | (release(Told(down)) == published)
    return int((~found).sum())


def given_away(release, sums, std, divisor=1, known=0.0):
    """How many numbers of a release rule out each of these sums for certain; the first is the true one.

    Args:
        release: of a sum, with the normals of an entropy; both are tensors [n].
        sums: hypotheses, [n] each.
        std: of the noise.
        divisor: a power of two, by which the noisy sum is divided.
        known: noise beside that, which everybody knows.
    """
    published = release(sums[0], OSEntropy())
    noisy = published.double() * divisor
    return [
        contradictions(lambda told, sum=sum: release(sum, told), published, (noisy - sum.double() - known) / std)
        for sum in sums
    ]


def of_sites(numbers=5000, sites=5, norm=0.1, seed=0):
    """The sum of sites' updates of length ``norm``, float64 [numbers]; and the same without the first site."""
    generator = torch.Generator().manual_seed(seed)
    updates = torch.randn(sites, numbers, generator=generator)
    updates = (norm * updates / updates.norm(dim=1, keepdim=True)).double()
    return updates.sum(0), updates[1:].sum(0)
