"""What is left of an audit's findings where the run promises an ε."""

import pytest

from murmura.audit.published import published
from murmura.runs.audit import Audit, AuditedModel, Centred, CentreShare, Extraction, Histogram, Separation, Written


def found(members):
    model = AuditedModel(
        "model",
        members,
        40,
        "x",
        (Separation("x", 2 / 3, 1 / 7, 6 / 7, None, None, None),),
        Histogram((0.0, 0.5, 1.0), (1, members - 1), (30, 10)),
    )
    tries = Extraction(
        "model", 1.0, 40, 0.99999, members, 40, (1, 10), (0.0, 1 / 7), (0.0, 1 / 9), (1 / 3, 0.5), (0, 0)
    )
    texts = [Written("model", prompt, members, 40, 0.5, 1 / 3, 1 / 6, 0.0, 0.25) for prompt in ("record", "template")]
    return Audit("0.1", "2026-01-01T00:00:00+00:00", (model,), ("Left out.",), (tries,), tuple(texts))


@pytest.mark.parametrize("members", [21, 200])
def test_shares_are_rounded_and_their_number_is_left_out(members):
    told = published(found(members))
    [model], [tries], (record, template) = told.models, told.extraction, told.written
    assert (model.members, tries.members, record.members, template.members) == (None, None, None, members)
    assert (model.attacks[0].auc, model.attacks[0].low, model.attacks[0].tpr) == (0.667, 0.143, None)
    assert (tries.found, tries.p, record.others_rouge) == ((0.0, 0.143), 0.99999, 0.333)
    assert model.histogram.others == (30, 10) and sum(model.histogram.members) == pytest.approx(100, abs=1)
    assert told.missing == ("Left out.",) and "covers none of this" in (told.caveat or "")


def test_that_there_were_few_is_told_all_the_same():
    told = published(found(19))
    assert "Fewer than 20 of the sites’ records" in told.missing[-1] and told.models[0].says_little
    assert not published(found(20)).models[0].says_little


def test_how_many_centres_and_records_there_were_is_not_told():
    groups = (CentreShare(1, 1, 7, 1 / 7, 0.1234567, 0.7, 2 / 7),)
    found = Centred("sent", 100, 53, 1 / 153, groups)
    [told] = published(Audit("0.1", "now", (), centres=(found,))).centres
    assert (told.records, told.pool, told.chance) == (None, 100, 0.007)
    assert told.groups == (CentreShare(1, 1, None, 0.143, 0.123, 0.7, 0.286),)
