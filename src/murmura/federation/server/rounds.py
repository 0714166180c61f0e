"""The server's side of a run: its model, its memory, and the loop of rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmura.aggregation.rules import Mean, Rule
from murmura.errors import PrivacyError, RunError
from murmura.federation.server.activity import Activity
from murmura.federation.server.checkpoint import Checkpoint, save
from murmura.federation.server.fleet import Fleet
from murmura.federation.server.journals import Journals, T
from murmura.federation.server.sending import Sending
from murmura.federation.server.tally import Tally
from murmura.federation.server.transcript import TranscriptWriter
from murmura.federation.wire.messages import Payload, Reply
from murmura.federation.wire.releases import owner
from murmura.federation.wire.sums import Sum
from murmura.model_runtime import ModelRuntime
from murmura.progress import bar, say
from murmura.runs.folder import RunFolder
from murmura.runs.machine import peak_memory, return_freed_memory
from murmura.runs.names import DISCLOSURE, FIGURES
from murmura.streams import Stream
from murmura.training.adapter import State
from murmura.units import at_least, bound

if TYPE_CHECKING:
    from murmura.measure.monitor import Monitor
    from murmura.privacy.guarantee import Guarantee

_STORE = "store."
_TOLD = 20  # the newest events of a round, for whoever looks while it goes on
_STARTED = "started"  # in the store: the sites that have adapters of their own


class Server:
    """What a method's ``lead`` works with.

    Attributes:
        adapter: the global adapter; a method assigns it. What is None is neither measured nor saved.
        store: the method's other memory on the server, a payload; saved in every checkpoint.
        runtime: the server's own resident model.
        stream: the run's randomness.
        rows: metrics of each finished round, round 0 being before training.
        about: JSON that tells what run this is; saved in every checkpoint.
        promised: what the run promises of private data; None: nothing.
        sizes: how many records each site takes part with: in a deployment, how many it was made known with.
        caveats: what to say beside the guarantee of every round, in sentences.
        counted: is given what the run guarantees by itself after the last round, and returns what it does in all.
        publication: what anybody may see of the run.
        curious: keeps what a curious server would; None: nothing is kept.
        arriving: is called with each round's number before anything else of the round; None: nobody comes and goes.
        opening: is called with each round's number before the method works on it, as a part of that round; None:
            nothing comes before the method.
        losing: is given the sites that have not kept a round, before it is saved: should they come back, then with what
            they had before it; None: the method and what comes before it expect nothing of their stores.
        following: is given all rounds as they are published, when another one is saved; None: nobody follows.
        closing: is called when the method is done with the last round, as a part of it; None: nothing comes after.
        unkept: the sites that were to keep an adapter of their own, and have not.
    """

    def __init__(
        self,
        runtime: ModelRuntime,
        fleet: Fleet,
        monitor: Monitor,
        folder: RunFolder,
        stream: Stream,
        adapter: State | None,
        rule: Rule | None = None,
        curious: TranscriptWriter | None = None,
    ) -> None:
        self.runtime, self.stream, self._adapter = runtime, stream, adapter
        self.store: Payload = {}
        self.rows: list[dict[str, Any]] = []
        self._journals = Journals(folder.journal)
        self.about: dict[str, Any] = {}
        self.publication, self.curious = fleet.publication, curious
        self.promised: Guarantee | None = None
        self._count = 0  # of rounds
        self.sizes: Mapping[str, int] = {}
        self.caveats: list[str] = []
        self.counted: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda privacy: privacy
        self.arriving: Callable[[int], None] | None = None
        self.opening: Callable[[int], None] | None = None
        self.closing: Callable[[], None] | None = None
        self.losing: Callable[[Sequence[str]], None] | None = None
        self.following: Callable[[Sequence[Mapping[str, Any]]], None] | None = None
        self.unkept: list[str] = []
        self._fleet, self._monitor, self._folder = fleet, monitor, folder
        self._rule = rule or Mean()
        self._sending = Sending(self._rule, fleet)
        self._privacy: dict[str, Any] = {}
        self._known: set[str] = set()
        fleet.listener, fleet.keeper = self._listen, lambda: folder.write_sent(self.publication.state())
        fleet.activity = Activity(self._keep_live)
        if sent := folder.sent():
            self.publication.restore(sent)

    @property
    def adapter(self) -> State:
        assert self._adapter is not None, "this run has no adapter"
        return self._adapter

    @adapter.setter
    def adapter(self, state: State | None) -> None:
        self._adapter = state

    def initial(self) -> State:
        """What training begins with (``ModelRuntime.initial``), the same whenever it is asked for."""
        return self.runtime.initial(self.stream / "adapter")

    def may_answer(self, sites: Sequence[str]) -> list[str]:
        """Those of some sites that are asked what they are to be asked: they are in the run."""
        there = set(self._fleet.taking_part)
        return [site for site in sites if site in there]

    def journal(self, name: str, kind: Callable[[Path], T]) -> T:
        """What is kept in ``checkpoint/NAME.journal``, and does not go back with a checkpoint, which notes how far it
        had come; always the same object.

        Args:
            kind: makes it of the file's path: ``Journal``, or what stands on one.

        Raises:
            PrivacyError: a line is not what was written, or is gone since the run was last saved.
        """
        return self._journals.open(name, kind)

    def file(self, name: str) -> Path:
        """A file of the method's own in the run's folder, which does not go back with a checkpoint."""
        return self._folder.path / name

    @property
    def known(self) -> frozenset[str]:
        """Sites that have kept a round, and must still have what they kept."""
        return frozenset(self._known)

    @property
    def has_adapter(self) -> bool:
        """Whether there is a global adapter: from the start, or since the method has assigned one."""
        return self._adapter is not None

    @property
    def round(self) -> int:
        """The round that is being worked on."""
        return self._fleet.round

    @property
    def published(self) -> list[dict[str, Any]]:
        """The rows as anybody may see them."""
        return self.publication.rows(self.rows)

    @property
    def evaluation_set(self) -> Any:
        """The server's public records (``murmura.measure.evaluation_set``)."""
        return self._monitor.evaluation_set

    def rounds(self, count: int) -> Iterator[int]:
        """Rounds 1 to ``count``. After each one the model is measured and everything is saved; a resumed run goes on
        after its last saved round. Each has to come to its end: what sites have sent in one that is broken off counts,
        and is in no figure (``require_whole``).
        """
        self._count = self._fleet.activity.rounds = count
        if not self.rows:
            self._begin(0)
            self._close()
        elif self.rows[-1]["round"] == count:
            self._count_again()
        with bar("rounds", count, self.rows[-1]["round"]) as progress:
            for round in range(self.rows[-1]["round"] + 1, count + 1):
                self._begin(round)
                if self.arriving is not None:
                    self.arriving(round)
                if self.opening is not None:
                    self.opening(round)
                yield round
                if self.closing is not None and round == count:
                    self.closing()
                self._close()
                progress.advance()

    def require_whole(self) -> None:
        """Hold the method's program to having gone through all rounds.

        Raises:
            RunError: one was not measured and saved, so that the adapter is not what is told of it.
        """
        ended = self.rows[-1]["round"] if self.rows else None
        if ended is None or ended != self._count:
            what = f"the method's program ended in round {self.round}, which was not measured or saved"
            raise RunError(what, where="lead", fix="Let each round of server.rounds come to its end.")

    def rank(self, site: str) -> int | None:
        """Of a site's adapters; None where all have the run's."""
        return self._sending.rank(site)

    def lr(self, round: int) -> float:
        """The learning rate of a round, counted from 1."""
        return self.runtime.training.rate(round - 1, self._count)

    def count(self, counts: Mapping[str, int]) -> None:
        """Add to the round's counters, shown in the report."""
        self._tally.count(counts)

    def asks(self, verb: str) -> int:
        """How often sites have been asked for a verb so far, in rounds too that were lost. A site may have answered as
        often, though not all answers have come here."""
        return self._fleet.ledger.asks(verb)

    def note_loss(self, loss: float | None) -> None:
        """Note a site's training loss; the report shows the round's mean."""
        if loss is not None:
            self._tally.losses.append(loss)

    def note(self, name: str, value: float) -> None:
        """Note a figure of the round, shown in the report; one that is measured under the same name goes before it.

        Raises:
            RunError: it is no number.
        """
        if not isinstance(value, int | float):
            raise RunError(f"figure '{name}' is a {type(value).__name__}, and no number", where=f"round {self.round}")
        self._tally.noted[name] = value

    def event(self, what: str) -> None:
        """Tell in words what went otherwise than planned: on the terminal now, and in the report; the owner alone,
        where cohorts are secret."""
        self._fleet.event(what)

    def tell(self, what: str) -> None:
        """Tell in words what is worth knowing and went as planned, wherever an event would be told."""
        self._fleet.tell(what)

    def note_privacy(self, figures: Mapping[str, Any]) -> None:
        """Note what is guaranteed after this round; see ``murmura.privacy.ledger``.

        Raises:
            PrivacyError: the run has promised nothing (``Method.guarantee``), so that nothing was held to it.
        """
        if self.promised is None:
            fix = "Have the method promise it: Method.protects and Method.guarantee."
            raise PrivacyError("an ε is noted that the method has not promised", where=f"round {self.round}", fix=fix)
        self._privacy = {**figures, "caveat": " ".join(self.caveats)} if self.caveats else dict(figures)

    def ask(
        self, verb: str, sites: Sequence[str], each: Mapping[str, Payload] | None = None, **shared: Any
    ) -> Iterator[Reply]:
        """Ask sites to go on from the global adapter: each gets as field ``adapter`` what of it the rule sends."""
        each, shared = self._sending.fields(self.adapter, sites, each, shared)
        replies = self._fleet.ask(verb, sites, each, read=self._sending.reading(self.adapter), **shared)
        return self._starting(replies) if self._starts(verb) else replies

    def sum(self, verb: str, sites: Sequence[str], each: Mapping[str, Payload] | None = None, **options: Any) -> Sum:
        """As ``ask``, but only the sum of the replies is kept; ``options`` are those of ``Fleet.sum``."""
        each, options = self._sending.fields(self.adapter, sites, each, options)
        sums = self._fleet.sum(verb, sites, each, read=self._sending.reading(self.adapter), **options)
        if self._starts(verb):
            self._started(sums.sites)
        return sums

    @property
    def listens(self) -> bool:
        """Whether single uploads are measured or kept, so that they have to be told apart."""
        wanted = self._monitor.listens or self.curious is not None
        return wanted and not self._rule.personal and self.publication.tells_sites

    def combine(self, contributions: Iterable[tuple[State, float]]) -> None:
        """Make the uploads of this round, with their weights, the next global adapter."""
        lora, round = self.runtime.bank.lora, self._fleet.round
        scale = lora.scale if lora else 1.0
        stream = self.stream / "aggregate" / round
        self.adapter = self._rule.step(self.adapter, contributions, scale=scale, round=round, stream=stream)

    def from_whole(self, contributions: Iterable[tuple[State, float]]) -> Iterable[tuple[State, float]]:
        """Uploads of this round as if sites had gone on from the global adapter as it is (``Sending.from_whole``)."""
        return self._sending.from_whole(self.adapter, contributions)

    def observe_upload(self, site: str, upload: State) -> None:
        """Let the monitor attack an upload, and a curious server keep it: whole, as the server knows it. Replies with a
        field ``adapter`` are heard by themselves; what travels in another form is told here."""
        if self._rule.personal or not self.publication.tells_sites:
            return
        whole = self._rule.complete(upload, self.adapter)
        self._monitor.observe_upload(site, whole)
        if self.curious is not None:
            self.curious.observe_upload(site, whole)

    def _listen(self, reply: Reply) -> None:
        if "adapter" in reply.fields:
            self.observe_upload(reply.site, reply["adapter"])
        if "centres" in reply.fields and self.curious is not None:
            self.curious.observe_centres(reply.site, reply["centres"], reply["sizes"])

    def ask_personal(
        self, verb: str, sites: Sequence[str], each: Mapping[str, Payload] | None = None, **shared: Any
    ) -> Iterator[Reply]:
        """Ask sites to train adapters of their own further (``Cohort.own_adapters``); to a site that is not known to
        have one goes ``start``, the server's."""
        started, each = self.store.get(_STARTED, []), dict(each or {})
        for site in sites:
            if site not in started:
                each[site] = {"start": self.adapter, **each.get(site, {})}
        return self._starting(self._fleet.ask(verb, sites, each, **shared))

    def current(self, sites: Sequence[str]) -> dict[str, Payload]:
        """For each site, as fields of an ask, what it needs to score records with its current model: as ``adapter``
        what of the global one it is sent, or nothing where it has one of its own."""
        own = () if self._rule.personal else self.store.get(_STARTED, ())
        missing, round = [site for site in sites if site not in own], self._fleet.round
        sent = {site: {"adapter": self._rule.download(self.adapter, self.rank(site), round)} for site in missing}
        return {site: sent.get(site, {}) for site in sites}

    def let_keep(self) -> None:
        """Let the sites that have adapters of their own keep them as results, when all rounds are done; say which have
        not.

        Raises:
            RunError: as ``Fleet.ask``.
        """
        adapter = self._rule.download(self.adapter, None, self._fleet.round) if self._rule.personal else None
        self.have_kept(self.store.get(_STARTED, []), {} if adapter is None else {"adapter": adapter})

    def have_kept(self, sites: Sequence[str], shared: Mapping[str, Any]) -> None:
        """Let these sites keep adapters of their own (``federation.exporting``), and say which have not.

        Args:
            shared: fields of the ask.

        Raises:
            RunError: as ``Fleet.ask``.
        """
        told = len(self._fleet.events)
        kept = {reply.site for reply in self._fleet.ask("keep", sites, None, **shared)}
        missing = [site for site in sites if site not in kept]
        self.unkept += missing
        if missing:
            waits = "--resume has them try again"
            if self.promised is not None:
                places = f"{self._folder.checkpoint}/round-*"
                waits += f", for which the checkpoints stay: to do without, remove {places} and give --resume once more"
            say(
                f"these sites have left no adapter of their own: {', '.join(missing)} "
                f"({'; '.join(self._fleet.events[told:])}); {waits}"
            )

    def _starts(self, verb: str) -> bool:
        """Whether sites that answer it have an adapter of their own from then on."""
        return self._rule.personal and "adapter" in owner(self._fleet.verbs, verb).releases(verb)

    def _starting(self, replies: Iterator[Reply]) -> Iterator[Reply]:
        """Note who has an adapter of its own from now on."""
        for reply in replies:
            self._started([reply.site])
            yield reply

    def _started(self, sites: Sequence[str]) -> None:
        started: list[str] = self.store.setdefault(_STARTED, [])
        started += [site for site in sites if site not in started]

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take everything up where a checkpoint left it, at the sites too.

        Raises:
            CheckpointError: a site cannot go back there; here nothing is changed.
            PrivacyError: a journal has lost lines since then.
        """
        anchors = checkpoint.run.get("journals", {})  # which those of earlier releases lack
        self._journals.check(anchors)
        self._fleet.stores.rewind(checkpoint.round)
        self._journals.noted(anchors)
        self._adapter = checkpoint.server.get("adapter")
        self.store = {
            name.removeprefix(_STORE): value for name, value in checkpoint.server.items() if name.startswith(_STORE)
        }
        self.rows, self._known = checkpoint.run["rows"], set(checkpoint.run["known"])
        self.publication.restore(checkpoint.run)
        self.publication.rewind(checkpoint.run)
        self._write()  # the run may have been stopped between its checkpoint and these files

    def _count_again(self) -> None:
        """Of a run whose rounds are all done: it may have named more runs that its guarantee counts, or they can be
        read by now."""
        if told := self.rows[-1]["privacy"]:
            beside = {"caveat": " ".join(self.caveats)} if self.caveats else {}
            privacy = dict(self.counted({**told, **beside}))
            last = {"privacy": privacy, "epsilon": privacy.get("epsilon")}
            self.rows[-1] |= last
            self.publication.amend(last)
            self._write()

    def _keep_live(self, told: Mapping[str, Any]) -> None:
        self._folder.write_live({**told, "events": self._fleet.events[-_TOLD:]})

    def _begin(self, round: int) -> None:
        self._fleet.begin(round)
        self._monitor.begin(round)
        if self.curious is not None and round:  # before training there is nothing but the base model
            self.curious.begin(round)
        self._tally = Tally(self._fleet)
        self.publication.begin()
        self._begun = list(self.store.get(_STARTED, []))

    def _close(self) -> None:
        """Measure, record and save the round that has just been worked."""
        round = self._fleet.round
        due = self.has_adapter and self._monitor.due(round, self._count)
        common = {"adapter": self._rule.download(self.adapter, None, round)} if due and self._rule.personal else None
        personal = self.store.get(_STARTED, [])
        last = round == self._count
        figures = self._monitor.measure(self.adapter, self._fleet, personal, common, last=last) if due else {}
        self._hold_against(figures.get("audit_epsilon"))
        if self.curious is not None and round:
            self.curious.close(self.adapter)
        if last:
            self._privacy = dict(self.counted(self._privacy))
        memory = peak_memory(self.runtime.device)
        return_freed_memory()
        self.rows.append(self._tally.row(figures, self._privacy, memory))
        self.publication.close(self.rows[-1], figures)
        # Sites first: they keep two generations, and can go back should the checkpoint not be written.
        self._keep(self._fleet.stores.commit(last))
        server = {f"{_STORE}{name}": value for name, value in self.store.items()}
        if self.has_adapter:
            server["adapter"] = self.adapter
        sent = self.publication.state() | self.publication.saved()
        anchors = self._journals.anchors()
        run = {"rows": self.rows, **sent, "known": sorted(self._known), "journals": anchors, **self.about}
        save(self._folder.checkpoint, Checkpoint(round, server, run))
        if self.following is not None:
            self.following(self.published)
        self._write()
        row = self.published[-1]
        figures = {name: value for name, value in row.items() if isinstance(value, int | float)}
        head = f"round {round}" if round else "before training"
        say(f"{head}: {self._monitor.words(row)}", public=True, event="round", **figures)

    def _hold_against(self, least: float | None) -> None:
        """Tell where an audit shows a larger ε than is guaranteed."""
        most = self._privacy.get("epsilon")
        if least is not None and most is not None and least > most:
            self.event(
                f"an audit shows an ε of {at_least(least)} or more, where {bound(most)} is guaranteed; by chance that "
                "happens in one round of 20 at most: do not rely on the guarantee until the reason is found"
            )

    def _keep(self, missing: Sequence[str]) -> None:
        """Note who has kept the round. A site that began an adapter of its own and has not kept it begins again."""
        self._known.update(set(self._fleet.taking_part).difference(missing))
        if missing and self.losing is not None:
            self.losing(missing)
        if _STARTED in self.store:
            lost = set(missing).difference(self._begun)
            self.store[_STARTED] = [site for site in self.store[_STARTED] if site not in lost]

    def _write(self) -> None:
        if not self.publication.tells_all:
            self._folder.write_private(FIGURES, [*self.rows, {"disclosure": self._fleet.ledger.table()}])
        self._folder.write_metrics(self.published)
        self._folder.write(DISCLOSURE, self.publication.told.table())
