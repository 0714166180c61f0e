"""The page as a whole: well-formed, whole in itself, and the same for the same runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from jinja2 import UndefinedError

from murmura import report
from murmura.errors import MurmuraError
from murmura.report.page import _templates, render
from murmura.report.run_facts import facts
from murmura.report.sections import sections
from murmura.report.table import table
from murmura.runs import RunFolder, read, read_all
from murmura.runs.names import ENVIRONMENT
from murmura.runs.schema import OtherModel, SiteReport
from tests.report.blocks import pictures, said
from tests.report.outline import Outline
from tests.report.runs import PLAIN, classifier, metrics, write_run

COUNTED = {"counts": {"drafts.kept": 32, "drafts.too_short": 3}, "events": ["site 'b' did not answer"]}


def page_of(tmp_path, *folders):
    return report.write(read_all(folders), tmp_path / "out" / "report.html").read_text()


def facts_of(*folders):
    return facts(table(read_all(folders)))


@pytest.fixture
def folders(tmp_path):
    seeds = [write_run(tmp_path / f"avg-{seed}", seed=seed) for seed in range(2)]
    rows = [metrics(0), metrics(1, **COUNTED), metrics(2)]
    return [*seeds, write_run(tmp_path / "pit", method="FewFedPIT β=0.5", rows=rows)]


@pytest.fixture
def several(tmp_path, folders):
    return page_of(tmp_path, *folders)


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


def test_long_names_without_a_break_do_not_widen_the_page_on_a_phone(several):
    """A column of 1fr, and a flex item, is at least as wide as its longest word unless that may break anywhere."""
    css = several[: several.index("</style>")]
    phone = css[css.index("@media screen and (max-width: 700px)") : css.index("@media print")]
    columns = re.findall(r"grid-template-columns: ([^;]+);", phone)
    assert columns and not any(re.search(r"(?<!minmax\(0, )1fr", one) for one in columns)
    breaking = re.findall(r"([^{}]+)\{[^{}]*overflow-wrap: anywhere", css)
    selectors = {name.strip() for one in breaking for name in one.split(",")}
    assert {"h3", ".legend li", ".warning li", ".stack tbody th"} <= selectors


def test_it_has_every_section_and_picture(folders, several):
    found = sections(table(read_all(folders)))
    assert re.findall(r"<h2>([^<]+)</h2>", several) == [section.title for section in found]
    drawn = [picture.title for section in found for picture in pictures(section)]
    first = ["Utility against leakage"]
    assert len(drawn) == 3 and re.findall(r"<figure>\s*<h3>([^<]+)</h3>", several) == first + drawn
    assert "FedAvg and FewFedPIT β=0.5</h1>" in several
    assert "mean ± sd of 2 seeds" in several and "site &#39;b&#39; did not answer" in several


def test_a_page_about_a_classifier_says_nothing_of_answers_attacks_or_generated_text(tmp_path):
    page = page_of(tmp_path, classifier(tmp_path / "a", annotated=12, left_unlabelled=0))
    for word in ("answer", "per token", "question", "generated", "leakage figures", "rafts", "ROUGE", "Hollow"):
        assert word not in page, word
    assert "mean of −log p(label) over the texts, in nats" in page and "loss (nats per text)" in page
    assert "Leakage was not measured" in page and "(never the pattern)" in page
    assert "Texts annotated after the round" in page and "Texts left without a label" in page
    assert "Hollow, dashed: labels" in page_of(tmp_path, classifier(tmp_path / "b", pseudo_accuracy=0.5))


def test_a_page_about_both_kinds_of_record_speaks_of_both(tmp_path):
    page = page_of(tmp_path, write_run(tmp_path / "a"), classifier(tmp_path / "c"))
    assert "nothing of the question. Lower is better. Of a classifier: How improbable" in page
    assert "loss (nats per token or per text)" in page and "(never the answer or the pattern)" in page
    assert "Leakage was not measured" not in page and "the leakage figures measure one attack" in page


def test_pictures_take_every_colour_from_the_page(several):
    drawn = "".join(re.findall(r"<figure>.*?</figure>", several, re.DOTALL))
    assert not re.search(r"[: \"]#[0-9a-f]{6}\b", drawn)
    assert {"var(--series-1)", "var(--series-2)"} <= set(re.findall(r"var\(--[\w-]+\)", drawn))
    assert "font-family" not in drawn
    used = set(re.findall(r"var\((--[\w-]+)\)", several))
    dark = several[several.index("prefers-color-scheme: dark") :]
    for scheme in (several, dark[: dark.index("\n}")]):
        assert used <= set(re.findall(r"(--[\w-]+):", scheme))


def test_the_same_runs_give_the_same_bytes_and_matplotlib_is_left_as_it_was(tmp_path):
    import matplotlib

    folder, before = write_run(tmp_path / "a"), dict(matplotlib.rcParams)
    with matplotlib.rc_context({"axes.facecolor": "#123456", "font.size": 30}):
        odd = page_of(tmp_path / "1", folder)
    assert dict(matplotlib.rcParams) == before
    assert odd == page_of(tmp_path / "2", folder)


def test_names_are_escaped(tmp_path):
    hostile = "<script>alert(1)</script>"
    told = {"events": [hostile], "seconds": {hostile: 1.0}, "counts": {f"a.{hostile}": 1}, hostile: 1}
    rows, released = [metrics(0), metrics(1, **told)], [PLAIN[0] | {"field": hostile}]
    site = SiteReport(hostile, 1, 1, 0, 0)
    folder = write_run(tmp_path / "a", method=hostile, rows=rows, sites=[site], disclosure=released)
    page = page_of(tmp_path, folder)
    assert "<script" not in page
    assert page.count("&lt;script&gt;alert(1)") >= 7


def test_a_run_that_measured_nothing_still_has_a_page_of_dashes(tmp_path):
    folder = write_run(tmp_path / "a", rows=[{"round": 0}, {"round": 1, "attack_auc": None}], finished=False)
    for name in ("sites.json", "disclosure.json", "environment.json"):
        (folder / name).unlink()
    page = page_of(tmp_path, folder)
    assert "<figure>" not in page and "No ε" not in page
    assert len(re.findall(r"<td class=\"n\" data-name=\"[^\"]+\"><div>–</div></td>", page)) == 2 + 3 + 4
    assert "unfinished: round 1" in page and "<strong>Unfinished:</strong> a stopped" in page


def test_a_page_that_cannot_be_written_is_a_readable_error(tmp_path):
    folder = write_run(tmp_path / "a")
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file" / "report.html", tmp_path):
        with pytest.raises(MurmuraError) as refused:
            report.write(read_all([folder]), out)
        assert refused.value.where == str(out)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


# ---- the head --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "exclusions, told",
    [
        ({"bad": 3, "overlap": 2, "heldout": 0, "train": 1}, "3 bad, 2 also at a site, 1 too long to be shared out"),
        ({"bad": 0, "overlap": 0, "heldout": 0, "train": 0}, "none"),
    ],
)
def test_records_that_nobody_uses_are_told(tmp_path, exclusions, told):
    folder = write_run(tmp_path / "a")
    (folder / "data.json").write_text(json.dumps(exclusions))
    assert facts_of(folder)["Records left out"] == told


def test_what_was_different_after_a_resume_is_told(tmp_path):
    folders = [write_run(tmp_path / name) for name in ("a", "b")]
    events = ["the checkpoint of round 2 is damaged", "training.clip is 1.0 from here on, and was not set"]
    resumed = [{"after": 1, "changed": {"training.clip": [None, 1.0]}, "events": events}]
    (folders[0] / "resumed.json").write_text(json.dumps(resumed))
    assert facts_of(folders[0])["Options changed"] == "training.clip after round 1, from none to 1.0"
    for event in events:
        assert f"<li>after round 1: {event}</li>" in page_of(tmp_path, folders[0])
    assert facts_of(*folders)["Options changed"].startswith("training.clip of a after round 1")
    assert "Options changed" not in facts_of(folders[1])


def test_what_is_worth_knowing_stands_apart_from_what_went_otherwise_than_planned(tmp_path):
    plain = write_run(tmp_path / "a", rows=[metrics(0), metrics(1, told=["3 were found"])])
    page = page_of(tmp_path, plain)
    assert "None were recorded." in page
    assert page.index("As planned, and worth knowing:") < page.index("<li>round 1: 3 were found</li>")
    rows = [metrics(0), metrics(1, told=["3 were found"], events=["a site was late"])]
    page = page_of(tmp_path, write_run(tmp_path / "b", rows=rows))
    assert page.index("a site was late") < page.index("As planned, and") < page.index("3 were found")
    assert "As planned, and" not in page_of(tmp_path, write_run(tmp_path / "c"))


def test_how_much_trains_is_told(tmp_path):
    folder = write_run(tmp_path / "a")
    told = replace(read(folder).environment, parameters=335_000_000, trained=1_572_864)
    many = "1,572,864 of 335,000,000 parameters (0.47 %)"
    for environment, words in (
        (told, many),  # what of it travels, and in how many bits, is for the rule to say
        (replace(told, trained=335_000_000), "all 335,000,000 parameters"),
        (replace(told, trained_at="server"), f"{many}, at the server"),
        (replace(told, trained=0), "none of 335,000,000 parameters"),
    ):
        RunFolder(folder).write(ENVIRONMENT, environment)
        assert facts_of(folder)["Trained"] == words


def test_a_model_that_is_used_twice_is_named_once(tmp_path):
    folders = [write_run(tmp_path / name) for name in "ab"]
    for folder in folders:
        writers = (OtherModel(option, "tiny", "causal language model", "at the server", 7, None) for option in "xy")
        RunFolder(folder).write(ENVIRONMENT, replace(read(folder).environment, resources=tuple(writers)))
    assert facts_of(*folders)["Other models"] == "tiny (causal language model, 7 parameters, at the server)"


@pytest.mark.parametrize(("candidates", "told"), [(64, "1.38 of 6.00 bits"), (2, "0.50 of 1.00 bits")])
def test_what_chance_exposes_is_told_for_the_run_s_own_number_of_candidates(tmp_path, candidates, told):
    run = read(write_run(tmp_path / "a", sites=[SiteReport("a", 3, 3, 0, 0, canaries=1)]))
    run = replace(run, config=f"{run.config}[audit]\ncandidates = {candidates}\n")
    assert facts(table([run]))["Canaries"].endswith(told) and "<strong>Not for release:</strong> a " in render([run])


def test_what_a_page_says_of_leakage_is_what_was_measured(tmp_path):
    assert "no attack was carried out" not in page_of(tmp_path, write_run(tmp_path / "a"))
    results, *_ = sections(table(read_all([classifier(tmp_path / "b")])))
    assert "no attack was carried out" in said(results)


def test_a_block_that_no_template_shows_is_an_error_and_not_left_out():
    with pytest.raises(UndefinedError, match="no_way_to_show_this_block"):
        _templates().get_template("blocks.html.j2").module.show([object()])
