"""Record-level differential privacy: the gradient of a step, clipped and noised as a plan says (DP-SGD, Abadi 2016).

A record's loss is the mean over its own tokens, so that what bounds its influence does not depend on its neighbours.
Noise, and the samples wherever there is noise, come from a secret source and never from the run's seed: whoever knows
them can undo them.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from murmura.errors import PrivacyError
from murmura.precision import in_bfloat16, with_float64
from murmura.privacy.entropy import Entropy
from murmura.privacy.ledger import Spent
from murmura.privacy.observation import Observation, length, noised
from murmura.privacy.plan import PrivacyPlan
from murmura.streams import Stream
from murmura.training.bank import BufferEntry, Factor
from murmura.training.by_example import by_example
from murmura.training.config import LocalTraining
from murmura.training.step import Chosen, Rows, Step

_MARGIN, _COARSE_MARGIN = 1e-5, 2.0**-5
"""By what share clipped gradients stay below C, where the model computes in float32 and in anything coarser. Where
records share a pass, that decides how their gradients are rounded, so one record less moves the others too:
docs/privacy.md says by how much. Clipping itself takes 26u = 1.6·10⁻⁶ of it at most, u = 2⁻²⁴: norms of rows are too
small by 17u at most (``_BLOCK``); that they become float32 (u), the norm of A's and B's together (2u), C less a share
(3u), two divisions and the product with the gradient (u each) are 9u more."""
_BLOCK = 32
"""Of how many numbers of a gradient the squares add up in float32: such sums add up in float64. In whatever order a
device adds up 32 squares, each is rounded 32 times at most, and then their root: it is too small by 17u at most. Were
a million added up in float32, it could be by more than the margin. (A square below 2⁻¹²⁶ may count as none: of 2²⁶
numbers less than u where C is above 10⁻¹¹.)"""


@dataclass(frozen=True)
class Private:
    """What protects each slot's records, and where its secret randomness comes from.

    Args:
        plans: one a slot: record-level, examples or batches clipped, Gaussian noise. Rates, norms and noise may differ.
        entropy: one a slot.

    Raises:
        PrivacyError: a plan is for something else than local training.
    """

    plans: Sequence[PrivacyPlan]
    entropy: Sequence[Entropy]

    def __post_init__(self) -> None:
        if len(self.plans) != len(self.entropy):
            raise PrivacyError(f"{len(self.plans)} plans for {len(self.entropy)} sources of randomness")
        for plan in self.plans:
            if plan.unit != "record" or plan.clipping.kind not in ("example", "batch"):
                raise PrivacyError("local training protects records, not whole sites", fix="Noise the sites' updates.")
            if plan.noise.kind != "gaussian":
                raise PrivacyError(f"local training has no {plan.noise.kind} noise", fix="Use Gaussian noise.")
            if plan.clipping.groups > 2:
                fix = "2 are all A's and all B's."
                raise PrivacyError(f"an adapter has no {plan.clipping.groups} groups of tensors", fix=fix)
        if len({plan.clipping.kind for plan in self.plans}) > 1:
            raise PrivacyError("some sites clip examples, others batches", fix="Train them one after the other.")

    @property
    def clips_examples(self) -> bool:
        return all(plan.clipping.kind == "example" for plan in self.plans)

    def batches(self, slot: int, records: int, training: LocalTraining) -> list[list[int]]:
        """Indices of each step's records, drawn by the plan's sampler; a Poisson batch may be empty.

        There are ``training.max_steps`` steps, or as many as take each record ``training.epochs`` times on average.

        Raises:
            PrivacyError: the plan is for another number of records.
        """
        if not records:
            return []
        sampler, entropy = self.plans[slot].sampler, self.entropy[slot]
        # A rate of 8/200 is not quite that in binary, and makes 25 steps all the same.
        steps = training.max_steps or training.epochs * math.ceil(records / sampler.expected(records) - 1e-9)
        return sampler.batches(records, steps, entropy)


class PrivateStep(Step):
    """A step of DP-SGD for each slot (Abadi et al. 2016, Algorithm 1), or with batch clipping (Liu et al. 2023).

    What a ledger records is written down by the code that clips and noises, with what it saw: lengths are measured on
    what was clipped, and the noise is the difference that adding it made.

    Attributes:
        summed: of each slot the clipped examples of the last step, before noise; None where batches are clipped.
    """

    def __init__(self, *arguments: Any, privacy: Private, frozen: Factor | None) -> None:
        super().__init__(*arguments)
        if self.bank.lora is None:
            what = "record-level privacy needs an adapter: per-example gradients of all parameters do not fit in memory"
            raise PrivacyError(what, fix="Set model.trainable = 'adapter', or protect whole sites.")
        if len(privacy.plans) != len(self.shards):
            raise PrivacyError(f"{len(privacy.plans)} privacy plans for {len(self.shards)} sites")
        self.privacy, self.frozen = privacy, frozen
        self.entries, self.columns = self.bank.trained(frozen), self.bank.columns(frozen)
        clippings, device = [plan.clipping for plan in privacy.plans], self.bank.device
        self._doubles = with_float64(device)
        self._limits = torch.tensor([clipping.norm for clipping in clippings], device=device)
        exact = not in_bfloat16(self.training.precision, device)
        exact = exact and all(parameter.dtype == torch.float32 for parameter in self.bank.model.parameters())
        self._targets = self._limits * (1 - (_MARGIN if exact else _COARSE_MARGIN))
        self._together = torch.tensor([clipping.groups == 1 for clipping in clippings], device=device)
        self._spent: list[list[Spent]] = [[] for _ in privacy.plans]
        self._seen: list[Observation] = []  # of each slot, in this step
        self.summed: torch.Tensor | None = None
        self._masks: dict[int, tuple[int, Stream]] = {}  # slot -> a step, and the source of its dropout masks

    def dropout_stream(self, rows: Rows, row: int, step: int) -> Stream:
        """Where a row's dropout masks come from: from what its record says and a secret of the step.

        Were it the record's place, blanking one record would give others other masks, and the sum would move by more
        than one clipped gradient. Without secret randomness nothing is protected, and masks are those of plain
        training.
        """
        slot = int(rows.slots[row])
        entropy = self.privacy.entropy[slot]
        if not entropy.is_secret:
            return super().dropout_stream(rows, row, step)
        if slot not in self._masks or self._masks[slot][0] != step:
            self._masks[slot] = step, Stream(int.from_bytes(entropy.bytes(32)), ("dropout",))
        said = array("q", rows.items[row].ids).tobytes()
        return self._masks[slot][1] / hashlib.sha256(said).hexdigest()

    def spent(self, slot: int) -> list[Spent]:
        return self._spent[slot]

    def gradients(self, chosen: Chosen, step: int) -> list[float]:
        """Put into ``bank.grad`` each chosen slot's gradient as a plan allows to use it.

        Examples clipped: the noisy sum over the expected batch size. Batches clipped: the clipped mean with its noise.

        Returns:
            For each slot 0 in place of its loss, which is a secret.
        """
        self._seen = [Observation(1, len(chosen.get(slot, ())), len(shard)) for slot, shard in enumerate(self.shards)]
        if self.privacy.clips_examples:
            self.summed = None  # before another is made beside it
            self.summed = self._sum_of_clipped(chosen, step)
        else:
            super().gradients(chosen, step)
            self._clip_sums()
        for slot in chosen:
            self._release(slot)
        return [0.0] * len(self.shards)

    def _sum_of_clipped(self, chosen: Chosen, step: int) -> torch.Tensor:
        """Clip the gradient of each record's mean token loss, and add it to its slot's.

        Returns:
            float64 [slots, P']: in float32 a sum of many records would be rounded by more than the margin, and a record
            less would move it by more than C. On the CPU where the device has no such numbers.
        """
        rows, device, place = self.rows(chosen, step), self.bank.device, self._doubles
        width = self.columns.stop - self.columns.start
        summed = torch.zeros(len(self.shards), width, dtype=torch.float64, device=place)
        factors, losses = self.factors(rows, rows.tokens), torch.zeros(len(self.shards), device=device)

        def loss(group: list[int]) -> torch.Tensor:
            return self.forward(rows, group, factors, step, losses)

        most = self._per_pass(rows)
        for group, gradients in by_example(self.bank, rows.items, rows.slots, loss, most, self.frozen):
            slots = rows.slots[group].to(device)
            flat, norms = self._without_bad(slots, [gradient.flatten(1) for gradient in gradients])
            kept, lengths = self._kept(norms, slots), []
            mine, first = F.one_hot(slots, len(self.shards)).T.to(place).double(), self.columns.start
            for entry, gradient in zip(self.entries, flat, strict=True):
                clipped = (gradient * kept[self._part(entry)][:, None]).to(place).double()
                summed[:, entry.start - first : entry.stop - first].addmm_(mine, clipped)
                lengths.append(torch.linalg.vector_norm(clipped, dim=1))  # in float64, as no norm was that it rests on
            self._see(slots, norms, self._of_parts(lengths))
        return summed

    def _per_pass(self, rows: Rows) -> int:
        """Padded tokens of a pass. Unless somebody says how many, a record that is to be hidden has a pass of its own:
        how far rounding carries from one to the next is for whoever makes up the adapter to choose."""
        asked = self.training.tokens_per_pass
        hidden = any(self.privacy.entropy[slot].is_secret for slot in set(rows.slots.tolist()))
        return 1 if asked == "auto" and hidden else self.bank.per_pass(asked)

    def _without_bad(
        self, slots: torch.Tensor, gradients: list[torch.Tensor]
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Gradients [rows, n], and their norms, with zeros where a row's is not finite: to stop would tell the server
        of one record, and to clip it would leave a NaN in everybody's sum."""
        norms = self._norms(gradients)
        bad = ~norms.isfinite().all(0)
        if not bad.any():
            return gradients, norms
        for slot in slots[bad].tolist():
            self._seen[slot] += Observation(not_finite=1)
        return [gradient.masked_fill(bad[:, None], 0) for gradient in gradients], norms.masked_fill(bad, 0)

    def _part(self, entry: BufferEntry) -> int:
        return 0 if entry.factor == "A" else 1

    def _norms(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """Norms [2, rows] of all A's and of all B's, from gradients [rows, n] of what trains."""
        return self._of_parts([self._norms_of_rows(gradient) for gradient in gradients])

    def _of_parts(self, norms: Sequence[torch.Tensor]) -> torch.Tensor:
        """Norms [2, rows] of all A's and of all B's, from float64 ones [rows] of each tensor that trains."""
        each = torch.stack(list(norms))
        parts = torch.tensor([self._part(entry) for entry in self.entries], device=each.device)
        whole = torch.stack([torch.linalg.vector_norm(each[parts == part], dim=0) for part in (0, 1)])
        return whole.to(self._limits)

    def _norms_of_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Norms [n] of float32 rows [n, numbers], float64: those of blocks, and of the blocks' norms."""
        blocks = rows.shape[1] // _BLOCK
        whole = rows[:, : blocks * _BLOCK].unflatten(1, (blocks, _BLOCK))
        each = torch.cat([torch.linalg.vector_norm(whole, dim=2), rows[:, blocks * _BLOCK :]], dim=1)
        return torch.linalg.vector_norm(each.to(self._doubles).double(), dim=1)

    def _clip_sums(self) -> None:
        """Clip each slot's whole gradient. One that is not finite counts as zero."""
        every = torch.arange(len(self.shards), device=self.bank.device)
        bad = ~self._norms_of_sums().isfinite().all(0)
        self.bank.grad[bad] = 0
        for slot in every[bad].tolist():
            self._seen[slot] += Observation(not_finite=1)
        norms = self._norms_of_sums()
        for part, kept in zip(self._sums(), self._kept(norms, every), strict=True):
            part.mul_(kept[:, None])
        clipped = [[length([row]) for row in part] for part in self._sums()]
        self._see(every, norms, torch.tensor(clipped, device=norms.device))

    def _sums(self) -> list[torch.Tensor]:
        """The slots' gradients of all A's, and of all B's."""
        return [self.bank.grad[:, self.bank.columns(frozen=other)] for other in ("B", "A")]

    def _norms_of_sums(self) -> torch.Tensor:
        """Norms [2, slots] of all A's and of all B's."""
        return torch.stack([self._norms_of_rows(part) for part in self._sums()]).to(self._limits)

    def _kept(self, norms: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """What clipping leaves of A's and B's with these norms [2, n]: ``1 / max(1, norm / C)``, [2, n].

        C is a little less than the plan's, by the margin.
        """
        return 1 / (self._bounded(norms, slots) / self._targets[slots]).clamp(min=1)

    def _bounded(self, norms: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        """Of norms [2, n] of A's and B's, those that are to be within C: of both together, or of each."""
        together = torch.linalg.vector_norm(norms, dim=0, keepdim=True)
        return torch.where(self._together[slots], together, norms)

    def _see(self, slots: torch.Tensor, before: torch.Tensor, after: torch.Tensor) -> None:
        """Note how long contributions [2, n] of these slots were before clipping, and are after it."""
        lengths = [(self._bounded(norms, slots) / self._limits[slots]).amax(0).tolist() for norms in (before, after)]
        for slot, long, clipped in zip(slots.tolist(), *lengths, strict=True):
            self._seen[slot] += Observation(before=long, after=clipped)

    def _release(self, slot: int) -> None:
        """Add the noise, divide, and write down what was done."""
        plan, gradient = self.privacy.plans[slot], self.bank.grad[slot, self.columns]
        norm, std = plan.clipping.norm, plan.noise.std
        summed = gradient.clone() if self.summed is None else self.summed[slot]
        seen = self._seen[slot] + self._whole(slot, summed)
        gradient.copy_(summed)
        if std:
            padding = self.bank.padding(slot)
            real = torch.ones_like(gradient, dtype=torch.bool) if padding is None else ~padding[self.columns]
            exact = {"gradient": summed[real.to(summed.device)]}
            noisy = plan.noise.add(exact, norm, self.privacy.entropy[slot])
            gradient[real] = noisy["gradient"].to(gradient.device)
            seen += noised(exact.values(), noisy.values(), norm)
        if self.privacy.clips_examples:
            gradient.div_(plan.sampler.expected(len(self.shards[slot])))
        self._write_down(slot, Spent(1, plan.sampler, norm, std, observed=seen))

    def _whole(self, slot: int, gradient: torch.Tensor) -> Observation:
        """What was seen of a slot's sum [P'] before it is noised: no k records move it by more than k times C."""
        clipping = self.privacy.plans[slot].clipping
        share = length([gradient]) / (clipping.norm * math.sqrt(clipping.groups))
        if self.privacy.clips_examples:
            share /= max(self._seen[slot].drawn, 1)
        kind = "example" if self.privacy.clips_examples else "batch"
        groups = 1 if self._together[slot] else 2
        return Observation(after=share, is_secret=self.privacy.entropy[slot].is_secret, clipped=((kind, groups),))

    def _write_down(self, slot: int, done: Spent) -> None:
        """One more step; equal steps in a row are one entry."""
        spent = self._spent[slot]
        joined = spent[-1].joined(done) if spent else None
        spent[-1:] = [joined] if joined else [*spent[-1:], done]
