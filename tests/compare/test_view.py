"""The page of a comparison: what its first screen says."""

from dataclasses import replace

import pytest

from murmura.compare.choice import choose
from murmura.compare.comparison import Outcome
from murmura.compare.config import Limits
from murmura.compare.files import figures, write
from murmura.compare.outcome import Tried
from murmura.compare.view import answers, markdown, picture, section, tables
from murmura.measure.statistics import differences
from murmura.report.content import Definitions, FirstScreen, Table
from murmura.report.in_short import BETTER, COST, LEAKS, PROMISED
from murmura.units import decimal
from tests.compare.arms import audit, audited, labels, result, secret
from tests.report.blocks import blocks
from tests.report.runs import PROMISE


def outcome(*results, **limits):
    chosen = Limits(**limits)
    choice = choose(results, chosen, "instruction")
    return Outcome("clinic", results, results[0].arm, "instruction", (0, 1, 2), chosen, choice, ["A remark."])


@pytest.fixture
def found(tmp_path):
    plain = result(tmp_path, "FedAvg", [2.1, 2.12, 2.09], [0.71, 0.69, 0.7])
    tried = (Tried(1e-3, 2.4), Tried(2e-3, 2.5))
    private = result(tmp_path, "DP", [2.4, 2.45, 2.42], [0.5, 0.55, 0.51], epsilon=7.9, tried=tried)
    return outcome(plain, private)


def test_the_first_screen_answers_four_questions(found):
    told = {question: " ".join(sentences) for question, sentences in answers(found).answers.items()}
    assert list(told) == [BETTER, LEAKS, PROMISED, COST]
    before = "Before training the held-out loss was 2.250. Hardly better than that, or worse: DP; more rounds,"
    assert told[BETTER].startswith(f"{' '.join(found.choice.sentences)} {before}")
    assert "DP: ε = 7.900" in told[PROMISED] and "the search for a rate counted" in told[PROMISED]
    assert "Nothing for FedAvg." in told[PROMISED]
    assert told[COST] == "13.5 MB sent, 90.0 s, for each of them."


def test_leakage_has_the_wider_interval_of_two(found):
    leaking = " ".join(answers(found).answers[LEAKS])
    private = found.results[1]
    assert private.leakage.low < 0.47 and private.leakage_at_most > 0.57  # over seeds 0.454 to 0.586, else ± 0.05
    assert f"52 (95 %: {100 * private.leakage.low:.0f} to {100 * private.leakage_at_most:.0f}) for DP" in leaking
    assert "70 (95 %: 65 to 75) for FedAvg" in leaking  # over records, wider than over seeds
    assert "Nothing was shown for DP" in leaking
    assert "In what a single site sends, before it is mixed with the others’: 75 for FedAvg and" in leaking


def test_without_attacks_the_picture_is_of_utility(tmp_path):
    plain = outcome(result(tmp_path, "FedAvg", [2.1, 2.12, 2.09]), result(tmp_path, "B", [2.3, 2.4]))
    drawn = answers(replace(plain, linear={0: 0.7, 1: 0.8})).picture
    assert drawn.title == "Held-out loss" and "utility alone" in drawn.caption
    assert "Bars are 95 % intervals" in drawn.caption  # of the arm with three seeds
    assert 'aria-label="Held-out loss. FedAvg: 2.103; B: 2.350; a linear model: 0.750."' in drawn.svg
    assert "The model itself was not attacked while the run went on." in answers(plain).answers[LEAKS]


def test_what_audits_attacked_is_not_said_to_have_been_attacked_by_nobody(tmp_path):
    """An audit uses what no run's own attack has, so what it finds is in no picture."""
    later = audited(result(tmp_path, "FedAvg", [2.1]), audit(model={"RMIA": 0.8}))
    alone, beside = picture(outcome(later)), picture(outcome(result(tmp_path, "DP", [2.4], [0.7]), later))
    assert "None of these was attacked while it ran (evaluation.attacks), so" in alone.caption
    assert "Not attacked while they ran, and so not drawn: FedAvg." in beside.caption


