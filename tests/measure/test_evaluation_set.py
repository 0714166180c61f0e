"""Public records are the server's; a site has those that an ask brings."""

from murmura.data.records import Choice, Labelled
from murmura.federation.wire.messages import decode, encode
from murmura.measure.evaluation_set import EvaluationSet
from murmura.measure.labelled import Validation
from murmura.tasks import INSTRUCTION
from tests.federation.world import instructions, make_workbench


def test_what_is_told_is_heard_through_the_wire_and_the_validation_records_stay():
    asked = [Choice("which", "of these", ("yes", "no", "both"), 2)]
    public = EvaluationSet(
        INSTRUCTION, instructions(3, 1), instructions(2, 2), Validation([Labelled("rash", "bad")]), asked, sample=2
    )
    told = decode(encode(public.to_payload(completes=True)))
    heard = EvaluationSet.from_payload(INSTRUCTION, told)
    assert (heard.heldout, heard.nonmembers) == (public.heldout, public.nonmembers)
    assert (heard.choices, heard.sample, told["completes"], heard.validation.records) == (asked, 2, True, ())


def test_non_members_travel_only_to_be_completed():
    told = EvaluationSet(INSTRUCTION, instructions(3, 1), instructions(2, 2)).to_payload()
    assert told["nonmembers"] == [] and not told["completes"]


def test_held_out_records_stand_for_non_members_and_travel_once():
    told = EvaluationSet(INSTRUCTION, instructions(3, 1)).to_payload()
    assert (len(told["heldout"]), told["nonmembers"]) == (3, [])
    heard = EvaluationSet.from_payload(INSTRUCTION, told)
    assert heard.nonmembers is heard.heldout


def test_a_workbench_has_no_records(tokenizer):
    held = vars(make_workbench(tokenizer)).values()
    assert not any(isinstance(one, (list, tuple)) and one for one in held)
