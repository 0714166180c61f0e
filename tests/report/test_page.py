from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from math import log

import pytest

from murmura import report
from murmura.errors import MurmuraError
from murmura.privacy import GaussianNoise, PoissonSampling, groups
from murmura.privacy.curve import Curve
from murmura.report import pictures, table
from murmura.report.page import render
from murmura.report.promise import promises_of
from murmura.runs import RunFolder, read, read_all
from murmura.runs.schema import OtherModel, SiteReport
from murmura.units import bound
from tests.privacy.folders import leave_ledgers
from tests.privacy.plans import RECORDS, of_records
from tests.report.runs import NOISE, NOISED, PLAIN, metrics, write_run

COUNTED = {"counts": {"drafts.kept": 32, "drafts.too_short": 3}, "events": ["site 'b' did not answer"]}


class Outline(HTMLParser):
    """Tags that are never closed, ids, and what the page refers to."""

    VOID = frozenset({"meta", "br", "link", "img", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                self.targets.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_of(tmp_path, *folders):
    return report.write(read_all(folders), tmp_path / "out" / "report.html").read_text()


@pytest.fixture
def several(tmp_path):
    seeds = [write_run(tmp_path / f"avg-{seed}", seed=seed) for seed in range(2)]
    rows = [metrics(0), metrics(1, **COUNTED), metrics(2)]
    other = write_run(tmp_path / "pit", method="FewFedPIT β=0.5", rows=rows)
    return page_of(tmp_path, *seeds, other)


def test_the_page_is_well_formed_and_needs_nothing_from_outside(several):
    outline = Outline()
    outline.feed(several)
    outline.close()
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.targets and all(target.startswith("#") for target in outline.targets)
    assert {target[1:] for target in outline.targets} <= set(outline.ids)
    assert not outline.tags & {"script", "link", "img", "iframe", "object"}
    assert "://" not in several
    assert not re.search(r"@import|url\((?!#)", several)


def test_it_has_every_picture_and_section(several):
    titles = re.findall(r"<h[23]>([^<]+)</h", several)
    for title in (
        "Leakage against held-out ROUGE-L", "Leakage against held-out loss", "Held-out loss", "Held-out ROUGE-L",
        "Leakage", "What left the sites", "Sites", "Where the time went",
        "What was counted", "Events",
    ):  # fmt: skip
        assert title in titles
    assert several.count("<figure>") == 5
    assert "FedAvg and FewFedPIT β=0.5</h1>" in several
    assert "mean ± sd of 2 seeds" in several
    assert "site &#39;b&#39; did not answer" in several
    assert re.search(r"<dt>too short</dt>.*?<dd>3</dd>", several, re.DOTALL)


def classifier(folder, **figures):
    """A run on labelled texts, of which nothing was attacked and nothing generated."""
    asked = ("heldout_loss", "bytes_up", "bytes_down", "wall", "peak_memory", "seconds")
    rows = [
        {"round": n, **{key: metrics(n)[key] for key in asked}, "accuracy": 0.5, "calibration_error": 0.1,
         "calibration": [[0.6, 0.5, 20]], **(figures if n else {})}
        for n in (0, 1)
    ]  # fmt: skip
    return write_run(folder, method="LP-FL", rows=rows, kind="labelled")


def test_a_page_about_a_classifier_says_nothing_of_answers_attacks_or_generated_text(tmp_path):
    page = page_of(tmp_path, classifier(tmp_path / "a", annotated=12, left_unlabelled=0))
    for word in (
        "answer",
        "per token",
        "question",
        "generated",
        "leakage figures",
        "Drafts",
        "drafts",
        "ROUGE",
        "Hollow",
    ):
        assert word not in page, word
    assert "mean of −log p(label) over the texts, in nats" in page
    assert "loss (nats per text)" in page
    assert "Leakage was not measured: no attack was carried out." in page
    assert "(never the pattern)" in page
    assert "since none is guaranteed.</p>" in page
    assert "Texts annotated after the round" in page and "Texts left without a label" in page
    assert "Hollow, dashed: labels" in page_of(tmp_path, classifier(tmp_path / "b", pseudo_accuracy=0.5))


def test_a_page_about_both_kinds_of_record_speaks_of_both(tmp_path, several):
    assert "Leakage was not measured" not in several and "(never the answer)" in several
    page = page_of(tmp_path, tmp_path / "avg-0", classifier(tmp_path / "c"))
    assert "nothing of the question. Lower is better. Of a classifier: How improbable" in page
    assert "loss (nats per token or per text)" in page
    assert "(never the answer or the pattern)" in page
    assert "Leakage was not measured" not in page
    assert "the leakage figures above measure one attack" in page


def test_pictures_take_every_colour_from_the_page(several):
    pictures = re.findall(r"<figure>.*?</figure>", several, re.DOTALL)
    drawn = "".join(pictures)
    assert not re.search(r"[: \"]#[0-9a-f]{6}\b", drawn)
    assert {"var(--series-1)", "var(--series-2)"} <= set(re.findall(r"var\(--[\w-]+\)", drawn))
    assert "font-family" not in drawn
    used = set(re.findall(r"var\((--[\w-]+)\)", several))
    dark = several[several.index("prefers-color-scheme: dark") :]
    for scheme in (several, dark[: dark.index("\n}")]):
        assert used <= set(re.findall(r"(--[\w-]+):", scheme))


@pytest.mark.parametrize(
    "exclusions, told",
    [
        (
            {"bad": 3, "overlap": 2, "heldout": 0, "nonmembers": 1},
            "3 bad, 2 also at a site, 1 non-members too long",
        ),
        ({"bad": 0, "overlap": 0, "heldout": 0, "nonmembers": 0}, "none"),
    ],
)
def test_records_that_nobody_uses_are_told(tmp_path, exclusions, told):
    folder = write_run(tmp_path / "a")
    (folder / "data.json").write_text(json.dumps(exclusions))
    assert f"<dt>Records left out</dt><dd>{told}</dd>" in page_of(tmp_path, folder).replace("\n", "")


def test_what_was_different_after_a_resume_is_told(tmp_path):
    folders = [write_run(tmp_path / name) for name in ("a", "b")]
    events = ["the checkpoint of round 2 is damaged", "training.clip is 1.0 from here on, and was not set"]
    resumed = [{"after": 1, "changed": {"training.clip": [None, 1.0]}, "events": events}]
    (folders[0] / "resumed.json").write_text(json.dumps(resumed))
    alone = page_of(tmp_path, folders[0])
    assert "<dt>Options changed</dt><dd>training.clip after round 1, from none to 1.0</dd>" in alone.replace("\n", "")
    for event in events:
        assert f"<li>after round 1: {event}</li>" in alone
    assert "training.clip of a after round 1" in page_of(tmp_path, *folders)
    assert "Options changed" not in page_of(tmp_path, folders[1])


def test_the_same_runs_give_the_same_bytes(tmp_path):
    folder = write_run(tmp_path / "a")
    assert page_of(tmp_path / "1", folder) == page_of(tmp_path / "2", folder)


def test_names_are_escaped(tmp_path):
    hostile = "<script>alert(1)</script>"
    rows = [
        metrics(0),
        metrics(1, events=[hostile], seconds={hostile: 1.0}, counts={f"a.{hostile}": 1}, **{hostile: 1}),
    ]
    folder = write_run(
        tmp_path / "a",
        method=hostile,
        rows=rows,
        sites=[SiteReport(hostile, 1, 1, 0, 0)],
        disclosure=[PLAIN[0] | {"field": hostile}],
    )
    page = page_of(tmp_path, folder)
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 7


def test_a_run_that_measured_nothing_still_has_a_page_of_dashes(tmp_path):
    folder = write_run(tmp_path / "a", rows=[{"round": 0}, {"round": 1, "attack_auc": None}], finished=False)
    for name in ("sites.json", "disclosure.json", "environment.json"):
        (folder / name).unlink()
    page = page_of(tmp_path, folder)
    assert "<figure>" not in page
    assert len(re.findall(r"<td class=\"n\" data-name=\"[^\"]+\"><div>–</div></td>", page)) == 9
    assert "what left the sites cannot be known" in page
    assert "No ε" not in page
    assert "unfinished: round 1" in page
    assert "<strong>Unfinished:</strong> a stopped" in page


def test_one_measured_round_is_enough_for_pictures(tmp_path):
    assert page_of(tmp_path, write_run(tmp_path / "a", rows=[metrics(2)])).count("<figure>") == 5


@pytest.mark.parametrize("rounds", [(2,), (0, 1), (0, 1, 2)])
def test_ticks_of_rounds_are_whole_numbers(tmp_path, rounds):
    rows = [metrics(number) for number in rounds]
    page = page_of(tmp_path, write_run(tmp_path / "a", rows=rows))
    pictures = [one for one in re.findall(r"<svg.*?</svg>", page, re.DOTALL) if ">round (0 is before training)<" in one]
    assert pictures
    for one in pictures:
        axis = one.partition(">round (0")[0]
        ticks = re.findall(r"<text[^>]*>([\d.]+)</text>", axis)
        assert [tick for tick in ticks if float(tick) in rounds and "." not in tick] == list(map(str, rounds))
        assert all("." not in tick for tick in ticks)


def test_no_epsilon_is_stated_and_a_mix_is_not_called_private(tmp_path):
    page = page_of(tmp_path, write_run(tmp_path / "a"))
    assert "Nothing here was protected by differential privacy" in page
    assert "neither is a mix of adapters" in page
    assert "No ε" in page


def test_the_sentence_goes_where_an_entry_has_differential_privacy(tmp_path):
    noised = write_run(tmp_path / "a", method="DP-LoRA", disclosure=NOISED)
    assert "No ε" not in page_of(tmp_path / "1", noised)
    both = page_of(tmp_path / "2", noised, write_run(tmp_path / "b"), write_run(tmp_path / "c", method="LocIT"))
    assert "FedAvg and LocIT: nothing here was protected" in both


@pytest.mark.parametrize(
    ("protection", "differential"),
    [
        (None, False),
        ({"type": "secure sum", "mechanism": "masks against the differential gaze"}, False),
        (NOISE, True),
        (NOISE | {"unit": "site", "added_by": "server"}, True),
        ({"type": "magic"}, False),
    ],
)
def test_what_counts_as_differential_privacy(tmp_path, protection, differential):
    page = page_of(tmp_path, write_run(tmp_path / "a", disclosure=[PLAIN[0] | {"protection": protection}]))
    assert ("No ε" not in page) == differential


def test_nothing_sent_is_said(tmp_path):
    assert "Nothing left any site." in page_of(tmp_path, write_run(tmp_path / "a", disclosure=[]))


def test_methods_that_release_the_same_share_a_disclosure_table(tmp_path, several):
    assert several.count('class="stack releases"') == 1
    odd = write_run(tmp_path / "odd", seed=9, disclosure=NOISED)
    split = page_of(tmp_path / "2", tmp_path / "avg-0", odd)
    assert split.count('class="stack releases"') == 2
    assert '<span class="sub">odd</span>' in split


def test_time_outside_phases_is_shown_as_other(tmp_path):
    page = page_of(tmp_path, write_run(tmp_path / "a"))  # 90 s of wall time; train 36 s, evaluate 18 s
    times = re.findall(r"<dt>(\w+)</dt>\s*<dd class=\"bar\"[^\n]*</dd>\s*<dd>([^<]+)</dd>", page)
    assert times == [("train", "36.0 s"), ("evaluate", "18.0 s"), ("other", "36.0 s")]


def test_a_guarantee_is_told_with_its_unit_and_what_the_paper_claims(tmp_path):
    privacy = {
        "unit": "record", "adjacency": "zero-out", "epsilon": 17.24, "delta": 1e-5, "accountant": "rdp",
        "plan": "Poisson sampling", "claimed_per_step": 2.0, "refused": None,
    }  # fmt: skip
    rows = [metrics(0), metrics(1, epsilon=17.24, privacy=privacy)]
    page = page_of(tmp_path, write_run(tmp_path / "a", rows=rows))
    assert "What is guaranteed</h2>" in page
    assert "one record, zero-out" in page
    assert "The adjacency is which two sets of data" in page and "in “zero-out” the contribution of one" in page
    assert "“rdp” by Rényi divergences." in page and "replace-one" not in page and "“pld”" not in page
    assert "the paper's claim for one step: 2" in page.replace("&#39;", "'")
    assert ">17.240<" in page
    assert "What is guaranteed</h2>" not in page_of(tmp_path, write_run(tmp_path / "b"))


def test_how_much_trains_is_told(tmp_path):
    folder = write_run(tmp_path / "a")
    told = replace(read(folder).environment, parameters=335_000_000, trained=1_572_864)
    RunFolder(folder).write_environment(told)
    assert "1,572,864 of 335,000,000 parameters (0.47 %), 6.29 MB a message" in page_of(tmp_path, folder)
    RunFolder(folder).write_environment(replace(told, trained_at="server"))  # then no message holds it
    assert "1,572,864 of 335,000,000 parameters (0.47 %), at the server<" in page_of(tmp_path, folder)
    RunFolder(folder).write_environment(replace(told, trained=0))
    assert "none of 335,000,000 parameters" in page_of(tmp_path, folder)


def test_a_model_that_is_used_twice_is_named_once(tmp_path):
    folders = [write_run(tmp_path / name) for name in "ab"]
    for folder in folders:
        writers = (OtherModel(option, "tiny", "causal language model", "at the server", 7, None) for option in "xy")
        RunFolder(folder).write_environment(replace(read(folder).environment, resources=tuple(writers)))
    assert page_of(tmp_path, *folders).count("tiny (causal language model, 7 parameters, at the server)") == 1


def test_many_sites_whose_sizes_are_not_told_are_folded_away(tmp_path):
    sites = [SiteReport(f"site-{place}", None, None, None, None) for place in range(13)]
    page = page_of(tmp_path, write_run(tmp_path / "a", sites=sites))
    assert "<summary>All 13 sites by name</summary>" in page
    assert "by name</summary>" not in page_of(tmp_path, write_run(tmp_path / "b", sites=sites[:12]))


def test_a_refused_epsilon_is_told_with_its_reason(tmp_path):
    privacy = {"unit": "record", "adjacency": "zero-out", "delta": 1e-5, "plan": "p", "refused": "a step too many"}
    page = page_of(tmp_path, write_run(tmp_path / "a", rows=[metrics(0), metrics(1, privacy=privacy)]))
    assert "a step too many" in page


@pytest.mark.parametrize(
    ("candidates", "told"),
    [(64, "each one of 64 that it could be: by chance, exposure is 1.38 of 6.00 bits"), (2, "is 0.50 of 1.00 bits")],
)
def test_what_chance_exposes_is_told_for_the_run_s_own_number_of_candidates(tmp_path, candidates, told):
    path = write_run(tmp_path / "a", sites=[SiteReport("a", 3, 3, 0, 0, canaries=1)])
    run = read(path)
    page = render([replace(run, config=f"{run.config}[audit]\ncandidates = {candidates}\n")])
    assert told in page and "1.4 on average" not in page


def test_sites_add_up(tmp_path):
    page = page_of(tmp_path, write_run(tmp_path / "a"))
    cells = [
        re.findall(r"<td class=\"n\">([^<]+)</td>", line)
        for line in page.splitlines()
        if "skin" in line or "All sites" in line
    ]
    assert cells == [["30", "30", "0", "0"], ["54", "52", "1", "2"]]


def test_a_page_that_cannot_be_written_is_a_readable_error(tmp_path):
    folder = write_run(tmp_path / "a")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "report.html", tmp_path):
        with pytest.raises(MurmuraError, match="the page cannot be written"):
            report.write(read_all([folder]), out)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_pictures_leave_matplotlib_as_it_was(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"axes.facecolor": "#123456", "font.size": 30}):
        odd = page_of(tmp_path / "1", write_run(tmp_path / "a"))
    assert dict(matplotlib.rcParams) == before
    assert odd == page_of(tmp_path / "2", tmp_path / "a")


