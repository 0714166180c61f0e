"""Verbs and what they declare."""

import pytest

from murmura.errors import UndeclaredReleaseError
from murmura.federation.method import Method
from murmura.federation.traits import Traits
from murmura.federation.wire.releases import Count, Metric, verb


class Base(Method):
    traits = Traits(label="Base")

    def lead(self, server, fleet):
        """Nothing to do."""

    @verb(releases={"examples": Count()})
    def count(self, cohort, ask):
        return cohort.reply(examples=cohort.sizes)

    def helper(self):
        """Not a verb."""


class Derived(Base):
    def count(self, cohort, ask):
        """Overridden without saying what it releases."""


class Declared(Base):
    @verb(releases={"examples": Count(), "loss": Metric("loss")})
    def count(self, cohort, ask):
        """Declares one field more."""


def test_what_verbs_declare():
    assert Base(None).releases("count").keys() == {"examples"}
    assert Declared(None).releases("count").keys() == {"examples", "loss"}


@pytest.mark.parametrize("name", ["helper", "lead", "releases", "nothing"])
def test_what_is_no_verb(name):
    with pytest.raises(UndeclaredReleaseError, match=f"{name} is not a verb of Base"):
        Base(None).releases(name)


def test_an_override_must_declare_again():
    with pytest.raises(UndeclaredReleaseError, match="count is not a verb of Derived"):
        Derived(None).releases("count")
