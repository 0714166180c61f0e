"""Every figure that a run measures, described once.

The server's line, the table, the page with its pictures, Markdown and studies read it here: a new figure is one entry.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial

from murmura.measure.benchmarks import BENCHMARKS
from murmura.measure.figure import (
    AUC,
    BITS,
    BYTES,
    COINS,
    DIFFERENCE,
    EPSILON,
    LEAST_EPSILON,
    NATS,
    SECONDS,
    SHARE,
    TEXTS,
    TOKENS,
    Drawn,
    Figure,
)
from murmura.measure.harness.figures import harness_figure

READS: Mapping[str, str] = {
    "error zone": "the tokens that the model still gets wrong, and how much likelier it finds them",
    "loss difference": "how much likelier it finds a record on the whole",
    "window votes": "in how many stretches of tokens it finds a record likelier",
    "plain loss": "how likely the model alone finds a record",
}
"""What attacks (``measure.attacks``) go by, in words; likelier than the model before training does."""

_attack = partial(Figure, better="lower", of_members=True)
_share = partial(Figure, unit=SHARE, better="higher")
_answer = partial(Figure, kind="instruction")
_total = partial(Figure, column="always", total=True)

CATALOGUE: tuple[Figure, ...] = (
    Figure(key="train_loss", title="Training loss", short="training\nloss", unit=NATS, better="lower", line=True),
    Figure(
        key="heldout_loss",
        title="Held-out loss",
        short="held-out\nloss",
        unit=NATS,
        meaning="How badly the model predicts good answers to questions that no site trained on (mean over the "
        "tokens of all answers, in nats). Where these answers repeat, as labels do, the small print says what guessing "
        "comes to, which is to know how often each whole answer occurs, and nothing of the question.",
        of={
            "labelled": (
                "a classifier",
                "How improbable the model finds the right labels of texts that no site trained on (mean of "
                "−log p(label) over the texts, in nats). Guessing, in the small print, is to know how often each label "
                "occurs, and nothing of the text.",
            ),
            "document": (
                "documents",
                "How badly the model predicts texts that no site trained on, token by token (mean in nats per token).",
            ),
            "preference": (
                "preferences",
                "How little the model tells preferred answers from others as people do, in pairs that no site trained "
                "on (mean DPO loss over the pairs, in nats): 0.693 where training began.",
            ),
        },
        better="lower",
        column="always",
        line=True,
        drawn=Drawn("loss (nats {per})"),
    ),
    Figure(
        key="heldout_fall",
        title="Fall of the held-out loss",
        short="fall of\nthe loss",
        unit=NATS,
        meaning="By how much the held-out loss is lower than before training, in nats per token. The same records tell "
        "both, and the interval is over them: it says whether this model is better on such records, and not what "
        "another seed would have made.",
        better="higher",
        column="measured",
    ),
    _share(
        key="heldout_rouge",
        title="Held-out ROUGE-L",
        short="held-out\nROUGE-L",
        kind="instruction",
        meaning="How much of the wording of the model's own answers agrees, in order, with the reference answers to "
        "those same questions: 0 is nothing, 1 is word for word. Asked are the first evaluation.sample of them, and an "
        "answer is cut at its reference's length. With few, a change by a few hundredths may be chance.",
        column="always",
        line=True,
        drawn=Drawn("ROUGE-L (0 to 1)"),
    ),
    _share(
        key="heldout_f1",
        title="Held-out F1 of words",
        short="held-out\nF1",
        kind="instruction",
        meaning="How many words the model's own answers have in common with the reference answers, in whatever order, "
        "without case, punctuation and articles (token F1 as in SQuAD): 0 is none, 1 is all.",
    ),
    _share(
        key="heldout_accuracy",
        title="Next-token accuracy",
        short="next-token\naccuracy",
        kind="document",
        meaning="Of the tokens of texts that no site trained on, the share that the model finds the likeliest of all "
        "after those before them: 0 is none, 1 is all.",
        column="always",
        line=True,
        drawn=Drawn("accuracy (0 to 1)", shows="next tokens"),
    ),
    _share(
        key="preference_accuracy",
        title="Preferred answers found",
        short="preferred\nanswers",
        kind="preference",
        meaning="Of pairs that no site trained on, the share in which training has made the preferred answer likelier "
        "by more than the other (its implicit reward in DPO is larger; a tie counts half). Guessing is 0.5.",
        column="always",
        line=True,
        drawn=Drawn("share (0 to 1)", shows="held-out pairs", level=0.5),
    ),
    _share(
        key="accuracy",
        title="Accuracy",
        short="accuracy",
        kind="labelled",
        meaning="How many of the held-out texts, which no site trained on, get the right label: 0 is none, 1 is all. "
        "The small print gives the number of texts (n) and a 95 % interval (Wilson's); accuracies whose intervals "
        "overlap widely cannot be told apart by so few texts. Guessing is always to give the label that most have.",
        column="always",
        line=True,
        drawn=Drawn("accuracy (0 to 1)", shows="held-out texts"),
    ),
    Figure(
        key="calibration_error",
        title="Calibration error",
        short="calibration\nerror",
        kind="labelled",
        unit=SHARE,
        meaning="How far the model's confidence is from how often it is right, on average (ECE): 0 is a model that is "
        "right as often as it says.",
        better="lower",
        column="always",
    ),
    _share(key="validation_accuracy", title="Accuracy on the server's validation set", kind="labelled"),
    Figure(
        key="population_distance",
        title="Distance of private texts from the population",
        short="distance from\nthe population",
        meaning="How far the sites’ texts are from the candidate nearest to each, as the sites’ encoder sees it (mean "
        "L2 distance): the lower, the more the population is like them. Sites tell it without noise.",
        better="lower",
        of_members=True,
        column="measured",
        line=True,
        drawn=Drawn("distance (L2)", shows="mean over the sites’ texts"),
    ),
    Figure(key="survivors", title="Survivors", unit=TEXTS, line=True),
    Figure(key="seeds", title="Different seeds so far", unit=TEXTS),
    Figure(key="candidates", title="Candidates that were voted on", unit=TEXTS),
    Figure(key="pairs", title="Pairs of them that the generator was tuned on", short="pairs", line=True),
    Figure(key="tuning_loss", title="Loss of the generator on these pairs", short="tuning loss", unit=NATS, line=True),
    Figure(key="most_votes", title="Most votes of a candidate", line=True),
    Figure(key="vote_noise", title="Noise in votes (σ)"),
    Figure(key="trained_texts", title="Texts that the model was trained on", unit=TEXTS),
    Figure(key="cut_texts", title="Of these cut off before their end", unit=TEXTS),
    Figure(key="annotated", title="Texts annotated after the round", short="annotated", unit=TEXTS, line=True),
    Figure(key="left_unlabelled", title="Texts left without a label", short="left unlabelled", unit=TEXTS, line=True),
    _share(
        key="pseudo_accuracy",
        title="Accuracy of the labels given to unlabelled texts",
        short="accuracy of labels given",
        kind="labelled",
        line=True,
        drawn=Drawn(
            beside="accuracy", shows="labels that unlabelled texts were given after the round, where the truth is known"
        ),
    ),
    _share(
        key="choice_accuracy",
        title="Option accuracy",
        short="option\naccuracy",
        meaning="The share of questions with options for which the model finds the right option the likeliest, by the "
        "probability of the whole option. The small print gives the number of questions (n), a 95 % interval "
        "(Wilson's), and what guessing comes to: once in k times among k options or, where all questions have the same "
        "options, always to take the one that is right most often.",
        column="measured",
        line=True,
        drawn=Drawn("accuracy (0 to 1)", shows="by the probability of the whole option"),
    ),
    _share(
        key="choice_accuracy_norm",
        title="Option accuracy, per byte",
        short="option accuracy,\nper byte",
        meaning="The same, with each option's log-likelihood divided by its length in bytes of UTF-8, so that a long "
        "option is not at a disadvantage merely for being long.",
        column="measured",
        line=True,
        drawn=Drawn(beside="choice_accuracy", shows="by log-likelihood per byte of the option"),
    ),
    *(figure for benchmark in BENCHMARKS.values() for figure in benchmark.figures()),
    _share(
        key="coverage",
        title="Domain coverage",
        short="domain\ncoverage",
        kind="instruction",
        meaning="How similar each of the pool's records of the sites' domain is to the most similar record of it "
        "that any site was given (mean cosine; FedDCA, equation 5, with the mean over the domain). 1 would be a "
        "domain of which every record was given to somebody. Private records are not in it.",
        column="measured",
    ),
    Figure(
        key="attack_auc",
        title="Leakage (AUC)",
        short="leakage\n(AUC)",
        unit=AUC,
        meaning="How often an attacker picks the record that the model was trained on out of two of which it never saw "
        "the other: 0.5 is guessing, 1 is always. "
        "The attack was carried out: whoever has the model, and the one it was tuned from, tries to tell records "
        "that it was trained on (members) from records that it never saw (non-members), by how likely it finds them. "
        "AUC is how often a member looks more like one than a non-member does. "
        "Where it is not told how many records a site has, as with an ε, attacks look at as many of a small site as of "
        "a large one: if these have different kinds of record, it counts how they differ, too. "
        "If each site keeps an adapter of its own, that is attacked, and what kind of record the site has counts, too. "
        "The small print gives a 95 % interval; if it holds 0.5, nothing was found by this attack, but "
        "another one may find something. The interval is about this run’s model: it says nothing of what another seed "
        "would give. Then comes the strongest of the attacks tried, chosen on records set apart, and how many members "
        "and non-members it was measured on; where an ε is promised, how many non-members. "
        f"What attacks go by: {'; '.join(f'“{name}”, {what}' for name, what in READS.items())}.",
        better="lower",
        of_members=True,
        column="always",
        line=True,
        target="attack",
        drawn=Drawn(
            "AUC of the strongest attack",
            title="Leakage",
            shows="the model after the round",
            note="0.5 is guessing: the attack found nothing.",
            level=0.5,
        ),
    ),
    Figure(
        key="attack_tpr",
        title="Members found at 1 % false positives",
        short="members found\nat 1 % false",
        unit=SHARE,
        meaning="The share of members that the same attack finds if it may take at most 1 % of non-members for "
        "members; by guessing it finds no more than 0.01. It is measured where there are 100 non-members or more. The "
        "threshold is one that at most 1 % of further non-members are expected to pass, going by those that were "
        "measured. The interval is Wilson’s, of members beyond it: other non-members would have set another.",
        better="lower",
        of_members=True,
        column="measured",
    ),
    Figure(
        key="upload_auc",
        title="Leakage of single uploads (AUC)",
        short="leakage of\nuploads (AUC)",
        unit=AUC,
        meaning="The same on what one site sends, before the server mixes it with the others. That is what a curious "
        "server, or whoever breaks into it, would see. Non-members are of all sites: if these have different kinds of "
        "record, what kind a site has counts, too. Its interval leaves out, besides, how much one upload differs "
        "from another. A dash where nothing is sent or the attack was switched off.",
        better="lower",
        of_members=True,
        column="always",
        target="upload",
        drawn=Drawn(beside="attack_auc", shows="single uploads, before they are mixed"),
    ),
    _answer(
        key="memorisation",
        title="Memorisation",
        short="memorisation",
        unit=DIFFERENCE,
        meaning="How much more of the wording of records that it was trained on the model repeats than of others, "
        "asked their questions. Its answer is compared (ROUGE-L) with the real one, for members and for non-members; "
        "this is the difference. Well above 0, the model repeats more of the training records than its skill alone "
        "explains. Of so few records (16 of each, unless evaluation.sample says otherwise) it is above 0 by chance, "
        "too, and it has no interval.",
        better="lower",
        of_members=True,
        column="measured",
        line=True,
    ),
    Figure(
        key="epsilon",
        title="Guaranteed ε",
        short="ε",
        unit=EPSILON,
        meaning="How much one record, or one site, can change what is sent at most, whatever the attack: the bound of "
        "differential privacy. It is computed from what the run really did (where there is one, see “What is "
        "guaranteed”). Of several seeds it is the largest; beside it stands the ε of all of them together. A dash "
        "means that nothing is guaranteed.",
        better="lower",
        column="always",
        promise=True,
    ),
    Figure(
        key="audit_epsilon",
        title="ε is at least",
        short="ε at\nleast",
        unit=LEAST_EPSILON,
        meaning="How large ε must be at the least, as an audit shows with 95 % confidence (Steinke, Nasr and Jagielski "
        "2023). A fair coin decided which of two secrets each canary has, and the coins were guessed from what was "
        "sent and from the model. The more guesses are right, the larger ε must be, whatever was promised. 0 means "
        "that these guesses showed nothing; so few canaries show little at best, and other guesses may show more. Of "
        "several seeds it is the smallest.",
        better="lower",
        column="measured",
        line=True,
    ),
    Figure(
        key="exposure",
        title="Exposure of canaries",
        short="exposure",
        unit=BITS,
        meaning="How far up the true one of all possible secrets stands, in bits, for canaries: random secrets that "
        "were written into the sites’ records. They were written for this measurement alone. "
        "Exposure (Carlini et al. 2019) tells how far up the true secret stands when all that it could have been are "
        "sorted by how much likelier the model finds them than before training: a bit more for each halving of its "
        "rank, mean over the canaries. A model that has learnt nothing of them has more than 0 on average; how much, "
        "is told with the number of canaries. The small print gives a 95 % interval (Student’s).",
        better="lower",
        of_members=True,
        column="measured",
        line=True,
        drawn=Drawn("exposure (bits)", shows="the model after the round"),
    ),
    Figure(
        key="upload_exposure",
        title="Exposure of canaries in single uploads",
        short="exposure in\nuploads",
        unit=BITS,
        meaning="The same in what one site sends, before the server mixes it with the others.",
        better="lower",
        of_members=True,
        column="measured",
        drawn=Drawn(beside="exposure", shows="single uploads, before they are mixed"),
    ),
    _total(
        key="bytes_up",
        title="Sent up",
        short="up",
        unit=BYTES,
        meaning="Everything the sites sent to the server for the method itself, in all rounds that count; what it took "
        "to measure the other figures is not counted. 1 MB is a million bytes.",
    ),
    _total(
        key="bytes_down",
        title="Sent down",
        short="down",
        unit=BYTES,
        meaning="Everything the server sent to the sites for the method itself, in all rounds that count. What "
        "a round took that was interrupted and repeated is only in the table of what left each site.",
    ),
    _total(
        key="wall",
        title="Wall time",
        short="wall\ntime",
        unit=SECONDS,
        meaning="Time of all rounds that count on the machine named above, with everything that was measured in them.",
    ),
    _total(
        key="peak_memory",
        title="Peak memory",
        short="peak\nmemory",
        unit=BYTES,
        meaning="The most memory the run took at any moment: of the graphics card where the model was on one, else of "
        "the process.",
    ),
    Figure(key="at_sites", title="Time at sites", unit=SECONDS),
    Figure(key="audit_right", title="Audit: coins guessed right", unit=COINS),
    Figure(key="audit_guesses", title="Audit: coins guessed", unit=COINS),
    Figure(key="audit_coins", title="Audit: coins", unit=COINS),
    Figure(key="audit_most", title="Audit: the most that so many coins can show", unit=LEAST_EPSILON),
    Figure(key="bytes_measuring", title="Sent for these measurements", unit=BYTES),
    _attack(key="attack_loss_auc", title="AUC of the plain loss", unit=AUC),
    _attack(key="upload_loss_auc", title="AUC of the plain loss, single uploads", unit=AUC),
    _attack(key="upload_tpr", title="Members found at 1 % false positives, single uploads", unit=SHARE),
    _answer(key="member_rouge", title="ROUGE-L, members", unit=SHARE, of_members=True),
    _answer(key="nonmember_rouge", title="ROUGE-L, non-members", unit=SHARE),
    _answer(key="member_exact", title="Exact answers, members (share)", unit=SHARE, of_members=True),
    _answer(key="nonmember_exact", title="Exact answers, non-members (share)", unit=SHARE),
    _answer(key="member_prefix", title="Tokens right from the start, members", unit=TOKENS, of_members=True),
    _answer(key="nonmember_prefix", title="Tokens right from the start, non-members", unit=TOKENS),
)


def exposure_by_chance(candidates: int) -> float:
    """The mean exposure, in bits, of a secret that stands anywhere among so many with equal chances:
    log2 N − (log2 N!) / N."""
    return math.log2(candidates) - math.lgamma(candidates + 1) / math.log(2) / candidates


ENDS = ("_n", "_low", "_high", "_guess")
"""Of the keys of what is told beside a figure (``Figure.key``)."""
_BY_KEY = {figure.key: figure for figure in CATALOGUE}


def figure(key: str) -> Figure:
    """The figure of a key; one that is not in the catalogue keeps its key as its name."""
    return _BY_KEY.get(key) or harness_figure(key) or Figure(key=key, title=key)


def utility_of(kind: str) -> str:
    """The key of the figure that says how good a model of such records is: of labelled texts the accuracy, of others
    the held-out loss."""
    return "accuracy" if kind == "labelled" else "heldout_loss"


def described(keys: Iterable[str]) -> list[Figure]:
    """The catalogue, and behind it the figures among these keys that it cannot hold, since a run names them."""
    known = [key for key in dict.fromkeys(keys) if not key.endswith(ENDS)]
    return [*CATALOGUE, *(one for key in known if (one := harness_figure(key)))]


def measured(values: Mapping[str, object]) -> list[Figure]:
    """The figures that a row of ``metrics.jsonl`` holds: the catalogue's in its order, then others. The numbers that
    shares are of, the ends of intervals and what guessing comes to are no figures of their own."""
    sizes = {f"{key}{end}" for key in values for end in ENDS}
    others = [figure(key) for key in values if key not in _BY_KEY and key not in sizes]
    return [one for one in CATALOGUE if one.key in values] + others
