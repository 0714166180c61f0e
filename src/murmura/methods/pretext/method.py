"""PrE-Text: sites vote for public texts near their own; the server evolves and expands them, and trains on these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from murmura.errors import DataError
from murmura.federation.forecast import Forecast, SitePart, Work
from murmura.federation.method import Method
from murmura.federation.traits import Traits
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Count, DifferentialPrivacy, Metric, Release, Texts, Votes, verb
from murmura.methods.pretext.config import PretextConfig
from murmura.privacy.guarantee import Cost, Guarantee, Unit
from murmura.resources import Resource
from murmura.runs.names import EXPANDED
from murmura.units import FLOAT32

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort
    from murmura.federation.site.site import Site
    from murmura.methods.pretext.ballots import Ballots
    from murmura.privacy.plan import PrivacyPlan
    from murmura.streams import Stream
    from murmura.training.config import LocalTraining

_CENTRAL = DifferentialPrivacy(
    "site",
    "server",
    "{config.noise_words} noise on the sum of all sites' votes ({config.strength}, δ={config.delta:g})",
)
_TRUST = (
    "The server itself, and whoever reads its memory, sees the site's votes without noise: it is trusted, unless a "
    "secure sum stands between."
)
_TRUSTED_SUM = "The server itself, and whoever reads its memory, sees the sum of all sites' votes without noise."
_IN_SHARES = DifferentialPrivacy(
    "site",
    "site",
    "{config.noise_words} noise on the sum of all sites' votes, of which each site adds a share ({config.strength}, "
    "δ={config.delta:g})",
)
_LOCAL = DifferentialPrivacy(
    "site", "site", "each token drawn by the exponential mechanism (DP-Prompt, {config.strength})"
)
_AS_MANY = "how many there are, {config.texts_per_site} at most, tells how many texts the site has"
_LABELS = {
    ("public", False): "public-only",
    ("public", True): "Expand-only",
    ("private", False): "private-only",
    ("private", True): "Expand-private",
    ("paraphrased", False): "DP-Prompt",
    ("paraphrased", True): "DP-Prompt, expanded",
}
_GIVEN = "given"  # in the server's store: the texts that sites have sent


class Pretext(Method):
    """PrE-Text (Hou et al. 2024), and its baselines on public and private texts."""

    config: PretextConfig

    @property
    def traits(self) -> Traits:
        single = "sites send it texts" if self.config.seeds in ("private", "paraphrased") else ""
        whole = self.config.private and self.config.votes == "nearest"
        if self.rule.config.secure and whole and not self.distributed_noise:
            single = (
                "each site adds a share of the noise, which has to be of whole numbers for that (set method.noise = "
                "'skellam')"
            )
        return Traits(label=self._label, trained_at="server", single_replies=single)

    @property
    def _label(self) -> str:
        c = self.config
        if c.seeds != "voted":
            strength = f" {c.strength}" if c.seeds == "paraphrased" else ""
            return _LABELS[c.seeds, c.samples > 0] + strength
        if c.tunes:
            return f"POPri {c.strength}"
        parts = [f"PrE-Text {c.strength}", c.votes, c.selection, c.variation]
        usual = ("nearest", "sample", "mask-fill")
        return ", ".join([*(part for part in parts if part not in usual), *(["seeds only"] if not c.samples else [])])

    @property
    def distributed_noise(self) -> bool:
        """Whether each site adds a share of the noise, so that nobody sees a sum without it."""
        c = self.config
        return c.private and c.noise != "gaussian" and self.rule.config.secure is not None

    def _shares(self, sites: int) -> int:
        """Among how many of so many sites the noise is divided; 0 where the server adds all of it."""
        secure = self.rule.config.secure
        return secure.least(sites) if secure and self.distributed_noise else 0

    @property
    def protects(self) -> Unit | None:
        return "site" if self.config.private or self.config.seeds == "paraphrased" else None

    def guarantee(self, records: Sequence[int], training: LocalTraining) -> Guarantee | None:
        if self.config.seeds == "paraphrased":
            from murmura.methods.pretext import paraphrases

            return paraphrases.guarantee(self.config)
        if not self.protects:
            return None
        from murmura.methods.pretext.guarantee import plan

        return Guarantee.of(plan(self.config, self._shares(len(records)) or 1), self.config.accountant)

    @cached_property
    def _shared(self) -> PrivacyPlan:
        """What a site's votes cost with Skellam noise in shares, however many sites share it."""
        from murmura.methods.pretext.guarantee import plan

        return plan(self.config)

    def cost(self, name: str, records: int, training: LocalTraining) -> Cost | None:
        if name == "paraphrase" and self.config.epsilon is not None:
            return Cost(epsilon=self.config.epsilon)
        covered = name == "vote" and self.distributed_noise and self.config.noise == "skellam"
        return Cost(self._shared, 1) if covered else None

    def asks(self, round: int) -> bool:
        return round <= self.config.asking

    def answers(self, name: str) -> int | None:
        covered = (name == "vote" and self.distributed_noise) or name in (
            "report_distance",
            "share_texts",
            "paraphrase",
        )
        return self.config.asking if covered else None

    def resources(self) -> Mapping[str, Resource]:
        c = self.config
        found = {}
        if c.seeds == "voted":
            found["encoder"] = Resource("encoder", c.encoder, "both")
        if c.seeds == "voted" and not c.tunes:
            found["variation_model"] = Resource(
                "masked" if c.variation == "mask-fill" else "causal", c.varying, "server"
            )
        if c.seeds == "paraphrased":
            found["paraphraser"] = Resource("causal", c.paraphraser, "both")
        if c.samples and c.endpoint is None:
            found["generator"] = Resource("causal", c.generator, "server")
        return found

    def verbs(self) -> list[str]:
        if self.config.seeds == "voted":
            return ["vote", *(["report_distance"] if self.config.tells_distance else [])]
        return {"public": [], "private": ["share_texts"], "paraphrased": ["paraphrase"]}[self.config.seeds]

    def reads(self, records: int, training: LocalTraining) -> int:
        if self.config.seeds == "private":
            return records
        return min(records, self.config.texts_per_site)

    def members(self, site: Site, stream: Stream) -> Sequence[Any]:
        """Those that may take part. With public seeds none does, and the same ones are attacked, for comparison."""
        if self.config.seeds == "private":
            return site.records
        from murmura.methods.pretext.ballots import taking_part

        return taking_part(self.config, site, stream)

    @cached_property
    def _dimension(self) -> float:
        """Of the encoder's vectors, for forecasts of many sites; NaN where its configuration is not on this machine."""
        from murmura.retrieval.encoder import dimension_of

        return dimension_of(self.config.encoder) or math.nan

    def forecast(self, part: SitePart) -> Forecast:
        c = self.config
        if not self.asks(part.round):
            return Forecast()
        if c.seeds == "paraphrased":
            return Forecast(up=math.nan)  # how long a text is in bytes, nobody knows before it is written
        if c.seeds == "private":
            return Forecast(up=sum(len(record.text.encode()) for record in part.records))
        down = self._dimension * c.candidates * FLOAT32
        return Forecast(records=min(len(part.records), c.texts_per_site), down=down, up=c.candidates * FLOAT32)

    def work(self, sites: Sequence[Sequence[Any]], training: LocalTraining) -> Iterable[Work]:
        from murmura.methods.pretext.work import work

        return work(self.config, list(map(len, sites)), training)

    def remarks(self, sites: Mapping[str, Sequence[Any]]) -> list[str]:
        public = self.config.public
        if public is None or self.config.seeds == "private":
            return []
        from murmura.data.hub import is_hub_id
        from murmura.methods.pretext.population import found_among_public

        try:
            found = found_among_public(self.config, (record.text for own in sites.values() for record in own))
        except DataError as error:
            if not is_hub_id(public):
                raise
            return [f"The public texts are not known here: {error}"]
        if not found:
            return []
        return [
            f"{found} of the sites' texts are in {public} too: what is made of public texts may hold them word for "
            "word, and no ε is about that. Take them out of one of the two, and do not publish how many there were."
        ]

    # ---- on the server -------------------------------------------------------------------------------------------

    def lead(self, server: Server, fleet: Fleet) -> None:
        """Algorithm 1 of Hou et al. 2024, or that of Hou et al. 2025; a round of its own follows for ``Expand`` and the
        training of the model."""
        from murmura.methods.pretext.evolution import Evolution
        from murmura.methods.pretext.expand_and_train import close
        from murmura.methods.pretext.generator import generator_of
        from murmura.methods.pretext.paraphrases import gathered, note_privacy
        from murmura.methods.pretext.popri import Popri
        from murmura.methods.pretext.population import read, sent, too_many

        def beyond_its_own(reply: Reply) -> str | None:
            return too_many(reply, server.sizes.get(reply.site))

        c = self.config
        if c.samples and c.endpoint:
            generator_of(c, server)  # refused now, if at all
        if not server.rows:
            if c.seeds != "private":
                read(c)  # refused now, if at all
            server.adapter = server.initial()  # so that the model is measured as it is before training
        kind = Popri if c.tunes else Evolution
        evolution = kind(c, server, fleet, self._shares(len(fleet.sites))) if c.seeds == "voted" else None
        for round in server.rounds(c.total_rounds):
            server.adapter = None
            if round == c.total_rounds:
                if evolution:
                    evolution.note_privacy()
                elif c.seeds == "paraphrased":
                    note_privacy(c, server, fleet)
                close(c, server, self._seeds(server))
                continue
            server.file(EXPANDED).unlink(missing_ok=True)  # of an earlier attempt: other seeds will come of this one
            if evolution:
                evolution.round(round)
            elif c.seeds == "paraphrased":
                server.store[_GIVEN] = gathered(c, server, fleet)
            else:
                server.store[_GIVEN] = sent(fleet.ask("share_texts", fleet.sites, refused=beyond_its_own), fleet.sites)

    def _seeds(self, server: Server) -> list[str]:
        """What is expanded: nothing stands in for what the sites have not sent."""
        from murmura.methods.pretext.evolution import starting, union
        from murmura.methods.pretext.popri import SHOWN

        if self.config.tunes:
            found: list[str] = server.store[SHOWN]
            return found
        if self.config.seeds == "voted":
            return union(self.config, server)
        return server.store[_GIVEN] if self.config.asking else starting(self.config, server)

    def outcomes(self, server: Server) -> dict[str, Any]:
        from murmura.methods.pretext.release import outcomes

        against = "everybody, the server too"
        if self.distributed_noise:
            against += (
                ", as long as they know no site's share of the noise (each site knows its own). A server that lies "
                "gets no more sums: each site votes once for each round, and once more each time that its owner has it "
                "vote again"
            )
        elif self.config.seeds == "voted":
            against = "everybody but the server, which added the noise"
        return outcomes(self.config, self._label, server, against)

    # ---- at the sites --------------------------------------------------------------------------------------------

    def releases(self, name: str) -> dict[str, Release]:
        declared = super().releases(name)
        if name == "share_texts" and self.config.samples and self.config.endpoint:
            on = f"the server sends them on to {self.config.endpoint}, in prompts"
            return {"texts": replace(declared["texts"], note=on)}
        if name != "vote":
            return declared
        [votes] = declared.values()
        if not self.config.private:
            votes = replace(votes, protection=None, note="no noise is added to the sum")
        elif self.distributed_noise:
            votes = replace(votes, protection=_IN_SHARES, note="").filled(config=self.config)
        elif self.rule.config.secure:
            votes = replace(votes, note=_TRUSTED_SUM)
        return {"votes": votes}

    @verb(releases={"votes": Votes("how near its texts the candidates are, in votes", _CENTRAL, _TRUST)}, slots=False)
    def vote(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Vote for the candidates nearest to the site's texts (Hou et al. 2024, Algorithm 2)."""
        from murmura.methods.pretext.ballots import require_allowed, required

        votes = self._ballots.votes(cohort, required(ask["candidates"]))
        require_allowed(self.config, cohort, votes)
        if self.distributed_noise:
            from murmura.methods.pretext.guarantee import plan, share_added

            names = [site.name for site in cohort.sites]
            [shares] = {site.masking.least for site in cohort.sites if site.masking}  # whatever the server says
            votes = share_added(plan(self.config, shares), votes, shares, names, cohort.round)
        return cohort.reply(votes=votes)

    @verb(
        releases={
            "distance": Metric("summed distance of its texts from the nearest candidates, without noise"),
            "texts": Count("how many texts that is the sum of"),
        },
        slots=False,
        measures=True,
        option="method.distance",
    )
    def report_distance(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Tell how far the site's texts are from the candidates."""
        from murmura.methods.pretext.ballots import required

        found = self._ballots.distances(cohort, required(ask["candidates"]))
        return cohort.reply(distance=[sum(own) for own in found], texts=[len(own) for own in found])

    @verb(releases={"texts": Texts("all its texts, in clear")}, slots=False)
    def share_texts(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Give the site's texts away: a baseline that protects nothing."""
        return cohort.reply(texts=[[record.text for record in site.records] for site in cohort.sites])

    @verb(releases={"texts": Texts("paraphrases of its texts", _LOCAL, _AS_MANY)}, slots=False)
    def paraphrase(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Send a paraphrase of each of the site's texts, whose tokens are drawn privately (Utpala et al. 2023)."""
        from murmura.methods.pretext.paraphrases import written

        return cohort.reply(texts=written(self.config, cohort, ask["low"], ask["high"]))

    @cached_property
    def _ballots(self) -> Ballots:
        """What this process knows of its sites' texts."""
        from murmura.methods.pretext.ballots import Ballots

        return Ballots(self.config)
