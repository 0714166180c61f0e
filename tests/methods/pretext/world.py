"""Small runs: sites that write of tablets, public texts of other things too, and tiny models."""

import json

from murmura.federation.wire.messages import Reply
from murmura.federation.wire.sums import Sum, misfit
from tests.experiment.small import BY_DEFAULT, experiment, write_lines

TOPICS = {
    "tablets": "the patient takes the new tablets daily with food in the evening and draft number {}",
    "rash": "the rash on the skin of the child spreads and the fever stays on monday {}",
    "letter": "please draft a short letter to the clinic with the summary and result {}",
}
SITES = {"north": 5, "south": 3, "west": 2}
POPRI = {
    "evolve": "preferences",
    "votes": "cosine",
    "torn": "kept",
    "prompts": 4,
    "candidates_per_prompt": 4,
    "rejected_rank": 3,
    "samples": 5,
    "sample_tokens": 20,
    "tuning": {"lr": 0.02, "rank": 2, "batch_size": 2},
    **dict.fromkeys(("lookahead", "variation_model", "change", "steps", "threshold")),
}
"""Options of ``made`` with which the generator is tuned; None takes one away."""


def texts(topic, count, start=0):
    return [TOPICS[topic].format(number) for number in range(start, start + count)]


def write(folder):
    """One file a site, all of tablets; held-out texts of them; public texts of the others, and some of tablets."""
    start = 0
    for site, size in SITES.items():
        write_lines(folder / "sites" / f"{site}.jsonl", [{"text": text} for text in texts("tablets", size, start)])
        start += size
    write_lines(folder / "heldout.jsonl", [{"text": text} for text in texts("tablets", 4, 50)])
    public = [*texts("rash", 12), *texts("letter", 12), *texts("tablets", 4, 70)]
    write_lines(folder / "public.jsonl", [{"text": text} for text in [*public, "too short"]])


def made(folder, llama, models, method=None, **sections):
    """An experiment on these."""
    options = {
        "name": "pretext",
        "public": "public.jsonl",
        "public_words": 5,
        "population": 12,
        "rounds": 2,
        "lookahead": 1,
        "text_tokens": 24,
        "encoder": str(models / "encoder"),
        "variation_model": str(models / "masked"),
        "samples": 0,
        "noise_multiplier": 0.5,
        "change": 0.1,
        "steps": 1,
        "threshold": 0.0,
    }
    data = {"max_length": 48} | sections.pop("data", {})
    training = {"lr": 0.02, "batch_size": 4, "epochs": 10} | sections.pop("training", {})
    given = {name: value for name, value in (options | (method or {})).items() if value is not None}
    measured = {"sample": 16, "uploads": 2} | BY_DEFAULT | sections.pop("evaluation", {})
    return experiment(folder, llama, given, data=data, training=training, evaluation=measured, **sections)


def left(folder, name):
    return json.loads((folder / "outcomes" / name).read_text())


class Replies:
    """A fleet whose sites send what they are told to."""

    def __init__(self, *replies):
        self.replies, self.sites, self.asked, self.events = replies, [f"s{k}" for k in range(len(replies))], [], []
        self.revealing = lambda: None

    def sum(self, verb, sites, like=None, refused=None, settled=None, **shared):
        self.asked.append((verb, shared))
        if settled:
            settled(len(self.sites))
            self.revealing()
        total = Sum()
        for site, reply in zip(self.sites, self.replies, strict=True):
            fields = {"votes": reply(len(shared["candidates"]))} if callable(reply) else reply
            if why := misfit(fields, like or {}) or (refused and refused(Reply(site, fields))):
                self.events.append(f"{site}: {why}")
            else:
                total.add(site, fields)
        return total
