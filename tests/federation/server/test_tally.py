"""What a round comes to."""

from types import SimpleNamespace

from murmura.federation.server.ledger import Traffic
from murmura.federation.server.tally import Tally


def ledger(*states):
    """One whose traffic is read twice."""
    left = iter(states)
    return SimpleNamespace(traffic=lambda: next(left))


def fleet(**ledgers):
    return SimpleNamespace(round=3, events=["a site was late"], told=["it found 3"], at_sites=1.5, **ledgers)


def test_a_row_has_what_came_since_the_round_began():
    tally = Tally(fleet(ledger=ledger(Traffic(5, 10, 1), Traffic(8, 30, 1))))
    tally.count({"kept": 2})
    tally.count({"kept": 1, "lost": 4})
    tally.losses += [1.0, 2.0]
    tally.noted |= {"coverage": 0.5, "heldout_loss": 9.0}
    row = tally.row({"heldout_loss": 2.0}, {"epsilon": 1.5}, 7)
    assert (row["round"], row["bytes_up"], row["bytes_down"], row["bytes_measuring"]) == (3, 3, 20, 0)
    assert (row["train_loss"], row["counts"], row["peak_memory"]) == (1.5, {"kept": 3, "lost": 4}, 7)
    assert (row["coverage"], row["heldout_loss"], row["epsilon"]) == (0.5, 2.0, 1.5)  # what is measured goes before
    assert (row["events"], row["told"]) == (["a site was late"], ["it found 3"]) and row["wall"] >= 0
    assert row["at_sites"] == 1.5
