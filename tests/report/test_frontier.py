"""The picture of utility against leakage: names that fit, and say what they say."""

import re

from murmura.measure.catalogue import figure
from murmura.report.frontier import Mark, frontier_picture
from murmura.report.style import style


def drawn(*names):
    marks = [Mark(name, style(place), 2.0 + place / 10, 0.6) for place, name in enumerate(names)]
    return frontier_picture(marks, figure("heldout_loss"), "").svg


def shown(svg):
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_names_are_no_mathematics():
    assert {"a $x^2$ b", "only one $"} <= set(shown(drawn("a $x^2$ b", "only one $")))


def test_long_names_lose_their_middle_in_the_picture_and_nothing_in_its_words():
    long = [f"FewFedPIT β=0.3 (method.keep = {keep}, method.scorer = ifs, rank = {keep})" for keep in (4, 8)]
    svg = drawn(*long)
    names = [text for text in shown(svg) if text.startswith("FewFedPIT")]
    assert len(set(names)) == 2 and all(len(name) <= 20 for name in names)
    assert all(f"{name}: held-out loss" in svg for name in long)


def test_markup_in_a_name_stays_text():
    svg = drawn('<b>&"')
    assert "<b>" not in svg and "&lt;b&gt;&amp;&quot;: held-out loss" in svg
