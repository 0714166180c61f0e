"""Public records that stand in for synthetic ones; the server draws them, and sites are sent theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from murmura.data.loading import load_records
from murmura.data.records import Instruction
from murmura.data.refusal import REMOVE
from murmura.data.texts import text_hash
from murmura.data.tokenising import tokenise_all
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
        keep: how many a site trains on in a round.
    """

    records: Sequence[Instruction]
    keep: int

    @classmethod
    def load(cls, config: SyntheticConfig, measured_with: Iterable[str]) -> Substitute:
        """Read the records of an experiment.

        Args:
            measured_with: questions that the run is measured with; records that ask one are left out.

        Raises:
            DataError: they cannot be read.
            ConfigError: there are too few.
        """
        assert config.substitute is not None
        found = load_records(config.substitute, Instruction, renaming="", remedy=REMOVE).records
        withheld = {*map(text_hash, measured_with)}
        records = [record for record in found if text_hash(record.subject) not in withheld]
        if len(records) < len(found):
            say(f"{len(found) - len(records)} public records are ones that the run is measured with, and are left out")
        if len(records) < config.keep:
            what = f"the substitute has {len(records)} records, a site trains on {config.keep}"
            raise ConfigError(what, where=config.substitute, fix="Lower method.keep, or give more public records.")
        say(f"{len(records)} public records of {config.substitute_name} stand in for synthetic ones")
        return cls(records, config.keep)

    def draw(self, runtime: ModelRuntime, sites: Sequence[str], stream: Stream) -> dict[str, Payload]:
        """Records at random for each site, of those that fit the model, as fields of an ask.

        Args:
            runtime: the server's.
            sites: the round's cohort.
            stream: of the round.
        """
        return {site: {PUBLIC: self._drawn(runtime, stream / "substitute" / site)} for site in sites}

    def _drawn(self, runtime: ModelRuntime, stream: Stream) -> list[list[str]]:
        chosen: list[list[str]] = []
        for record in stream.python().sample(self.records, len(self.records)):
            if len(chosen) == self.keep:
                break
            # Not through the runtime's memory: these records are not seen again.
            if tokenise_all([record], runtime.template, runtime.tokenizer, runtime.max_length).items:
                chosen.append(list(astuple(record)))
        return chosen
