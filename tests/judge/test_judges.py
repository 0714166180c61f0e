"""A judge of this process."""

from murmura.judge.judges import LocalJudge
from murmura.streams import Stream
from murmura.synthesis.generators import Request
from tests.conftest import WORDS


def test_what_leaves_no_room_for_a_verdict_is_not_asked(llama_folder):
    """512 tokens are all that the model was made for: behind them nothing that it says means anything."""
    judge, given = LocalJudge(str(llama_folder), 40), []
    own = [len(judge._ids(" ".join(WORDS[:20] * times))) for times in (1, 24, 40)]
    requests = [Request(k, 0, " ".join(WORDS[:20] * times), Stream(0)) for k, times in enumerate((1, 24, 40))]
    for answers in judge.answers(iter(requests)):
        given += [one.text for one in answers]
    assert own[0] + 40 <= 512 and 512 - 40 < own[1] < 512 < own[2]
    assert given[2] is None and None not in given[:2]
    assert len(judge._tokenizer(given[1], add_special_tokens=False)["input_ids"]) <= 512 - own[1]
