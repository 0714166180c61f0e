from collections import Counter

import pytest

from murmura.data.records import Instruction
from murmura.drafting.draft import Drafts
from murmura.methods.fewfedpit import synthetic


def written(topic, count):
    """What a site's model would write, were it any good: it depends on the site's name and on nothing else."""
    return [
        Instruction(f"write note {i} about the {topic}", "", f"a new {topic} note {i} says rest and drink")
        for i in range(count)
    ]


@pytest.fixture
def drafted(monkeypatch):
    """Let drafting succeed: each site gets the drafts that ``written`` gives it. Yields the orders, as they come."""
    orders = []

    def draft(runtime, given, config):
        orders.extend(given)
        return [
            Drafts(written(order.stream.path[-1], config.drafts), Counter({"drafts.similar": 2})) for order in given
        ]

    monkeypatch.setattr(synthetic, "draft", draft)
    return orders