def test_accuracies_carry_their_number_of_texts_and_an_interval_wherever_they_are_told(tmp_path, capsys):
    folder = classifier(tmp_path / "a", accuracy_n=20, pseudo_accuracy=0.5, pseudo_accuracy_n=8)
    page = page_of(tmp_path, folder)
    assert '<span class="sub">0.299–0.701</span> <span class="sub">n = 20</span>' in page  # the table
    assert "0.500 (0.299–0.701, n = 20)" in page and "0.500 (0.215–0.785, n = 8)" in page  # every round
    assert "texts at each mark, from left to right: n = 20." in page  # calibration
    report.show(report.table(read_all([folder])))
    assert "0.299–0.701" in capsys.readouterr().out
    assert "| 0.500 (0.299–0.701, n = 20) |" in report.markdown(report.table(read_all([folder])))


def test_right_and_wrong_answers_are_shown_label_by_label(tmp_path):
    counts = {"bad": {"bad": 45, "<b>": 5}, "<b>": {"bad": 1, "<b>": 3}}
    page = page_of(tmp_path, classifier(tmp_path / "a", confusion=counts))
    assert "label by label</h2>" in page and "<b>" not in page
    assert "0.786–0.957, n = 50" in page
    assert "label by label" not in page_of(tmp_path, classifier(tmp_path / "b"))


