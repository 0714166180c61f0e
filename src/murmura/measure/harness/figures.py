"""The catalogue's entries for tasks of lm-evaluation-harness, which are not known in advance: a key says it all."""

from __future__ import annotations

from murmura.measure.figure import SHARE, UNKNOWN, Figure

PREFIX = "lm_eval."
LOWER = ("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "brier_score", "ter", "wer")
SHARES = (
    *("acc", "acc_norm", "acc_mutual_info", "acc_bytes", "exact_match", "em", "f1", "mc1", "mc2"),
    *("prompt_level_strict_acc", "inst_level_strict_acc", "prompt_level_loose_acc", "inst_level_loose_acc"),
)
_HIGHER = (*SHARES, "mcc", "bleu", "rouge1", "rouge2", "rougeL")
_MEANINGS = {
    "acc": "the share of questions for which the model finds the right option the likeliest",
    "acc_norm": "the share of questions for which the model finds the right option the likeliest, per character",
    "exact_match": "the share of questions to which the model writes the right answer",
    "f1": "how far answers agree with the right ones, between precision and recall",
    "word_perplexity": "how surprising the model finds a word of the texts",
    "byte_perplexity": "how surprising the model finds a byte of the texts",
    "bits_per_byte": "in how many bits the model could write down a byte of the texts",
}


def key(task: str, metric: str) -> str:
    """In the rows of ``metrics.jsonl``.

    Args:
        task: its name in the harness, a group's likewise.
        metric: as the harness has it: ``acc,none``, or with a filter ``exact_match,strict-match``.
    """
    return f"{PREFIX}{task}.{metric.removesuffix(',none')}"


def harness_figure(key: str) -> Figure | None:
    """The figure of such a key; None for any other."""
    task, dot, metric = key.removeprefix(PREFIX).rpartition(".")
    if not key.startswith(PREFIX) or not dot:
        return None
    name, _, filtered = metric.partition(",")
    said = name + (f", {filtered}" if filtered else "")
    meaning = _MEANINGS.get(name, f"the metric {name}, as its authors have it")
    return Figure(
        key=key,
        title=f"{task} ({said})",
        short=f"{task}\n({said})",
        unit=SHARE if name in SHARES else UNKNOWN,
        meaning=f"The task {task} of lm-evaluation-harness (Gao et al. 2023): {meaning}"
        + (f"; answers are read by its filter {filtered}" if filtered else "")
        + ". A group is the mean over all questions of its tasks. The small print gives a 95 % interval: Wilson’s with "
        "the number of questions (n), where each is right or wrong, else Student’s t of what each gives (of few "
        "shares, as wide as Wilson’s at least).",
        better="lower" if name in LOWER else "higher" if name in _HIGHER else "",
        column="measured",
        line=True,
    )
