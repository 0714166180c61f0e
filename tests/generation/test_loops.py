import pytest

from murmura.generation.loops import complete_sentences, goes_round, whole


@pytest.mark.parametrize(
    "text",
    [
        "Sleep is good. " * 4,
        "1) Drink tea. 2) Drink tea. 3) Drink tea. 4) Drink tea.",
        "Aged 5, ten years ago, ten years ago, ten years ago, 20 ten years ago,",
        "Eat. Drink. Eat. Drink. Eat. Drink. Eat.",
        "Rest. Rest. Drink. Drink. Rest. Rest. Drink. Drink. Rest. Rest. Drink. Drink. Rest.",
        "Well. 1. Rest: now. 2. Rest: now. 3. Rest: now. 4. Rest:",
        "喝水。喝水。喝水。喝水。",
    ],
)
def test_a_fourth_repetition_is_a_loop(text):
    assert goes_round(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Sleep is good. " * 3,
        "Sleep is good. Sleep is good. Sleep is good. Sleep is good",  # the last one is not complete
        "1. 2. 3. 4. 5. 6.",
        "Take aspirin 75 mg, ramipril 5 mg, atenolol 25 mg, digoxin 125 mg.",
        "One, two, one, two, one, two, one more,",
        "Step 1: Wash your hands.\nStep 2: Dry them.\nStep 3: Open the pack.\nStep 4:",
        "1. Day: rest\n2. Day: walk\n3. Day: swim\n4. Day:",
        "Q: Is it red?\nA: No.\nQ: Is it hot?\nA: No.\nQ: Does it itch?\nA: No.\nQ: Did it grow?\nA: No.",
        "Monday, 5 mg\nTuesday, 5 mg\nWednesday, 5 mg\nThursday, 5 mg\n",
        "Monday: 5 mg, once.\nTuesday: 5 mg, once.\nWednesday: 5 mg, once.\nThursday: 5 mg, once.\n",
    ],
)
def test_other_texts_are_not(text):
    assert not goes_round(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three", "One. Two!"),
        ("Rest. Drink. Rest. Drink. Rest", "Rest. Drink."),
        ("1) Drink tea. 2) Drink tea. 3) Drink", "1) Drink tea."),
        ("Do this:\n1. Rest\n2. Drink\n3. E", "Do this:\n1. Rest\n2. Drink"),
        ("First.\n2.", "First."),
        ("The dose is 2.5 mg. Take it at 7.30 and", "The dose is 2.5 mg."),
        ('He said "stay." Then', 'He said "stay."'),
        ("喝水。休息", "喝水。"),
        ("no end in sight", ""),
        ("", ""),
    ],
)
def test_what_is_kept_of_an_unfinished_text(text, expected):
    assert complete_sentences(text) == expected


def test_what_can_be_trained_on_of_a_text():
    assert whole(" Rest. Drink ", True) == "Rest. Drink"
    assert whole(" Rest. Drink", False) == "Rest."
    assert whole("Drink and", False) == ""
