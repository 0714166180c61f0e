"""The program in an answer."""

import pytest

from murmura.data.records import Program
from murmura.measure.benchmarks.programs import program

PROMPT = 'from math import sqrt\n\ndef helper(x):\n    return x\n\ndef root(x):\n    """The root of x."""\n'
QUESTION = Program(PROMPT, "def check(candidate):\n    assert candidate(4) == 2\n", "root")
WHOLE = "def root(x):\n    return helper(sqrt(x))\n"
BODY = "    return helper(sqrt(x))\n"


def works(answer):
    space = {}
    exec(program(QUESTION, answer), space)
    return space["root"](9) == 3


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        BODY,
        "return helper(sqrt(x))",  # a body that is not indented
        "\n" + BODY,
        f"Here you are:\n```python\n{WHOLE}```\nIt takes the root.",
        f"```\n{WHOLE}",  # cut off before the fence is closed
        f"Use a helper:\n```python\nprint('try')\n```\nThen:\n```py\n{WHOLE}```",
        "1. So:\n   ```python\n   def root(x):\n       return sqrt(x)\n   ```",
        f"The solution is:\n{WHOLE}```\nIn this example it's the root.",  # a fence that was never opened
        f"The function is\n\n{WHOLE}\nI hope that this helps: it's the root.",
        f"{PROMPT}{BODY}\n### Notes\nIt's done.",
        f"```python\n{BODY}```",
        f"import math\n\n{WHOLE}",
        f"```python\n{PROMPT}{BODY}\n# Test\nassert root(4) == 2\n```",
        f"{BODY}\nclass Other:\n    pass\n",  # a body, and what small models go on with
        "   y = sqrt(x)\n    return helper(y)\n",  # whose first space the decoder of sentence pieces has taken
        "    y = sqrt(x)\n    return helper(y)\n\n\ndef other(x):\n    return x\n",
        "return helper(sqrt(x))\n\ndef main():\n    print(root(4))\n",
        f"{BODY}\nfrom typing import List\n",
        f"{BODY}\n@property\ndef other(x):\n    retu",  # cut off
        f"{BODY}```\nIt takes the root.",
        f"{BODY}```\n\n```python\nassert root(4) == 2\n```",
        "So:\n```python\nSMALL = 1e-9\n\ndef root(x):\n    return sqrt(x) + 0 * SMALL\n```",
        "```\n# Roots of what is asked most\nKNOWN = {9: 3}\n\ndef root(x):\n    return KNOWN[x]\n```",
        "```python\nSMALL = 1e-9\ndef root(x):\n    return sqrt(x) + 0 * SMALL\nprint(root(",  # cut off
        "```\nHere it is:\n\ndef root(x):\n    return sqrt(x)\n```",  # words in fences
        f"Answer\n\n{WHOLE}",  # a word that is Python, too
        "In a word:\n\nimport math\nreturn math.sqrt(x)\n",
    ],
)
def test_the_function_is_found_and_stands_behind_what_its_prompt_begins_with(answer):
    assert works(answer)


def test_words_alone_make_no_program_that_passes_for_one():
    with pytest.raises((SyntaxError, NameError)):
        works("I cannot help with that: it's hard.")


@pytest.mark.parametrize("answer", ["", "\0", "```", "(" * 5000, "-" * 20000 + "1", "def root(x):\n" + " x" * 3000])
def test_no_answer_stops_the_judge(answer):
    assert program(QUESTION, answer).startswith("from math import sqrt")
