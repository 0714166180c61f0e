from typing import get_args

import pytest

from murmura.methods.fewfedpit.rejections import Rejection, left_without


def told(*counts, asked=3):
    sites = {f"site-{k}": {f"drafts.{name}": n for name, n in own.items()} for k, own in enumerate(counts)}
    return left_without(sites, asked, "so it went")


@pytest.mark.parametrize("rejection", get_args(Rejection))
def test_every_reason_has_words_and_a_way_out(rejection):
    reason, fix = told({rejection: 3}).partition("Most often, ")[2].split(" (3 of 3): ")
    assert " " in reason and " " in fix


def test_the_commonest_reason_of_all_these_sites_is_told():
    one = told({"too_short": 5, "similar": 2}, {"similar": 4})
    assert "2 of 3 sites had no synthetic record to train on (site-0, site-1); so it went." in one
    assert "too much like one of the site's own or an earlier one (6 of 11): raise method.rouge" in one


def test_what_was_not_even_tried_is_a_reason_only_where_there_is_no_other():
    assert "fewer than 4 words (1 of 1)" in told({"too_short": 1, "same_prompt": 20})
    assert "too few records for another prompt that differs (20 of 20)" in told({"same_prompt": 20})


def test_many_sites_are_not_all_named():
    assert "(site-0, site-1, site-2, site-3, site-4 ...)" in told(*[{"empty": 1}] * 9, asked=50)
