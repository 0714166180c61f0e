"""What are votes worth? PrE-Text beside texts that nobody voted for, texts after private ones, and DP-FedAvg.

    python studies/pretext.py --data FOLDER --out runs/pretext          # writes runs/pretext/pretext.toml and its files
    murmura compare runs/pretext/pretext.toml --jobs 2 --out runs/pretext
    python studies/pretext.py --data FOLDER --out runs/pretext --seeds  # how near texts come to the private ones

FOLDER holds ``finance_phrasebank.jsonl`` and ``sentiment_movie_rt.jsonl`` (text), and ``medical_icliniq.jsonl``,
``code_codealpaca.jsonl``, ``math_gsm8k_train.jsonl`` and ``general_seed_tasks.jsonl`` (instruction, input, output).

Votes can only find what is there: where no public text is anything like the private ones, a round of votes has nothing
to choose. So news of finance are put into twelve clusters. One of these gives the few public texts that are near; the
others are the sites' texts and those that are measured on. All other public texts are of the other files, and are far.
Arms called "none near" have the far ones alone, which takes away what votes are supposed to find; "near ones alone" has
no other seeds than these, as if votes were right each time; with "one round" survivors are public texts, and none is a
variation.

``public only`` is trained on public texts, ``Expand-only`` on as many that are expanded from public ones, ``PrE-Text``
on as many expanded from those voted for, ``Expand-private`` on as many expanded from the private texts, which leave
their sites. ``DP-FedAvg`` trains the adapter, at several clipping norms, since its step is as long as that norm. One
model writes, varies and is trained. All begin with it as it is, and the paper's with one that public texts were trained
on: in a trial texts by this small model made such a one worse.

``--more`` adds arms: all public texts, what threshold and weights of survivors do, one near text in a hundred,
DP-Prompt, DP-FedAvg and DP-FTRL on all parameters, as in the paper, and Expand-private with a quarter of the texts and
with four times as many, and so of the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

import runs
from murmura.methods.pretext.voting import distances
from murmura.retrieval.encoder import Encoder
from runs import read_rows, write_rows

PRIVATE = "finance_phrasebank"
OTHERS = ("sentiment_movie_rt", "medical_icliniq", "code_codealpaca", "math_gsm8k_train", "general_seed_tasks")
FIELDS = ("text", "instruction", "input", "output")
CLUSTERS = 12
DELTA = 3e-6
TITLES = {"dpfedavg": "DP-FedAvg", "dpftrl": "DP-FTRL"}

SMALL, FULL = runs.scales(
    words=((8, 28), (8, 64)),  # fewest and most of a text
    sites=(200, 400),
    texts=(4, 8),  # of each site
    far=(1035, 2000),  # public texts of other files
    near=(40, 80),  # and of the cluster that is no site's
    few=(10, 20),  # near ones where they are one in a hundred
    heldout=(200, 400),
    voting=(
        {"rounds": 3, "population": 256, "text_tokens": 64, "lookahead": 0, "variation": "continue"},
        {"rounds": 11, "population": 2048, "text_tokens": 64, "lookahead": 4, "variation": "mask-fill"},
    ),
    samples=(256, 20_000),
    sample_tokens=(64, 85),
    epochs=(2, 1),
    batch=(8, 64),
    layers=("last 8", "all"),
    max_length=(64, 96),
    rates=([1e-3, 3e-3], [1e-4, 3e-4, 1e-3, 3e-3]),
    seeds=(3, 5),
    clips=([0.2, 0.6, 1.0, 2.0], [0.3, 1.0, 3.0]),  # of DP-FedAvg, with an adapter
    whole_clips=([0.05, 0.1], [0.03, 0.1, 0.3]),  # of all parameters, by a trial: at 0.2 a step goes too far
    steps=(2, 100),  # its rounds, in each of which every site takes a step on all its texts
    decode_rows=(64, 512),
)


def main() -> None:
    """Write the comparison and its files, or read what it has left."""
    parser = runs.parser(__doc__, dtype="float32")
    parser.add_argument("--more", action="store_true", help="more arms, about what votes are made of")
    parser.add_argument("--encoder", default="minilm", help="the sentence encoder that places texts")
    parser.add_argument("--seeds", action="store_true", help="write nothing, but say how near the texts of runs come")
    options = runs.parse(parser, reading="seeds")
    if options.seeds:
        print(near_table(options.out, Encoder(options.encoder)))
        return
    scale = FULL if options.full else SMALL
    prepare(options.data, options.out, scale, Encoder(options.encoder))
    written = comparison(options.model, options.encoder, options.dtype, scale)
    if options.more:
        written["compare"]["arms"] += more(scale, options.model, options.encoder)
    runs.save(written, options.out / "pretext.toml")


# ---- records ---------------------------------------------------------------------------------------------------------


def prepare(data: Path, out: Path, scale: runs.Scale, encoder: Encoder) -> None:
    """Write the texts as the study uses them: private ones, and public ones of which many, few or none are near.

    Ends the study where there are too few.
    """
    out.mkdir(parents=True, exist_ok=True)
    news = _texts(data / f"{PRIVATE}.jsonl", scale)
    cluster = KMeans(min(CLUSTERS, len(news)), n_init=4, random_state=0).fit_predict(encoder.embed(news))
    apart = _smallest(cluster, scale.near)
    near = [text for text, own in zip(news, cluster, strict=True) if own == apart][: scale.near]
    private = [text for text, own in zip(news, cluster, strict=True) if own != apart]
    wanted = scale.sites * scale.texts + scale.heldout
    if len(private) < wanted:
        raise SystemExit(f"{PRIVATE}.jsonl: {len(private)} texts are left for the sites, {wanted} are asked")
    far = _mixed([_texts(data / f"{name}.jsonl", scale) for name in OTHERS])[: scale.far]
    files = {"private": private[:wanted], "far": far, "near": near, "public": far + near}
    files["few"] = far + near[: scale.few]
    for name, texts in files.items():
        write_rows(out / f"{name}.jsonl", ({"text": text} for text in texts))
    print(f"{len(near)} near and {len(far)} far public texts, {wanted} of {len(private)} private ones")


def _texts(path: Path, scale: runs.Scale) -> list[str]:
    """The different texts of a file that are neither too short nor too long, each in one line, in a random order."""
    low, high = scale.words
    fields = (str(row[field]) for row in read_rows(path) for field in FIELDS if row.get(field))
    kept = list(dict.fromkeys(" ".join(words) for text in fields if low <= len(words := text.split()) <= high))
    Random(f"0 {path.name}").shuffle(kept)
    return kept


def _smallest(cluster: Sequence[int], least: int) -> int:
    """The smallest cluster that has enough texts, so that most are left to the sites; else the largest."""
    sizes = np.bincount(cluster)
    enough = np.flatnonzero(sizes >= least)
    return int(enough[np.argmin(sizes[enough])] if len(enough) else np.argmax(sizes))


def _mixed(lists: Sequence[list[str]]) -> list[str]:
    """All texts, each once, so that any first part of them has as many of every list as it can."""
    longest = max(map(len, lists))
    return list(dict.fromkeys(own[k] for k in range(longest) for own in lists if k < len(own)))


# ---- the comparison --------------------------------------------------------------------------------------------------


def comparison(model: str, encoder: str, dtype: str, scale: runs.Scale) -> dict[str, Any]:
    """The comparison's file."""

    def voted(public: str = "public.jsonl", **options: Any) -> dict[str, Any]:
        return voting(model, encoder, scale, public, **options)

    def texts(seeds: str, public: str = "public.jsonl", **options: Any) -> dict[str, Any]:
        return _on_texts(model, scale, public, seeds, **options)

    table = _begun(model, dtype, scale) | {"method": texts("public", samples=0)}
    arms = [
        {"name": "public only"},
        {"name": "Expand-only", "method": texts("public")},
        {"name": "PrE-Text ε=1.29", "method": voted(epsilon=1.29)},
        {"name": "PrE-Text ε=7.58", "method": voted(epsilon=7.58)},
        {"name": "PrE-Text without noise or threshold", "method": voted(noise_multiplier=0.0)},
        {"name": "Expand-private", "method": texts("private")},
        {"name": "Expand-only, none near", "method": texts("public", "far.jsonl")},
        {"name": "PrE-Text ε=7.58, none near", "method": voted("far.jsonl", epsilon=7.58)},
        {"name": "PrE-Text ε=7.58, one round", "method": voted(epsilon=7.58, rounds=1), "rate_of": "PrE-Text ε=7.58"},
        {"name": "Expand-only, near ones alone", "method": texts("public", "near.jsonl"), "rate_of": "Expand-only"},
        *averaging(scale),
    ]
    asked = {"name": "pretext", "seeds": scale.seeds, "rates": scale.rates, "reference": "Expand-only"}
    return {"compare": asked | {"arms": arms}, **table}


