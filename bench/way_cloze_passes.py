"""Way (p): the plain passes that annotation takes, as an application that uses PEFT writes them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from peft import set_peft_model_state_dict
from peft_site import build, start
from work import ClozeWork, finish, gpu_peak, timing


def main(work: ClozeWork, out: str, way: str) -> None:
    peft = build(work)
    set_peft_model_state_dict(peft, start(peft))
    model, cloze, seconds = peft.eval().get_base_model(), work.cloze(), list[float]()
    items = [item for text in cloze.tokenise_all(work.all_texts()) for item in text]
    rows = [item.ids[:-1] for item in items]  # the last token of a row predicts the word at the blank
    for some in (rows[:32], rows):
        with timing(seconds):
            logits = passes(work, model, some, cloze.tokens)
    per_label = logits @ torch.tensor(cloze.weights).T
    together = per_label.view(work.texts, len(work.patterns), -1).mean(1)
    finish(out, {"labels": together.softmax(1)}, seconds, gpu_peak(work))


@torch.inference_mode()
def passes(work: ClozeWork, model: Any, rows: Sequence[list[int]], tokens: list[int]) -> torch.Tensor:
    """Logits of a few tokens after each row, float32 [rows, tokens] on the CPU."""
    found = torch.empty(len(rows), len(tokens), device=work.device)
    for group in groups(rows, 2 * work.tokens_per_pass):
        ends = torch.tensor([len(rows[i]) for i in group], device=work.device) - 1
        ids = torch.zeros(len(group), len(rows[group[0]]), dtype=torch.long)
        for place, i in enumerate(group):
            ids[place, : len(rows[i])] = torch.tensor(rows[i])
        # Without a mask: a causal row never looks at the padding to its right, and attention is faster.
        hidden = model.model(input_ids=ids.to(work.device), use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[torch.arange(len(group), device=work.device), ends])
        found[torch.tensor(group, device=work.device)] = logits[:, tokens].float()
    return found.cpu()


def groups(rows: Sequence[list[int]], tokens: int) -> Iterator[list[int]]:
    """Indices of rows that go through together, longest first: at most ``tokens`` padded tokens."""
    group: list[int] = []
    for index in sorted(range(len(rows)), key=lambda index: -len(rows[index])):
        if group and len(rows[group[0]]) * (len(group) + 1) > tokens:
            yield group
            group = []
        group.append(index)
    yield group


if __name__ == "__main__":
    main(ClozeWork.read(sys.argv[1]), *sys.argv[2:])
