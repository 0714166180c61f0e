"""Public records that stand in for synthetic ones; the server draws them, and sites are sent theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from itertools import islice

from murmura.data.loading import load_records
from murmura.data.records import Instruction
from murmura.data.refusal import REMOVE
from murmura.data.texts import text_hash
from murmura.errors import ConfigError
from murmura.federation.wire.messages import Payload
from murmura.methods.fewfedpit.config import SyntheticConfig
from murmura.model_runtime import ModelRuntime
from murmura.progress import say
from murmura.streams import Stream

PUBLIC = "public"  # the field of an ask


@dataclass(frozen=True)
class Substitute:
    """A public data set.

    Args:
        records: all of it.
        fit: those that fit the model.
        keep: how many a site trains on in a round; there are at least so many that fit.
    """

    records: Sequence[Instruction]
    fit: frozenset[Instruction]
    keep: int

    @classmethod
    def load(cls, config: SyntheticConfig, runtime: ModelRuntime, measured_with: Iterable[str]) -> Substitute:
        """Read the records of an experiment.

        Args:
            runtime: the server's.
            measured_with: questions that the run is measured with; records that ask one are left out.

        Raises:
            DataError: they cannot be read.
            ConfigError: there are too few that fit.
        """
        assert config.substitute is not None
        found = load_records(config.substitute, Instruction, renaming="", remedy=REMOVE).records
        withheld = {*map(text_hash, measured_with)}
        records = [record for record in found if text_hash(record.subject) not in withheld]
        if len(records) < len(found):
            say(f"{len(found) - len(records)} public records are ones that the run is measured with, and are left out")
        kept = runtime.reading.fit(records).kept
        if len(kept) < config.keep:
            what = f"the substitute has {len(records)} records"
            fix = "Lower method.keep, or give more public records."
            if len(kept) < len(records):
                what += f", of which {len(kept)} fit {runtime.max_length} tokens"
                fix = "Lower method.keep, raise data.max_length, or give more public records."
            raise ConfigError(f"{what}; a site trains on {config.keep}", where=config.substitute, fix=fix)
        say(f"{len(kept)} public records of {config.substitute_name} stand in for synthetic ones")
        return cls(records, frozenset(records[index] for index in kept), config.keep)

    def draw(self, sites: Sequence[str], stream: Stream) -> dict[str, Payload]:
        """Records at random for each site, of those that fit, as fields of an ask.

        Args:
            sites: the round's cohort.
            stream: of the round.
        """
        return {site: {PUBLIC: self._drawn(stream / "substitute" / site)} for site in sites}

    def _drawn(self, stream: Stream) -> list[list[str]]:
        order = stream.python().sample(self.records, len(self.records))
        fitting = (record for record in order if record in self.fit)
        return [list(astuple(record)) for record in islice(fitting, self.keep)]
