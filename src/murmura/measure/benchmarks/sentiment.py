"""Sentiment of news and tweets about companies, as FinGPT (Yang et al. 2023) and FedDCA ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from murmura.data.layout import BadValueError
from murmura.data.records import Instruction, Labelled
from murmura.measure.benchmarks.benchmark import UNPARSED, Benchmark, Verdict
from murmura.measure.benchmarks.config import SentimentConfig
from murmura.measure.figure import SHARE, Drawn, Figure
from murmura.measure.guessing import majority

LABELS = ("negative", "neutral", "positive")


def label_of(answer: str) -> str | None:
    """The label that an answer names, in capitals or not: positive if it is named at all, else negative, else neutral;
    None where no label is named. The published rule takes these for neutral."""
    said = answer.casefold()
    return next((label for label in ("positive", "negative", "neutral") if label in said), None)


class Sentiments(Benchmark[SentimentConfig]):
    """Accuracy of labels that the model writes.

    Attributes:
        long: the name of the set.
        text: what its question calls a text.
    """

    options = SentimentConfig
    kind = Labelled
    outcomes = ("right", "wrong", UNPARSED)
    long: ClassVar[str]
    text: ClassVar[str]

    @classmethod
    def figures(cls) -> tuple[Figure, ...]:
        short = cls.name.upper()
        return (
            Figure(
                key=cls.name,
                title=f"{short}, right labels",
                short=short,
                unit=SHARE,
                meaning=f"The share of texts of {cls.long} whose sentiment the model names rightly, in its own words. "
                "The small print gives the number of texts (n), a 95 % interval (Wilson’s), and what guessing gives, "
                "which is always to name the label that most of them have.",
                better="higher",
                column="measured",
                line=True,
                drawn=Drawn("share (0 to 1)", shows="right labels"),
            ),
            Figure(
                key=f"{cls.name}_parsed",
                title=f"{short}, answers with a label",
                short=f"{short},\nparsed",
                unit=SHARE,
                meaning="The share of the model’s answers that name one of the labels at all. The others count as "
                "wrong, or, with the option unparsed = 'neutral', as neutral, which flatters a model that says "
                "something else where most texts are neutral.",
                better="higher",
                column="measured",
                drawn=Drawn(beside=cls.name, shows="answers with a label"),
            ),
        )

    def checked(self, question: Labelled, columns: Mapping[str, str]) -> Labelled:
        label, order = question.label.casefold(), self.config.labels
        if order is not None and label in (places := [str(place) for place in range(len(order))]):
            label = order[places.index(label)]
        if label not in LABELS:
            what = f"'{columns['label']}' is {'empty' if not label else 'none of ' + ', '.join(LABELS)}"
            raise BadValueError(
                what,
                f"If it is a number, say what 0, 1, 2 stand for: evaluation.benchmarks.{self.name}.labels = "
                '["negative", "neutral", "positive"]',
            )
        return Labelled(question.text, label)

    @property
    def _asked(self) -> str:
        return f"What is the sentiment of this {self.text}? Please choose an answer from {{negative/neutral/positive}}."

    def guess(self, questions: Sequence[Labelled]) -> float:
        return majority([question.label for question in questions])

    def instruction(self, question: Labelled) -> Instruction:
        return Instruction(self._asked, question.text)

    def plain(self, question: Labelled) -> str:
        return f"Instruction: {self._asked}\nInput: {question.text}\nAnswer: "

    def judge(self, questions: Sequence[Labelled], answers: Sequence[str]) -> list[Verdict]:
        return [self._verdict(question, answer) for question, answer in zip(questions, answers, strict=True)]

    def _verdict(self, question: Labelled, answer: str) -> Verdict:
        named = label_of(answer)
        if named is None:
            return Verdict(self.config.unparsed == question.label, UNPARSED)
        right = named == question.label
        return Verdict(right, "right" if right else "wrong")


class FPB(Sentiments):
    """The Financial PhraseBank."""

    name, long, text = "fpb", "the Financial PhraseBank (Malo et al. 2014)", "news"


class FiQA(Sentiments):
    """FiQA 2018, task 1."""

    name, long, text = "fiqa", "FiQA 2018 (Maia et al. 2018)", "news"


class TFNS(Sentiments):
    """Twitter Financial News Sentiment."""

    name, long, text = "tfns", "Twitter Financial News Sentiment", "tweet"