def test_an_arm_about_another_kind_of_record_is_in_no_picture(tmp_path):
    plain = result(tmp_path, "FedAvg", [2.1, 2.2])
    other = replace(result(tmp_path, "PrE-Text", [3.1, 3.2], [0.5, 0.6]), kind="document")
    found = outcome(plain, other)
    write(found, tmp_path)
    drawn = (tmp_path / "comparison.svg").read_text()
    assert "FedAvg" in drawn and "PrE-Text" not in drawn


def test_an_arm_that_was_not_attacked_is_named_beside_the_picture(tmp_path):
    attacked, not_so = result(tmp_path, "FedAvg", [2.1], [0.7]), result(tmp_path, "DP-LoRA", [2.4])
    drawn = picture(outcome(attacked, not_so))
    assert drawn.title == "Utility against leakage"
    assert "Not attacked while they ran, and so not drawn: DP-LoRA." in drawn.caption
    assert "hollow" not in drawn.caption  # of one seed each


def test_the_picture_says_whether_one_attack_was_found_for_all(tmp_path):
    arms = [result(tmp_path, name, [2.1, 2.2], [0.7, 0.6]) for name in "AB"]
    common = [replace(one, attacks={"attack": "error zone"}) for one in arms]
    assert "AUC of the strongest attack" in picture(outcome(*arms)).svg
    assert "AUC of one attack" in picture(outcome(*common)).svg


def test_where_all_have_diverged_there_is_no_picture(tmp_path):
    assert picture(outcome(result(tmp_path, "FedAvg", [float("nan")]))) is None


def test_an_epsilon_that_an_audit_contradicts_is_not_to_be_relied_on(found):
    assert "Do not rely" not in " ".join(answers(found).answers[PROMISED])
    for run in found.results[1].runs.values():
        run.last.values["audit_epsilon"], run.last.privacy["epsilon"] = 9.0, 7.9
    assert "Do not rely on it: an audit of s0 has shown" in " ".join(answers(found).answers[PROMISED])


def test_an_epsilon_of_a_record_is_not_taken_for_that_of_a_person(tmp_path):
    private = result(tmp_path, "DP", [2.4], epsilon=7.9, privacy=PROMISE["privacy"])
    plain = result(tmp_path, "FedAvg", [2.1])
    assert "A person" not in " ".join(answers(outcome(plain, private)).answers[PROMISED])
    more = 'user = "patient"\nrecords_per_user = 3\n'  # of [data], which comes last
    runs = [replace(one.runs[0], config=one.runs[0].config + more) for one in (plain, private)]
    of_persons = [replace(one, runs={0: run}) for one, run in zip((plain, private), runs, strict=True)]
    told = " ".join(answers(outcome(*of_persons)).answers[PROMISED])
    assert "DP: A person may have 3 records at a site" in told and "FedAvg: A person" not in told


def test_leakage_of_other_kinds_of_record_is_not_compared(tmp_path):
    plain = result(tmp_path, "FedAvg", [2.1, 2.2], [0.7, 0.6])
    assert "cannot be compared" not in " ".join(answers(outcome(plain)).answers[LEAKS])
    other = replace(result(tmp_path, "PrE-Text", [3.1, 3.2], [0.5, 0.6]), kind="document")
    leaking = " ".join(answers(outcome(plain, other)).answers[LEAKS])
    assert "for FedAvg" not in leaking and "for PrE-Text" not in leaking  # one alone, which is told as such
    assert "Read in another way, and so not compared with these: PrE-Text." in leaking


def test_a_cell_about_another_kind_of_record_says_which_figure_it_is(tmp_path):
    worth, _ = tables(outcome(result(tmp_path, "FedAvg", [2.1, 2.2]), labels(tmp_path, "words")))
    plain, words = (row[1] for row in worth.entries)
    assert worth.columns[1] == "Held-out loss" and not any("records" in one for one in plain.small)
    assert (words.text, words.small) == ("0.500", ("accuracy, of labelled records",))


