"""Golden texts: each byte of a template is part of the method."""

import copy
import hashlib
from datetime import datetime
from functools import partial

import pytest
from jinja2 import TemplateError

from murmura.data.records import Instruction
from murmura.data.templates import TEMPLATES, template
from murmura.errors import DataError

PLAIN = Instruction("Name a fruit.", output="Fig.")
GIVEN = Instruction("Translate.", "la figue\n", "the fig")

GOLDEN = {
    ("alpaca", PLAIN): (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "\n"
        "### Instruction:\n"
        "Name a fruit.\n"
        "\n"
        "### Response:"
    ),
    ("alpaca", GIVEN): (
        "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
        "response that appropriately completes the request.\n"
        "\n"
        "### Instruction:\n"
        "Translate.\n"
        "\n"
        "### Input:\n"
        "la figue\n"
        "\n"
        "\n"
        "### Response:"
    ),
    ("alpaca-merged", PLAIN): (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "\n"
        "### Instruction:\n"
        "Name a fruit. \n"
        "\n"
        "### Response: "
    ),
    ("alpaca-merged", GIVEN): (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "\n"
        "### Instruction:\n"
        "Translate. la figue\n \n"
        "\n"
        "### Response: "
    ),
    ("feddca", PLAIN): (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "\n"
        "### Instruction:\n"
        "Name a fruit. \n"
        "\n"
        "### Response:"
    ),
    ("feddca", GIVEN): (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "\n"
        "### Instruction:\n"
        "Translate. la figue\n \n"
        "\n"
        "### Response:"
    ),
    ("flowertune", PLAIN): (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "### Instruction:\n"
        "Name a fruit.\n"
        "### Response:"
    ),
    ("flowertune", GIVEN): (
        "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n"
        "### Instruction:\n"
        "Translate. la figue\n\n"
        "### Response:"
    ),
    ("chat", PLAIN): "<|im_start|>user\nName a fruit.<|im_end|>\n<|im_start|>assistant\n",
    ("chat", GIVEN): "<|im_start|>user\nTranslate.\n\nla figue\n<|im_end|>\n<|im_start|>assistant\n",
}
PREFIXES = {
    "alpaca": "### Response:",
    "alpaca-merged": "### Response: ",
    "feddca": "### Response:",
    "flowertune": "### Response:",
    "chat": "<|im_start|>assistant\n",
}


@pytest.mark.parametrize(("name", "record"), GOLDEN)
def test_texts_are_golden(name, record, tokenizer):
    made = template(name, tokenizer)
    assert made.name == name
    assert made.prompt(record) == GOLDEN[name, record]
    assert made.full(record) == GOLDEN[name, record] + record.output


def test_alpaca_is_stanfords_by_digest():
    """SHA-256 of the two prompts in stanford_alpaca/train.py as published, slots unfilled: golden texts above that
    were copied from our own output would not notice a slip in both."""
    made = template("alpaca")
    texts = [made.prompt(Instruction("{instruction}", given)) for given in ("", "{input}")]
    digests = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    assert digests == ["35101bc36d10997c", "28811e9850d9511b"]


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_response_prefix_ends_every_prompt(name, tokenizer):
    made = template(name, tokenizer)
    assert made.response_prefix == PREFIXES[name]
    for record in (PLAIN, GIVEN):
        assert made.prompt(record).endswith(made.response_prefix)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_prompt_does_not_depend_on_the_response(name, tokenizer):
    made = template(name, tokenizer)
    assert made.prompt(Instruction("a", "b", "c")) == made.prompt(Instruction("a", "b"))


def test_braces_in_a_record_are_text():
    assert "{input} {} {{x}}" in template("alpaca").prompt(Instruction("{input} {} {{x}}", "{instruction}"))


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "chat"])
@pytest.mark.parametrize(
    "record", [PLAIN, GIVEN, Instruction("\n {{ x }} \"'\\n é \n", "{% y %}\n"), Instruction("murmura", "murmurinput")]
)
def test_a_tokenizer_asks_with_it_as_was_trained(tokenizer, name, record):
    made = template(name)
    said = {"role": "user", "content": record.instruction} | ({"input": record.input} if record.input else {})
    render = partial(with_chat(tokenizer, made.jinja).apply_chat_template, tokenize=False)
    assert render([said], add_generation_prompt=True) == made.prompt(record)
    answered = [said, {"role": "assistant", "content": record.output}]
    assert render(answered) == made.full(record) + tokenizer.eos_token


def test_what_no_template_has_a_place_for_is_refused_and_not_left_out(tokenizer):
    with pytest.raises(TemplateError, match="of the roles user and assistant"):
        with_chat(tokenizer, template("alpaca").jinja).apply_chat_template([{"role": "system", "content": "Be kind."}])


def with_chat(tokenizer, text):
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = text
    return changed


def test_a_chat_template_that_always_opens_the_answer(tokenizer):
    """Llama 2's kind: no generation prompt, the answer begins after the mark that ends the user's turn."""
    made = template("chat", with_chat(tokenizer, "[INST] {{ messages[0].content }} [/INST]"))
    assert made.response_prefix == " [/INST]"
    assert made.prompt(PLAIN) == "[INST] Name a fruit. [/INST]"


@pytest.mark.parametrize(
    "text",
    [
        "{{ strftime_now('%d %b %Y') }}",
        "{% if strftime_now is defined %}{% set day = strftime_now('%d %b %Y') %}{% else %}?{% endif %}{{ day }}",
        "  {% if true %}\n\n{{ strftime_now('%d %b %Y') }}{% endif %}",
    ],
)
def test_a_chat_template_that_prints_the_date_gets_a_fixed_one(tokenizer, text):
    text += "|{{ messages[0].content }}|"
    today = datetime.now().strftime("%d %b %Y")
    changed = with_chat(tokenizer, text)
    rendered = changed.apply_chat_template([{"role": "user", "content": PLAIN.instruction}], tokenize=False)
    assert today in rendered
    assert template("chat", changed).prompt(PLAIN) == rendered.replace(today, "26 Jul 2024")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "has no chat template"),
        ("{{ raise_exception('system first') }}", r"takes no single user turn \(system first\)"),
        ("{{ messages[0].content }}", "does not mark where the response begins"),
        ("fixed", "does not mark where the response begins"),
    ],
)
def test_a_chat_template_that_cannot_serve_is_refused(tokenizer, text, why):
    with pytest.raises(DataError, match=rf"{why}.*Use the template 'alpaca'"):
        template("chat", with_chat(tokenizer, text))