def test_a_figure_that_did_not_move_has_no_picture(tmp_path):
    """Nothing as it is written, whatever the digits behind: an axis of nearly equal numbers says nothing."""
    rows = [metrics(n, heldout_loss=10.82 + n * 1e-6, attack_auc=0.5, upload_auc=None) for n in (0, 1, 2)]
    page = page_of(tmp_path, write_run(tmp_path / "a", rows=rows))
    titles = re.findall(r"<h3>([^<]+)</h", page)
    assert "Held-out loss" not in titles and "Leakage" not in titles
    assert "Leakage against held-out loss" not in titles
    assert {"Held-out ROUGE-L", "Leakage against held-out ROUGE-L"} <= set(titles)
    assert "No picture, since nothing moved: Held-out loss, Leakage." in page
    assert page.count("10.820") >= 4  # the table and the numbers of every round still have it


def test_ticks_are_written_in_full(tmp_path):
    """No offset and no power of ten beside the axis, which would lie over a tick; and none finer than the tables."""
    rows = [metrics(n, heldout_loss=10.82 + 0.0012 * n, heldout_rouge=0.3) for n in (0, 1, 2)]
    page = page_of(tmp_path, write_run(tmp_path / "a", rows=rows))
    picture = re.search(r"<h3>Held-out loss</h3>.*?</figure>", page, re.DOTALL).group()
    words = re.findall(r"<text[^>]*>([^<]+)</text>", picture)
    ticks = [word for word in words if re.fullmatch(r"[−\d.]+", word) and "." in word]
    assert len(ticks) >= 3 and all(10.81 < float(tick) < 10.83 for tick in ticks)
    assert not [word for word in words if re.search(r"\de|\+", word)]