def test_every_column_is_explained_and_leakage_has_a_bar(found):
    worth, _, cost = blocks(section(found), Table)
    meant = {term for block in blocks(section(found), Definitions) for term in block.terms}
    named = {title.lower() for title in (*worth.columns[1:], *cost.columns[1:])} - {"time of a run"}
    assert named <= {term.lower() for term in meant}
    leaking = [row[3].span for row in worth.entries]
    assert [(round(one.at, 3), one.guess) for one in leaking] == [(0.7, 0.5), (0.52, 0.5)]
    assert all(0 <= one.low < one.at < one.high <= 1 for one in leaking)
    assert all(row[1].span is None for row in worth.entries)  # a loss has no scale from 0 to 1


def test_they_come_first_and_are_in_markdown_too(found):
    assert isinstance(section(found).blocks[0], FirstScreen)
    text = markdown(section(found))
    assert text.startswith(f"- **{BETTER}** {found.choice.sentences[0]}") and "A remark." in text


def test_leakage_at_equal_utility_has_a_table_where_rounds_were_measured(found):
    [table] = [one for one in blocks(section(found), Table) if one.title == "What it leaks at equal utility"]
    [[arm, useful, *_, far]] = table.entries
    assert arm.text == "DP" and useful.text == "2.125"  # as good as it became before it grew worse
    assert far.text.startswith(("+", "−", "0"))


def test_what_a_row_is_of_is_said_where_it_is_not_all_seeds(tmp_path):
    whole = result(tmp_path, "FedAvg", [2.1, 2.12, 2.09], [0.71, 0.69, 0.7])
    found = outcome(whole, result(tmp_path, "DP", [2.4, None, 2.42], [0.5, 0.55, 0.51]))
    text = markdown(section(found))
    assert "Every arm was to be run with seeds 0, 1 and 2" in text and text.count("DP (2 seeds of 3)") == 2
    alone = outcome(result(tmp_path / "alone", "FedAvg", [2.1], [0.71]))
    text = markdown(section(replace(alone, seeds=(0,))))
    assert "Every arm was run with seed 0, on the same records." in text and "intervals" not in text


def test_a_control_has_the_rate_of_another_arm(tmp_path):
    tried = (Tried(1e-3, 2.4), Tried(2e-3, 2.5))
    plain = result(tmp_path, "FedAvg", [2.1, 2.12], tried=tried)
    control = replace(result(tmp_path, "control", [2.4, 2.45], tried=tried), rate_of="FedAvg")
    _, cost = tables(outcome(plain, control))
    own, its = (row[-1] for row in cost.entries)
    assert "at the edge" in own.small and its.small == ("as FedAvg has it",)


def test_bytes_that_are_expected_are_not_told_as_counted(tmp_path):
    found = outcome(result(tmp_path, "FedAvg", [2.1]), secret(result(tmp_path, "DP", [2.4])))
    _, cost = tables(found)
    assert [one["bytes_are_expected"] for one in figures(found)["arms"]] == [False, True]
    assert [(row[2].text, row[2].small) for row in cost.entries] == [("13.5 MB", ()), ("13.5 MB", ("expected",))]


def test_intervals_are_drawn_from_three_seeds_on(tmp_path, found):
    assert "Bars are 95 % intervals" in picture(found).caption
    two = outcome(result(tmp_path, "Two", [2.1, 2.2], [0.7, 0.6]))
    assert "Bars" not in picture(two).caption and "Small hollow marks are single seeds." in picture(two).caption


def test_an_arm_that_is_called_like_the_linear_model_stays_itself_and_p_values_are_the_arms_alone(tmp_path):
    arms = [
        result(tmp_path, "FedAvg", [2.1, 2.12, 2.09]),
        result(tmp_path, "linear", [2.4, 2.45, 2.42]),
        result(tmp_path, "a linear model", [2.2, 2.3, 2.21]),
    ]
    plain = outcome(*arms)
    without, _ = tables(plain)
    worth, _ = tables(replace(plain, linear={0: 2.5, 1: 2.55, 2: 2.44}))
    assert worth.entries[:3] == without.entries
    *_, last = worth.entries
    assert len(worth.entries) == 4 and last[2].text == "+0.393"
    own = differences({"it": {0: 2.5, 1: 2.55, 2: 2.44}}, {0: 2.1, 1: 2.12, 2: 2.09})["it"]
    assert f"p = {decimal(own.p)}" in last[2].words  # corrected for nothing: it is no arm
