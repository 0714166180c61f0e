"""What becomes of attempts at a draft that come to nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

_Wording = Literal["empty", "unfinished", "refusal", "too_short", "too_long", "bad_start", "keyword", "program"]
_Example = Literal["same_prompt", "no_response", "not_tried", "copied", "echo", "short_response"]
Rejection = Literal[_Wording, "similar", _Example]
"""Why there is no draft; counted as ``drafts.FATE``."""

REASONS: Mapping[str, str] = {
    "empty": "the model wrote nothing where a new instruction was due",
    "unfinished": "a new instruction was cut off in its first sentence",
    "refusal": "the model refused or apologised instead of writing an instruction",
    "too_short": "a new instruction had fewer than 4 words",
    "too_long": "a new instruction had more than 150 words",
    "bad_start": "a new instruction began with punctuation, or not in ASCII where all of the site’s own do",
    "keyword": "a new instruction was about images, files or the like",
    "program": "a new instruction asked for a program",
    "similar": "a new instruction was too much like one of the site's own or an earlier one",
    "same_prompt": "the site has too few records for another prompt that differs",
    "no_response": "no response could be made out in what followed a new instruction",
    "not_tried": "no attempt was left for a new instruction",
    "copied": "a draft was too much like one of the site's own records",
    "echo": "a response only repeated its question",
    "short_response": "a response had fewer than 3 tokens",
}
"""The rejections in words."""


def counted(rejection: str) -> str:
    """The name under which a rejection is counted."""
    return f"drafts.{rejection}"