def test_a_picture_needs_the_figure_that_it_is_of(tmp_path):
    """Single uploads are drawn beside the model's leakage, and not without it."""
    rows = [metrics(n, attack_auc=None, upload_auc=0.5 + 0.1 * n) for n in (0, 1, 2)]
    page = page_of(tmp_path, write_run(tmp_path / "a", rows=rows))
    assert "<h3>Leakage</h3>" not in page and "Leakage of single uploads (AUC)" in page


def test_leakage_is_drawn_with_its_interval_as_a_band_and_a_line_at_guessing(tmp_path):
    def picture(folder, **ends):
        page = page_of(tmp_path, write_run(folder, rows=[metrics(n, upload_auc=None, **ends) for n in (0, 1, 2)]))
        return re.search(r"<h3>Leakage</h3>.*?</figure>", page, re.DOTALL).group()

    whole, bare = picture(tmp_path / "a"), picture(tmp_path / "b", attack_auc_low=None, attack_auc_high=None)
    assert "Bands are 95 % intervals." in whole and "Bands" not in bare
    assert whole.count("<path") == bare.count("<path") + 1
    assert "0.5 is guessing" in whole and "AUC of the strongest attack" in whole


def test_leakage_stands_with_its_interval_and_the_attack(tmp_path):
    page = page_of(tmp_path, write_run(tmp_path / "a"))
    assert "0.562–0.688</span>" in page and "error zone</span>" in page and "n = 81 + 36</span>" in page
    assert "no attack was carried out" not in page


