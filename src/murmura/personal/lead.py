"""What the server does for the sites' own models."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from murmura.federation.server.fleet import Fleet
from murmura.federation.server.rounds import Server
from murmura.measure.gains import summary
from murmura.personal.verbs import PERSONAL, losses, unfit
from murmura.progress import say
from murmura.runs import names
from murmura.runs.folder import RunFolder
from murmura.runs.schema import PersonalModel

_GAINS = "gains"  # in the server's store: what sites told of their own models
_UNTRAINED = (
    "sites have trained no models of their own after this round, since it was not planned as the last; any that they "
    "kept are of an earlier one. To have them train, raise method.rounds."
)


@dataclass(frozen=True)
class Personalisation:
    """The end of a run with ``[personal]``.

    Args:
        tells: sites tell how good their models are.
        folder: of the run.
    """

    tells: bool
    folder: RunFolder

    def train(self, server: Server, fleet: Fleet) -> None:
        """Let every site train the global adapter further; a site that does not answer goes without."""
        public = server.evaluation_set
        given: dict[str, Any] = {"heldout": [asdict(one) for one in public.heldout]} if self.tells else {}
        found = [
            (reply.site, reply.fields)
            for reply in server.ask("personalise", fleet.sites, refused=unfit if self.tells else None, **given)
        ]
        server.store[PERSONAL] = [site for site, _ in found]
        told = [(site, fields) for site, fields in found if fields]
        if not told:
            return
        before, shared = losses(public.task, server.runtime, public.heldout, [server.initial(), server.adapter])
        models = [
            PersonalModel(site, fields["records"], **fields["losses"], **_public(before, shared, fields["public"]))
            for site, fields in told
        ]
        server.store[_GAINS] = [asdict(one) for one in models]
        for sentence in summary(models):
            say(sentence)

    def forget(self, server: Server) -> None:
        """There are more rounds to come: what sites have of their own is of the last one before them."""
        for name in (PERSONAL, _GAINS):
            server.store.pop(name, None)

    def leave(self, server: Server) -> None:
        """Write what sites told, and let each that has a model of its own keep it where its owner finds it."""
        if PERSONAL not in server.store:
            say(_UNTRAINED)
        if gains := server.store.get(_GAINS):
            self.folder.write(names.PERSONAL, gains)
        server.have_kept(server.store.get(PERSONAL, []), {})


def _public(before: float, shared: float, personal: float) -> dict[str, float]:
    return {"public_before": before, "public_shared": shared, "public_personal": personal}
