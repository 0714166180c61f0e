"""What a judge answers."""

from murmura.judge.prompts import ASPECTS


def lines(first, second):
    return "\n".join(f"{aspect}: {first} {second}" for aspect in ASPECTS)