def test_the_page_says_what_a_guarantee_allows_an_attack_and_draws_its_curve(tmp_path):
    told = {
        "unit": "record", "adjacency": RECORDS.adjacency, "delta": 1e-5, "plan": RECORDS.describe(), "refused": None,
        "epsilon": RECORDS.epsilon().value, "accountant": "pld", "claimed_per_step": None,
    }  # fmt: skip
    rows = [metrics(0), metrics(2, epsilon=told["epsilon"], privacy=told)]
    folder = write_run(tmp_path / "a", rows=rows)
    assert "finds at most" not in page_of(tmp_path, folder)  # a folder that was published has no ledgers
    milder = replace(RECORDS, noise=GaussianNoise(4.0))
    leave_ledgers(folder, {"a": "x", "b": "y"}, {"a": milder, "b": RECORDS})
    page = page_of(tmp_path, folder)
    for sentence in Curve.of(RECORDS.event(), RECORDS.adjacency).words():
        assert sentence in page
    assert "ε at every δ" in page and 'aria-label="log₁₀ δ"' in page
    assert "A person has" not in page
    page = page_of(tmp_path, folder, write_run(tmp_path / "b", method="Without"))
    section = page[page.index("What is guaranteed</h2>") : page.index("<h2>Sites</h2>")]
    assert re.findall(r"</svg>\s*(.*)</li>", section) == ["FedAvg"]  # the other has no line there
    ledger = folder / "private" / "a" / "privacy.journal"
    ledger.write_bytes(ledger.read_bytes().replace(b"4.0", b"2.0"))
    assert "finds at most" not in page_of(tmp_path, folder)  # of a ledger that was edited nothing is known


