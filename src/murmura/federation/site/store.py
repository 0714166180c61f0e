"""What a site keeps to itself, in a place of its own.

A site's folder holds two generations of its store, ``round-0003.safetensors``, and journals, which are only ever
appended to: ``store.journal`` has a digest of the site's records, the run that the store is of, which generations were
written, with their digests, which of them were given up, and how far the site's privacy ledgers, ``privacy.journal``
and ``centres.journal``, and the journal of what has left, ``released.journal``, had come. So a store can go back to an
earlier round, and what was spent cannot. A store that does not change is written twice, so that no single damaged file
costs both of the rounds that a run can go back to. ``.lock`` keeps other processes out.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock

from murmura import atomic
from murmura.errors import CheckpointError, RunError, explaining
from murmura.federation.wire.messages import Payload, decode, encode
from murmura.harmless import harmless
from murmura.privacy.journal import Anchor, Journal, chained
from murmura.progress import say
from murmura.runs import jsontext
from murmura.runs.locks import LOCK, acquire
from murmura.runs.names import (
    CENTRES_ANCHOR,
    CENTRES_LEDGER,
    NOT_FOR_PUBLICATION,
    PRIVACY_LEDGER,
    RELEASED_ANCHOR,
    RELEASED_JOURNAL,
    SITE_ANCHOR,
    SITE_DRAFTS,
    SITE_JOURNAL,
    SITE_NOTES,
    SITE_RECORDS,
    STATES,
)
from murmura.runs.schema import ShownDraft

RELEASED = "journal of what has left the site"
_DRAFTS = "For the owner of this site alone. Do not publish this file: a model wrote these texts after private records."
_BEGUN, _WRITTEN, _REWOUND = "begun", "written", "rewound"  # what else a line of the store's journal tells of


class SiteStore:
    """The folder of one site; only its owner may look into it. It is made when there is something to keep.

    Args:
        folder: of this site.
        site: its name, for messages.

    Attributes:
        ledger: the journal of what is spent of the site's privacy.
        centres: the journal of what noisy centres of its records have spent (``retrieval.noisy``).
        released: the journal of what has left the site (``federation.site.released``).

    Raises:
        PrivacyError: a journal is damaged or was edited.
    """

    def __init__(self, folder: Path, site: str) -> None:
        self.folder, self.site = folder, site
        self.ledger, self.centres = Journal(folder / PRIVACY_LEDGER), Journal(folder / CENTRES_LEDGER)
        self.released = Journal(folder / RELEASED_JOURNAL, RELEASED)
        self._ledgers = {SITE_ANCHOR: self.ledger, CENTRES_ANCHOR: self.centres, RELEASED_ANCHOR: self.released}
        self._journal = Journal(folder / SITE_JOURNAL, f"journal of site {site}")
        self._records: str | None = None
        self._unnoted: str | None = None  # digest of the records, until it is in the journal
        self._run: str | None = None  # of which everything here is
        self._begun: str | None = None  # the same, until it is in the journal
        self._named: set[str] = set()  # runs that the journal names, which one of an earlier release does not
        self._given_up: set[str | None] = set()  # runs of which something was kept, before another began
        self._generations: dict[int, str] = {}  # round -> SHA-256 of the store as it was after it
        self._lock: FileLock | None = None
        self._anchors: dict[str, Anchor] = {}  # how far the ledgers had come, as the journal says
        self._rewound: int | None = None  # the round it went back to, until that is in the journal
        for line in self._journal.lines:
            self._follow(line)
        for name, anchor in self._anchors.items():
            self._ledgers[name].check(anchor)

    @classmethod
    def held(cls, folder: Path, site: str, *, locked: bool = True) -> SiteStore:
        """The store of a site in its own folder. No other process may hold it until this one lets go or ends, however
        it ends.

        Args:
            locked: its lock stays open. If not, no other process holds it now, and the caller knows that none will.

        Raises:
            CheckpointError: another process holds it, or it cannot be written.
            PrivacyError: a journal is damaged.
        """
        with _written(site, folder):
            atomic.make_private(folder)
            lock = acquire(folder)
        try:
            store = cls(folder, site)
        except BaseException:
            lock.release()
            raise
        store._lock = lock
        if not locked:
            lock.release()
        store._drop_states()
        return store

    def release(self) -> None:
        """Let other processes hold it. Where nothing was kept, nothing is left."""
        if self._lock is None:
            return
        self._drop_states()
        with suppress(OSError):  # the folder may be gone, and then nothing is left
            if [item.name for item in self.folder.iterdir()] == [LOCK]:
                (self.folder / LOCK).unlink()
                self.folder.rmdir()
        self._lock.release()
        self._lock = None

    def _drop_states(self) -> None:
        shutil.rmtree(self.folder / STATES, ignore_errors=True)

    @property
    def is_known(self) -> bool:
        """Whether the site has taken part in this run before."""
        return self._records is not None

    def is_about(self, records: str) -> bool:
        """Whether the site takes part with these records since the run began; the first ones are noted with the first
        round that is kept, so that a run that comes to nothing leaves nothing.

        Args:
            records: their digest.
        """
        if self._records is None:
            self._unnoted = records
        return self._records in (None, records)

    def begin(self, run: str) -> None:
        """Begin a run with nothing. What is there of another run, and would be taken for what was kept of this one, is
        given up with the first round that is kept."""
        self._begun = run
        self._follow({_BEGUN: run})

    def resume(self, run: str) -> None:
        """Go on with a run that the site has taken part in.

        Raises:
            CheckpointError: what it kept of that run was given up for another.
        """
        unnamed = None in self._given_up and run not in self._named
        if run in self._given_up or unnamed:
            what = f"site {self.site} has taken part in another run since, and what it kept of this one is gone"
            raise CheckpointError(what, where=str(self.folder), fix="Start over with --overwrite.")
        if self._run not in (None, run):
            self.begin(run)

    def tell(self, what: str) -> None:
        """Tell the site's owner, and nobody else, in a line of a file in its folder.

        Raises:
            CheckpointError: it cannot be written.
        """
        path = self.folder / SITE_NOTES
        with _written(self.site, self.folder):
            head = "" if path.exists() else f"{NOT_FOR_PUBLICATION}\n"
            atomic.append(path, f"{head}{harmless(what)}\n".encode())

    def show(self, drafts: Sequence[ShownDraft]) -> None:
        """Keep some texts for the site's owner, and nobody else, in place of those that were kept before.

        Raises:
            CheckpointError: they cannot be written.
        """
        lines = [{"private": _DRAFTS}, *map(asdict, drafts)]
        with _written(self.site, self.folder):
            text = "".join(f"{jsontext.dumps(line)}\n" for line in lines)
            with atomic.replacing(self.folder / SITE_DRAFTS, private=True) as stream:
                stream.write(text.encode())

    def commit(self, round: int, store: Payload) -> None:
        """Keep the store as it is after a round, beside the generation before. One that has not changed is there, and
        is written a second time.

        Raises:
            CheckpointError: the folder cannot be written; the generations before are intact.
        """
        if self._records is None and self._unnoted is not None:
            self._append({SITE_RECORDS: self._unnoted})
        if self._begun is not None:
            self._append({_BEGUN: self._begun})
            self._begun = None
        if self._rewound is not None:
            self._append({_REWOUND: self._rewound})
            self._rewound = None
        for name, ledger in self._ledgers.items():
            if ledger.lines and ledger.anchor != self._anchors.get(name):
                self._append({name: ledger.anchor})
        data = encode(store)
        digest = hashlib.sha256(data).hexdigest()
        if self._has(round, digest):
            return
        with _written(self.site, self.folder):
            atomic.make_private(self.folder)
            with atomic.replacing(self._file(round), private=True) as stream:
                stream.write(data)
        self._append({_WRITTEN: round, "sha256": digest})
        kept = {self._file(one) for one in (round, self._at(round - 1)) if one is not None}
        for path in set(self.folder.glob("round-*.safetensors")) - kept:
            path.unlink(missing_ok=True)

    def rewind(self, round: int) -> Payload:
        """The store as it was after a round. Later generations are given up with the next round that is kept: until
        then a run that cannot resume from here after all, since another site is damaged, may still take them up.

        Raises:
            CheckpointError: it is damaged or gone, and so is its copy, if it has one.
            RunError: it may not be read.
        """
        generation = self._at(round)
        store = {} if generation is None else self._read(generation)
        if any(later > round for later in self._generations):
            self._rewound = round
            self._follow({_REWOUND: round})
        return store

    def _has(self, round: int, digest: str) -> bool:
        """Whether a store needs no writing: it is empty as ever, was written after this round, or is there twice."""
        last = self._at(round)
        if last is None:
            return digest == _digest({})
        before = self._at(last - 1)
        twice = before is not None and self._generations[before] == digest
        return self._generations[last] == digest and (last == round or twice)

    def _read(self, generation: int) -> Payload:
        digest = self._generations[generation]
        copies = [one for one, sha in self._generations.items() if sha == digest and one != generation]
        damage = ""
        for one in (generation, *reversed(copies)):
            try:
                data = self._file(one).read_bytes()
                if hashlib.sha256(data).hexdigest() != digest:
                    raise ValueError("it is not what was written")
                store = decode(data)
            except PermissionError as error:  # which is no damage, so that no round is given up for it
                what = f"what site {self.site} kept cannot be read ({error.strerror})"
                fix = "Resume as the user who started the run, or mend the rights."
                raise RunError(what, where=str(self._file(one)), fix=fix) from error
            except (OSError, ValueError, RunError) as error:
                damage = damage or ("it is missing" if isinstance(error, FileNotFoundError) else str(error))
                continue
            if damage:
                say(f"{self._file(generation)} cannot be read ({damage}); {self._file(one).name} holds the same")
                del self._generations[generation]  # so that it is written again
            return store
        what = f"what site {self.site} kept after round {generation} cannot be read ({damage})"
        fix = "Restore it from a copy, or start over with --overwrite."
        raise CheckpointError(what, where=str(self._file(generation)), fix=fix)

    # ---- the journal -------------------------------------------------------------------------------------------------

    def _append(self, line: Mapping[str, Any]) -> None:
        self._journal.append(line)
        self._follow(line)

    def _follow(self, line: Mapping[str, Any]) -> None:
        if _WRITTEN in line:
            self._generations = {r: sha for r, sha in self._generations.items() if r < line[_WRITTEN]}
            self._generations[line[_WRITTEN]] = line["sha256"]
        elif _REWOUND in line:
            self._generations = {r: sha for r, sha in self._generations.items() if r <= line[_REWOUND]}
        elif _BEGUN in line:
            if self._generations and self._run != line[_BEGUN]:
                self._given_up.add(self._run)
            self._given_up.discard(line[_BEGUN])
            self._named.add(line[_BEGUN])
            self._run, self._generations = line[_BEGUN], {}
        elif SITE_RECORDS in line:
            self._records = line[SITE_RECORDS]
        self._anchors.update({name: line[name] for name in self._ledgers if name in line})

    def _at(self, round: int) -> int | None:
        """The generation that holds the store as it was after a round."""
        return max((one for one in self._generations if one <= round), default=None)

    def _file(self, round: int) -> Path:
        return self.folder / f"round-{round:04d}.safetensors"


def released(folder: Path) -> Iterator[dict[str, Any]]:
    """What has left the site of a folder, line by line, also while its process goes on; nothing where no line is there.

    Raises:
        PrivacyError: a line is not what was written, and ``where`` names it; or lines are missing that were there when
            the site last kept a round.
        OSError: it cannot be read.
    """
    path, about = folder / RELEASED_JOURNAL, folder / SITE_JOURNAL
    kept = Journal.peek(about).lines  # first, since the other one is ahead of it
    read = Journal(None, RELEASED)
    for line, _ in chained(path, RELEASED):
        read.append(line)
        yield line
    for anchor in [line[RELEASED_ANCHOR] for line in kept if RELEASED_ANCHOR in line][-1:]:
        read.check(anchor)


def _written(site: str, folder: Path) -> AbstractContextManager[None]:
    fix = "then use --resume; what it kept before is intact"
    return explaining(f"what site {site} keeps could not be written", folder, fix)


def _digest(store: Payload) -> str:
    return hashlib.sha256(encode(store)).hexdigest()
