"""The run folder: where things lie in it, how they are written, and the checks before a run starts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from murmura import atomic
from murmura.errors import CheckpointError, explaining
from murmura.progress import say
from murmura.runs import files, jsontext, names, schema
from murmura.runs.judgement import Judgement, Posted
from murmura.runs.locks import LOCK, acquire_run
from murmura.runs.previous import is_run, make_way, previous_of, remove

if TYPE_CHECKING:
    from filelock import FileLock

MARGIN = 64 * 2**20  # bytes that metrics, report and logs may take


class RunFolder:
    """Paths of a run and how they are written: a file is replaced whole or not at all.

    Attributes:
        path: of the folder.
        config, metrics, summary, report: files, as ``runs.names`` describes them.
        adapter, model: what a run with a global adapter leaves, or one that trains all parameters.
        site_adapters: what sites leave that have adapters of their own.
        checkpoint: a folder for each saved round, and the server's privacy ledger.
        private: a folder for what each site keeps to itself.
        transcript: what a curious server would have kept, where the run was told to keep it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.metrics = path / names.CONFIG, path / names.METRICS
        self.summary, self.report = path / names.SUMMARY, path / names.REPORT
        self.adapter, self.model = path / names.ADAPTER, path / names.MODEL
        self.site_adapters = path / names.SITE_ADAPTERS
        self.checkpoint, self.private = path / names.CHECKPOINTS, path / names.PRIVATE
        self._sent = self.checkpoint / names.SENT
        self.transcript = path / names.TRANSCRIPT

    def journal(self, name: str) -> Path:
        """A journal of the server, which is not part of a checkpoint."""
        return self.checkpoint / f"{name}.journal"

    def adapter_of(self, site: str) -> Path:
        """The adapter that a site has of its own."""
        return self.site_adapters / names.site_folder(site)

    def private_of(self, site: str) -> Path:
        """What a site keeps to itself (``federation.site.store.SiteStore``)."""
        return self.private / names.site_folder(site)

    @property
    def sites_with_adapters(self) -> list[str]:
        """Names of the sites that have left an adapter of their own, sorted; with ``[personal]`` beside one for all."""
        whole = set(self.site_adapters.glob("*")).difference(self.site_adapters.glob(atomic.LEFT_BEHIND))
        return sorted(names.site_of(path.name) for path in whole if path.is_dir())

    @property
    def holds_run(self) -> bool:
        """Whether a run was begun here."""
        return is_run(self.path)

    @property
    def previous(self) -> Path:
        """Where the run is, if there was one, that was here before this one."""
        return previous_of(self.path)

    @property
    def is_finished(self) -> bool:
        """Whether a run ended here."""
        return self.summary.exists()

    @property
    def id(self) -> str:
        """What sites know the run by; made up when it is first asked for.

        Raises:
            CheckpointError: it cannot be kept.
        """
        place = self.path / names.ID
        if not place.exists():
            with self._written():
                atomic.write(place, uuid4().hex.encode(), private=True)
        return place.read_text(encoding="ascii")

    # ---- before a run ------------------------------------------------------------------------------------------------

    @contextmanager
    def opened(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """The folder for one process alone.

        Args:
            resume: a run is there to be continued.
            overwrite: one may be there.

        Raises:
            CheckpointError: that is not so, another process works here, or the folder cannot be written.
        """
        self._require(resume=resume, overwrite=overwrite)  # what can be told now is told without making a folder
        with self.locked():
            self._require(resume=resume, overwrite=overwrite)
            self._drop_states()
            self._finish_dropping()
            self._forget_live()
            try:
                yield
            finally:
                self._drop_states()

    def _forget_live(self) -> None:
        """Of what a killed process was doing keep how many rounds there are to be: the experiment may not tell it."""
        rounds = files.state(self.checkpoint / names.LIVE).get("rounds")
        self.write_live({"rounds": rounds} if rounds else None)

    def _drop_states(self) -> None:
        """Remove what sites and server have kept of hidden states, also in a run that was killed."""
        for place in self.private.glob(f"*/{names.STATES}"):
            shutil.rmtree(place, ignore_errors=True)
            with suppress(OSError):  # there is more in it
                place.parent.rmdir()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from working in this folder; the system gives it back if this one is killed.

        Raises:
            CheckpointError: another one works here, or the folder cannot be written.
        """
        self._lock = self._acquired()
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may be gone
                if [item.name for item in self.path.iterdir()] == [LOCK]:  # nothing came of it
                    (self.path / LOCK).unlink()
                    self.path.rmdir()
            self._lock.release()

    def _acquired(self) -> FileLock:
        with self._written():
            self.path.mkdir(parents=True, exist_ok=True)
            return acquire_run(self.path)

    def _require(self, *, resume: bool, overwrite: bool) -> None:
        where = str(self.path)
        if resume and not self.holds_run:
            raise CheckpointError("there is no run to resume", where=where, fix="Start it without --resume.")
        if self.holds_run and not resume and not overwrite:
            fix = "Use --resume to continue it, --overwrite to start over, or another run.folder."
            raise CheckpointError("this folder already holds a run", where=where, fix=fix)
        taken = [name for name in names.WRITTEN if _is_taken(self.path / name)]
        if taken and not self.holds_run:
            what = f"this folder has a {taken[0]} that no run wrote, and a run would write over it"
            raise CheckpointError(what, where=where, fix="Choose another run.folder.")

    def prepare(self, *, resume: bool, needed: int) -> None:
        """Make the folder ready before any work. A run that it holds becomes the previous one unless it is resumed.

        Args:
            resume: continue the run that the folder holds; nothing in it is removed.
            needed: bytes that checkpoints and adapters will take.

        Raises:
            CheckpointError: the folder cannot be written, or the disk is too full.
        """
        with self._written():
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.write_bytes(b"")
            probe.unlink()
        self.require_room(needed)
        if not resume:
            if self.holds_run:
                self._start_over()
            (self.path / names.CHOSEN_BY).unlink(missing_ok=True)  # of one that was killed before it was a run
        for place in (self.path, self.checkpoint, self.site_adapters, *self.private.glob("*")):
            remove(place, tuple(draft.name for draft in place.glob(atomic.LEFT_BEHIND)))
        for place in (self.checkpoint, self.private):
            atomic.make_private(place)

    def _start_over(self) -> None:
        replaces, held = self.previous.exists(), self._lock
        if previous := make_way(self.path):
            self._lock = self._acquired()  # of a folder of the same name
            held.release()
            instead = " in place of an earlier one" if replaces else ""
            say(f"{self.path}: the previous run is kept in {previous}{instead}")

    def require_room(self, needed: int) -> None:
        """Refuse a disk that is too full; the folder need not be there yet.

        Args:
            needed: as ``prepare``.

        Raises:
            CheckpointError: the disk is too full.
        """
        there = next(path for path in (self.path.absolute(), *self.path.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        if free < needed + MARGIN:
            what = f"the disk has {free / 2**20:.0f} MiB left, this run needs {(needed + MARGIN) / 2**20:.0f} MiB"
            raise CheckpointError(what, where=str(self.path), fix="Make room or change run.folder.", passing=True)

    def reopen(self, *, done: bool, changed: bool = False) -> None:
        """Forget how the run ended, since it goes on: nobody is to take old results for its own.

        Args:
            done: all its rounds are: what sites have told of their own models stays true.
            changed: something else is asked of it than before; where that is not so either, what was found about its
                model stays true.
        """
        personal = () if done else (names.PERSONAL,)
        found = () if done and not changed else (*names.FOUND, names.AUDIT_SCORES)
        remove(self.path, (*names.ENDED, names.RESUMED, *personal, *found))

    def drop_checkpoints(self) -> None:
        """Remove what the server of a finished run knew, but not its privacy ledger."""
        for path in sorted(self.checkpoint.glob("round-*")):  # the newest last, and each at once, should this be killed
            path.rename(path.with_name(f".{path.name}"))
        self._finish_dropping()
        atomic.sync(self.checkpoint)

    def _finish_dropping(self) -> None:
        """Remove the checkpoints that are set aside for that, by a process that was killed meanwhile too, and what goes
        with them; also where the run's owner has removed those of a finished run that was withheld."""
        aside, withheld = [path.name for path in self.checkpoint.glob(".round-*")], self.checkpoint / names.WITHHELD
        is_over = aside or (self.is_finished and files.state(withheld).get("why"))
        if is_over and not any(self.checkpoint.glob("round-*")):
            for path in (self.journal(names.PENDING), self._sent, withheld):
                path.unlink(missing_ok=True)
        remove(self.checkpoint, tuple(aside))

    # ---- what a run writes -------------------------------------------------------------------------------------------

    def write(self, name: str, value: Any) -> None:
        """A file of JSON: a dataclass of ``runs.schema``, a list of them, or what JSON has.

        Args:
            name: of the file, a constant of ``runs.names``.

        Raises:
            CheckpointError: the disk is full or the folder cannot be written; the old file is intact.
        """
        self._write_text(name, jsontext.dumps(_plain(value), indent=1) + "\n")

    def write_private(self, name: str, lines: Sequence[Mapping[str, Any]]) -> None:
        """A file for the run's owner alone, of lines of JSON; ``name`` as of ``write``."""
        atomic.make_private(self.path / names.PRIVATE / names.OWNER)
        text = [jsontext.dumps(line) + "\n" for line in ({"private": names.NOT_FOR_PUBLICATION}, *lines)]
        self._write_text(name, "".join(text), private=True)

    def write_config(self, text: str) -> None:
        """The experiment, as TOML."""
        self._write_text(names.CONFIG, text)

    def write_records(
        self,
        sites: Sequence[schema.SiteReport],
        exclusions: schema.Exclusions,
        unused: Sequence[Mapping[str, Any]],
        protects: str | None = None,
    ) -> None:
        """What became of all records.

        Args:
            sites: of each site.
            exclusions: how many nobody uses.
            unused: of each of those, where it stands and why.
            protects: what the run's ε is of, a record or a site; with one, numbers of private records are for the run's
                owner alone. So is at how many sites a person has some, by which no ε of whole sites reckons.
        """
        if protects is not None:
            lines = [{"sites": _plain(sites)}, {"exclusions": _plain(exclusions)}, *unused]
            self.write_private(names.RECORDS, lines)
            sites = [schema.SiteReport(one.site, None, None, None, None, one.canaries) for one in sites]
            at = None if protects == "site" else exclusions.person_at
            exclusions = replace(exclusions, bad=None, overlap=None, train=None, person_at=at, asked=None)
            unused = []
        self.write(names.SITES, sites)
        self.write(names.EXCLUSION_COUNTS, exclusions)
        self.write(names.EXCLUSIONS, unused)

    def write_metrics(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """All rounds so far."""
        self._write_text(names.METRICS, "".join(jsontext.dumps(row) + "\n" for row in rows))

    def write_sent(self, state: Mapping[str, Any]) -> None:
        """What has travelled so far, JSON; as often as that changes, so that the disk is not waited for. A run that has
        not begun leaves nothing."""
        if self.config.exists():
            place = f"{names.CHECKPOINTS}/{names.SENT}"
            self._write_text(place, jsontext.dumps(state), private=True, synced=False)

    def write_live(self, told: Mapping[str, Any] | None) -> None:
        """What the run is doing, JSON, for its owner; None when it ends. As ``write_sent``."""
        place = f"{names.CHECKPOINTS}/{names.LIVE}"
        if told is None:
            (self.path / place).unlink(missing_ok=True)
        elif self.config.exists():
            self._write_text(place, jsontext.dumps(told), private=True, synced=False)

    def write_withheld(self, why: str) -> None:
        """Note, before anybody may watch, why nobody but the run's owner may; empty: anybody may."""
        self._write_text(f"{names.CHECKPOINTS}/{names.WITHHELD}", jsontext.dumps({"why": why}), private=True)

    def sent(self) -> dict[str, Any]:
        """What ``write_sent`` wrote last; nothing where it did not, or a failure of power has left no more of it."""
        return files.state(self._sent)

    def log(self, line: str) -> None:
        """Note a line for the run's owner alone.

        Raises:
            CheckpointError: the disk is full or the folder cannot be written.
        """
        path = self.path / names.LOG
        head = "" if path.exists() else f"{names.NOT_FOR_PUBLICATION}\n"
        with self._written():
            atomic.append(path, f"{head}{line}\n".encode())

    @contextmanager
    def replacing(self, place: Path, remark: str = "") -> Iterator[Path]:
        """A draft of a folder such as ``adapter`` or ``model``, which takes its place whole when the block ends well.

        Args:
            remark: why it is not for release, to lie beside it.

        Raises:
            CheckpointError: the disk is full or the folder cannot be written; what was there before is intact.
        """
        from safetensors import SafetensorError

        with self._written(SafetensorError), atomic.replacing_folder(place) as draft:
            yield draft
            if remark:
                (draft / names.NOT_FOR_RELEASE).write_text(remark, encoding="utf-8")

    def write_remark(self, remark: str) -> None:
        """Why nothing that the run leaves is for release, adapters of sites' own included."""
        self._write_text(names.NOT_FOR_RELEASE, remark)

    def write_outcomes(self, outcomes: Mapping[str, Any]) -> None:
        """What a method leaves besides, by file name: JSON or a dataclass of it, or what writes a folder of that name.
        No folder where that is nothing."""
        place = self.path / names.OUTCOMES
        if outcomes:
            with self._written():
                place.mkdir(exist_ok=True)
        for name, value in outcomes.items():
            if callable(value):
                with self.replacing(place / name) as draft:
                    value(draft)
            else:
                self.write(f"{names.OUTCOMES}/{name}", value)

    def verdicts(self, name: str) -> Path:
        """Where the verdicts of a judgement are kept, with questions that may be private: for the run's owner alone."""
        place = self.path / names.PRIVATE / names.OWNER / names.JUDGED
        for folder in (place.parent.parent, place.parent, place):
            atomic.make_private(folder)
        return place / f"{name}.jsonl"

    def write_judgement(self, name: str, judgement: Judgement) -> None:
        """What a judge made of the run's answers; ``name`` is that of the file, without its end."""
        with self._written():
            (self.path / names.JUDGED).mkdir(exist_ok=True)
        self.write(f"{names.JUDGED}/{name}.json", judgement)

    def note_posted(self, posted: Posted) -> None:
        """Note, before it is, that something is sent to a judge elsewhere."""
        noted = files.rows(self.path / names.ENDPOINTS, Posted) or ()
        if posted not in noted:
            self.write(names.ENDPOINTS, [*noted, posted])

    def _write_text(self, name: str, text: str, *, private: bool = False, synced: bool = True) -> None:
        """Write a file so that readers see the old one or the new one (``atomic.replacing``)."""
        with self._written(), atomic.replacing(self.path / name, private=private, synced=synced) as stream:
            stream.write(text.encode())

    def _written(self, *others: type[Exception]) -> AbstractContextManager[None]:
        return explaining("the run folder cannot be written", self.path, "or change run.folder", *others)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _is_taken(path: Path) -> bool:
    """Whether something is there that could be lost: folders without files hold nothing, nor do locks and notes of a
    process that was killed before it kept anything."""
    if not path.is_dir():
        return path.exists()
    passed = (LOCK, Path(names.CHOSEN_BY).name)
    return any(not item.is_dir() and item.name not in passed for item in path.rglob("*"))
