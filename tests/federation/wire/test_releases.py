"""What verbs declare that they release, as it is entered for the disclosure table."""

import pytest
import torch

from murmura.federation.method import Method
from murmura.federation.traits import Traits
from murmura.federation.wire.releases import (
    Count,
    DifferentialPrivacy,
    Embeddings,
    SecureSum,
    Verbs,
    Weights,
    disclosed,
    protection_from_json,
    verb,
)
from tests.federation.world import ENGINES, make_world

NOISY = DifferentialPrivacy("record", "site", "Gaussian, σ = 2")


class Describing(Method):
    """Sites tell the means of their texts' vectors."""

    traits = Traits(label="Describing")

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"mean": Embeddings("mean of the texts' vectors", NOISY)}, slots=False)
    def describe(self, cohort, ask):
        embed = cohort.runtime.bank.model.get_input_embeddings()
        texts = [[record.instruction for record in site.records] for site in cohort.sites]
        ids = [cohort.runtime.tokenizer(of_site, padding=True, return_tensors="pt")["input_ids"] for of_site in texts]
        return cohort.reply(mean=[embed(of_site).mean((0, 1)).detach() for of_site in ids])


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_embeddings_reach_the_server_and_are_disclosed_as_such(tokenizer, tmp_path, engine):
    world = make_world(tokenizer, Describing(None), tmp_path, sizes=(1, 2), engine=engine)
    vectors = [reply["mean"] for reply in world.fleet.ask("describe", world.fleet.sites)]
    width = world.runtime.bank.model.config.hidden_size
    assert [vector.shape for vector in vectors] == [(width,)] * 2 and not torch.equal(*vectors)
    [row] = world.ledger.table()
    assert (row["verb"], row["field"], row["kind"]) == ("describe", "mean", "embeddings")
    assert (row["what"], row["messages"], row["bytes"]) == ("mean of the texts' vectors", 2, 2 * 4 * width)
    assert protection_from_json(row["protection"]) == NOISY


def test_a_secure_sum_is_disclosed_beside_what_protects_already():
    class Summed(Verbs):
        def secure(self, name):
            return SecureSum("masks") if name == "train" else None

        @verb(releases={"adapter": Weights(protection=NOISY, note="as told."), "examples": Count()})
        def train(self, cohort, ask):
            """Never run."""

        @verb(releases={"examples": Count()})
        def tell(self, cohort, ask):
            """Never run."""

    found = disclosed(Summed(), "train")
    assert found["examples"].protection == SecureSum("masks")
    assert found["adapter"].protection == NOISY and found["adapter"].note == "as told. secure sum: masks."
    assert disclosed(Summed(), "tell") == Summed().releases("tell")