def averaging(scale: runs.Scale, name: str = "dpfedavg", trainable: str = "adapter") -> list[dict[str, Any]]:
    """DP-FedAvg, or DP-FTRL. A site's step is longer than any clipping norm, so that this alone is its length, and what
    there is to choose.

    With DP-FTRL each site takes part in one round, and one tree spans all rounds. With every site in every round a tree
    would span a single one, which is DP-FedAvg.
    """
    turns = {"sites_per_round": max(scale.sites // scale.steps, 1)} if name == "dpftrl" else {}
    step = {"optimizer": "sgd", "schedule": "constant", "clip": 0.0, "batch_size": scale.texts, "max_steps": 1}
    step |= {"epochs": 1}
    return [
        {
            "name": f"{TITLES[name]} ε={epsilon}" + ", all parameters" * (trainable == "all"),
            "method": {"name": name, "rounds": scale.steps, "epsilon": epsilon, "delta": DELTA, **turns},
            "model": {"trainable": trainable} | ({"dtype": "float32"} if trainable == "all" else {}),
            "training": step,
            "rates": [10.0],
            "grid": {"method.clip_norm": scale.whole_clips if trainable == "all" else scale.clips},
        }
        for epsilon in (7.58, 1.29)
    ]


def more(scale: runs.Scale, model: str, encoder: str) -> list[dict[str, Any]]:
    """Arms about what makes votes good, what more texts are worth, and what else there is at one ε."""

    def voted(public: str = "public.jsonl", **options: Any) -> dict[str, Any]:
        return voting(model, encoder, scale, public, epsilon=7.58, **options)

    def expanded(samples: int) -> dict[str, Any]:
        return _on_texts(model, scale, "public.jsonl", "private", samples=samples)

    paraphrased = _on_texts(model, scale, "public.jsonl", "paraphrased", samples=0, epsilon=7.58, delta=DELTA)
    paraphrased |= {"paraphraser": model, "texts_per_site": scale.texts}
    every = _on_texts(model, scale, "public.jsonl", "public", samples=0, population=scale.far + scale.near)
    return [
        {"name": "public only, all texts", "method": every},
        {"name": "PrE-Text ε=7.58, threshold σ, weights", "method": voted(threshold=1.0)},
        {"name": "PrE-Text ε=7.58, threshold 2σ, once each", "method": voted(repeats="once")},
        {"name": "PrE-Text ε=7.58, threshold σ, once each", "method": voted(threshold=1.0, repeats="once")},
        {"name": "PrE-Text ε=7.58, one in a hundred near", "method": voted("few.jsonl")},
        {"name": "Expand-only, one in a hundred near", "method": _on_texts(model, scale, "few.jsonl", "public")},
        {"name": "DP-Prompt ε=7.58", "method": paraphrased},
        {"name": "Expand-private, a quarter", "method": expanded(scale.samples // 4)},
        {"name": "Expand-private, four times", "method": expanded(4 * scale.samples)},
        *averaging(scale, trainable="all"),
        *averaging(scale, "dpftrl", "all"),
    ]


def voting(model: str, encoder: str, scale: runs.Scale, public: str, **options: Any) -> dict[str, Any]:
    """[method] of an arm with votes."""
    chosen = {"variation_model": model, "variation_temperature": 0.7, "variation_top_p": 0.95, "encoder": encoder}
    chosen |= {"threshold": 2.0, "texts_per_site": scale.texts, "delta": DELTA, **scale.voting}
    return _on_texts(model, scale, public, "voted", **chosen | options)


def _on_texts(model: str, scale: runs.Scale, public: str, seeds: str, **options: Any) -> dict[str, Any]:
    """[method] of an arm that trains on texts at the server."""
    written = {"samples": scale.samples, "sample_tokens": scale.sample_tokens, "temperature": 0.7, "top_p": 0.95}
    chosen = {"name": "pretext", "seeds": seeds, "public": public, "public_words": scale.words[0] - 1}
    chosen |= {"population": scale.samples, "generator": model, "unfinished": "sentences"}
    return chosen | written | options


def _begun(model: str, dtype: str, scale: runs.Scale) -> dict[str, dict[str, Any]]:
    """What all experiment files begin with."""
    return {
        "run": {"decode_rows": scale.decode_rows},
        "model": {"name": model, "dtype": dtype},
        "lora": {"rank": 16, "alpha": 32.0, "targets": ["q_proj", "v_proj"], "layers": scale.layers},
        "data": {
            "kind": "document",
            "opening": "always",
            "train": "private.jsonl",
            "heldout_records": scale.heldout,
            "max_length": scale.max_length,
            "sites": {"by": "partition", "count": scale.sites, "records": scale.texts},
        },
        "training": {"batch_size": scale.batch, "epochs": scale.epochs},
        "evaluation": {"every": 100, "attacks": False, "uploads": 0},
    }


# ---- how near it comes -----------------------------------------------------------------------------------------------


def near_table(out: Path, encoder: Encoder) -> str:
    """Of every arm of the comparison: how many of its seeds are nearest to a public text that is near, and how far the
    private texts are from the nearest text that its model was trained on; means over the seeds of runs, as Markdown.

    No run tells this: here all files are at hand, and nothing of it goes back into one.
    """
    public = [row["text"] for row in read_rows(out / "public.jsonl")]
    near = len(public) - len(read_rows(out / "far.jsonl"))
    places, private = encoder.embed(public), encoder.embed([row["text"] for row in read_rows(out / "private.jsonl")])
    found: dict[str, list[tuple[float, float]]] = {}
    for arm, _, folder in runs.finished(out):
        texts = folder / "outcomes" / "dataset"
        if texts.exists():
            seeds = list(_seeds(texts))
            nearest = np.argmax(encoder.embed(seeds) @ places.T, axis=1)
            far = distances(private, encoder.embed(list(dict.fromkeys(_rows(texts / "train.jsonl")))))
            share = float(np.mean(nearest >= len(public) - near))
            found.setdefault(arm, []).append((share, float(far.mean())))
    lines = []
    for arm, own in found.items():
        share, far = (fmean(column) for column in zip(*own, strict=True))
        lines.append([arm, str(len(own)), f"{share:.0%}", f"{far:.3f}"])
    return runs.pipes(["arm", "seeds of runs", "its seeds that are near", "distance of private texts"], lines)


def _seeds(texts: Path) -> Iterator[str]:
    """The texts that others were expanded from, as often as they were taken; where none were, those trained on."""
    if not (texts / "seeds.jsonl").exists():
        yield from _rows(texts / "train.jsonl")
        return
    for row in read_rows(texts / "seeds.jsonl"):
        yield from [row["text"]] * row["times"]


def _rows(path: Path) -> list[str]:
    return [row["text"] for row in read_rows(path)]


if __name__ == "__main__":
    main()
