"""What anybody may see of a run."""

import pytest

from murmura.errors import RunError
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.ledger import Ledger
from murmura.federation.server.publication import OfSecretCohorts, Publication, WithoutNumbers
from murmura.federation.wire.messages import Reply
from murmura.federation.wire.releases import Count, verb
from murmura.runs.schema import FEW
from murmura.streams import Stream
from tests.federation.world import Scripted, Small, verbs_of

TIMES = {"seconds": 2.0, "at_sites": 1.0, "wall": 3.0, "peak_memory": 7}
ROW = {"round": 3, "train_loss": 1.5, **TIMES, "events": ["late"]}
FIGURES, PRIVACY = {"heldout_loss": 2.0}, {"epsilon": 1.5, "privacy": {"epsilon": 1.5}}


AUC, LOW, TPR = 13 / 20, 1 / 3, 2 / 15
LEAKAGE = {"attack_auc": AUC, "attack_auc_low": LOW, "attack_tpr": TPR, "attack_tpr_n": 15, "upload_auc": None}
LEAKAGE |= {"memorisation": 1 / 7, "member_rouge": 2 / 7, "heldout_loss": 1 / 7, "accuracy": 3 / 7, "accuracy_n": 7}


def attacked(members):
    """All figures of a round that was attacked with so many records."""
    each = {"loss": [2 / 3, LOW, 1.0]}
    one = {"attack": "loss", "members": members, "others": 36, "each": each}
    return LEAKAGE | {"attacks": {"attack": one, "upload": one}}


class Secretive(Small):
    @verb(releases={"examples": Count()}, everyone=True)
    def introduce(self, cohort, ask):
        """Never run: the engine is scripted."""


def test_where_nothing_is_guaranteed_all_is_told():
    policy = Publication(Ledger())
    policy.close(ROW, FIGURES)
    assert policy.rows([ROW]) == policy.timed([ROW]) == [ROW] and policy.saved() == {}


def test_where_something_is_guaranteed_neither_times_nor_memory():
    policy = WithoutNumbers(Ledger())
    assert policy.rows([ROW]) == [{"round": 3, "train_loss": 1.5, "events": ["late"]}] and not policy.timed([ROW])


def test_of_a_secret_cohort_neither_counts_nor_losses_times_or_events():
    policy = OfSecretCohorts(Ledger(), 1.5)
    policy.told.asked("join", 10)
    policy.begin()
    policy.told.asked("train", 200)
    policy.close(ROW | PRIVACY, FIGURES)
    [told] = policy.rows([ROW])
    traffic = {"bytes_up": 0, "bytes_down": 200, "bytes_measuring": 0, "expected": ["bytes_up", "bytes_down"]}
    assert told == {"round": 3, **FIGURES, **traffic, **PRIVACY}
    again = OfSecretCohorts(Ledger(), 1.5)
    again.restore(policy.state())
    again.rewind(policy.saved())
    assert again.rows([]) == [told] and again.told.traffic() == policy.told.traffic()


@pytest.mark.parametrize("policy", [WithoutNumbers(Ledger()), OfSecretCohorts(Ledger(), 1.5)], ids=["sites", "cohorts"])
def test_of_attacks_neither_numbers_of_private_records_nor_exact_shares_of_them(policy):
    row = ROW | attacked(15) | PRIVACY
    policy.close(row, attacked(15))
    [told] = policy.rows([row])
    known = {key: told[key] for key in told if key in {*LEAKAGE, "attack_tpr_n"}}
    rough = {"attack_auc": 0.65, "attack_auc_low": 0.333, "attack_tpr": 0.133, "upload_auc": None}
    rough |= {"memorisation": 0.143, "member_rouge": 0.286}
    assert known == rough | {"heldout_loss": 1 / 7, "accuracy": 3 / 7, "accuracy_n": 7}
    one = {"attack": "loss", "members": None, "others": 36, "each": {"loss": [0.667, 0.333, 1.0]}, "few": True}
    assert told["attacks"] == {"attack": one, "upload": one}
    assert row["attacks"]["attack"]["members"] == 15 and row["attack_tpr"] == TPR  # for the owner all is kept


def test_that_few_were_attacked_is_told_and_no_more():
    policy = WithoutNumbers(Ledger())
    less, few, many, more = policy.rows([attacked(n) for n in (5, FEW - 1, FEW, 300)])
    assert less == few != many == more


def test_what_all_sites_are_asked_is_no_secret_and_counts_as_it_was():
    engine, ledger = Scripted(lambda site, ask: Reply(site, {"examples": 3}), ["a", "b", "c"]), Ledger()
    policy = OfSecretCohorts(ledger, 1.5)
    fleet = Fleet(engine, verbs_of(Secretive(None)), ledger, Stream(0), publication=policy)
    list(fleet.ask("introduce", fleet.sites, {site: {"text": site * 10} for site in fleet.sites}))
    assert policy.told.traffic() == ledger.traffic() and ledger.traffic().down > 30
    [row] = policy.told.table()
    assert (row["messages"], row["expected"]) == (3, False)
    with pytest.raises(RunError, match="'train' is asked of a secret cohort"):
        list(fleet.ask("train", ["a"]))