def test_the_page_says_what_a_target_allows_though_the_run_tells_no_plan(tmp_path):
    """From the plan would follow how many records a site has; of those that kept ledgers the weakest counts."""
    weaker, stronger = (of_records(sampler=PoissonSampling(1.0), noise=GaussianNoise(std)) for std in (2.0, 4.0))
    told = {
        "unit": "record", "adjacency": weaker.adjacency, "delta": 1e-5, "plan": "noise for ε = 50 over the run",
        "refused": None, "epsilon": 50.0, "accountant": "exact", "claimed_per_step": None,
    }  # fmt: skip
    folder = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, epsilon=50.0, privacy=told)])
    leave_ledgers(folder, {"a": "x", "b": "y"}, {"a": stronger, "b": weaker})
    page = page_of(tmp_path, folder)
    for sentence in Curve.of(weaker.event(), weaker.adjacency).words():
        assert sentence in page
    assert "ε at every δ" in page


def test_the_page_says_what_a_person_with_several_records_has(tmp_path):
    everybody = replace(RECORDS, sampler=PoissonSampling(1.0))  # of a sample the bound takes many seconds
    told = {
        "unit": "record", "adjacency": RECORDS.adjacency, "delta": 1e-5, "plan": everybody.describe(), "refused": None,
        "epsilon": everybody.epsilon().value, "accountant": "exact", "claimed_per_step": None,
    }  # fmt: skip
    folder = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, epsilon=told["epsilon"], privacy=told)])
    leave_ledgers(folder, {"a": "x", "b": "y"}, {"a": everybody, "b": everybody})
    with (folder / "config.toml").open("a") as config:  # its last table is [data]
        config.write('user = "patient"\nrecords_per_user = 2\n')
    two = bound(groups.epsilon(everybody, 2).value)
    page = page_of(tmp_path, folder)
    assert "A person has at most 2 records at a site (data.records_per_user)" in page
    assert f"for all of them together, at one site, ε is {two} at the same δ" in page
    assert "at several sites" not in page
    counts = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps(counts | {"person_at": 2}))
    four = bound(groups.epsilon(replace(everybody, steps=2 * everybody.steps), 2).value)  # two, at two sites
    assert f"2 at most: for all of theirs, at all of these sites, it is {four}." in page_of(tmp_path, folder)


def test_what_is_drawn_and_said_holds_for_every_site(tmp_path):
    """Of two sites one is protected least at the run's δ, the other elsewhere."""
    often = replace(RECORDS, sampler=PoissonSampling(1.0), noise=GaussianNoise(9.0), steps=1)
    seldom = replace(RECORDS, noise=GaussianNoise(1.2), steps=1)
    curves = [Curve.of(plan.event(), plan.adjacency) for plan in (often, seldom)]
    both = Curve.worst(curves)
    assert all(both.table != one.table for one in curves)
    assert [bound for _, bound in both.table] == [
        max(one, other) for (_, one), (_, other) in zip(*(curve.table for curve in curves), strict=True)
    ]
    told = {
        "unit": "record", "adjacency": "zero-out", "delta": 1e-5, "plan": often.describe(), "refused": None,
        "epsilon": 2.0, "accountant": "pld", "claimed_per_step": None,
    }  # fmt: skip
    folder = write_run(tmp_path / "a", rows=[metrics(0), metrics(2, epsilon=2.0, privacy=told)])
    leave_ledgers(folder, {"a": "x", "b": "y"}, {"a": often, "b": seldom})
    page = page_of(tmp_path, folder)
    assert all(sentence in page for sentence in both.words())


def test_a_curve_of_noise_for_a_target_does_not_tell_how_many_records_a_site_has(tmp_path):
    pages = []
    for name, records in (("few", 100), ("more", 110)):
        plan = replace(RECORDS, sampler=PoissonSampling(4 / records), steps=20).calibrated(2.0, "rdp")
        told = {
            "unit": "record", "adjacency": "zero-out", "delta": 1e-5, "plan": "4 of a site's records", "refused": None,
            "epsilon": 2.0, "accountant": "pld", "claimed_per_step": None,
        }  # fmt: skip
        folder = write_run(tmp_path / name, rows=[metrics(0), metrics(2, epsilon=2.0, privacy=told)])
        text = (folder / "config.toml").read_text()
        (folder / "config.toml").write_text(text.replace("[method]", "[method]\nepsilon = 2.0"))
        leave_ledgers(folder, {"a": "x"}, {"a": plan})
        [promise] = promises_of(table(read_all([folder])))
        pages.append(pictures.guaranteed([promise])[0].svg)
        powers = [log(one / 2.0, 1.25) for _, one in promise.curve.table if one]
        assert len(powers) > 5 and powers == pytest.approx([round(power) for power in powers])
    assert pages[0] == pages[1]
