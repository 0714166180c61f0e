"""A federation whose sites are on machines of their own: what its members hand round, and what its server has.

Its folder has ``@federation``, for everybody; ``server``, for the server alone; and for each site a folder that goes to
the site's owner.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from os.path import realpath
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from murmura import atomic
from murmura.config import toml
from murmura.data.loading import load_records
from murmura.data.records import KINDS
from murmura.errors import CheckpointError, ConfigError, DataError, explaining, remedy
from murmura.experiment.config import Experiment
from murmura.experiment.elsewhere import Remote
from murmura.experiment.inputs import models_at_sites
from murmura.experiment.prepare import Plan
from murmura.experiment.simulation import share_out
from murmura.experiment.site_side import agreed_on
from murmura.federation.address import joined, machine, split
from murmura.federation.engines.flower.certificates import new_authority, new_server, node_key
from murmura.federation.site.identity import fingerprint, identity, public
from murmura.harmless import harmless
from murmura.measure.evaluation_set import digests
from murmura.progress import say
from murmura.runs.names import (
    AUTHORITY,
    EXPERIMENT,
    FEDERATION,
    HELDOUT_DIGESTS,
    MODEL_DIGESTS,
    NODE_KEY,
    PUBLIC_KEYS,
    ROSTER,
    SERVER_ADDRESS,
    SITE_FILE,
    site_folder,
)
from murmura.units import several

SERVER = "server"
"""The folder of what the server alone has."""
_EVERY = ("0.0.0.0", "::")
_KEY, _CERTIFICATE, _AUTHORITY_KEY = "server.key", "server.crt", "ca.key"
_HELDOUT, _NONMEMBERS, _MEMBERS = "heldout.jsonl", "nonmembers.jsonl", "members.json"
_TEMPLATE = """\
# What the owner of site {name} says. Then: murmura site init {folder}
name = {quoted}
records = "records.jsonl"    # a JSONL, CSV, Excel or Parquet file
# fields = {{instruction = "question", output = "answer"}}    # columns, where the names differ
# user = "patient"           # whom a record is about, where the run bounds how many a person may have
federation = "../{federation}"
device = "auto"
# results = "results"        # a folder for an adapter of this site's own, where a run leaves one

[allow]    # what runs may do; `murmura site show` prints what this one would
ask = true
"""


@dataclass(frozen=True)
class Member:
    """What a site is known by.

    Args:
        site: its name.
        records: how many it takes part with.
        identity: its public key among the sites (Ed25519), in hexadecimal digits.
        node: its public key for Flower, in OpenSSH's form.
    """

    site: str
    records: int
    identity: str
    node: str

    @property
    def fingerprint(self) -> str:
        """Of all of it, for people to compare."""
        return fingerprint(asdict(self))


@dataclass(frozen=True)
class Federation:
    """What the server has of a federation.

    Args:
        folder: of all of it.
        experiment: that its members have agreed on.
        members: by name, in the order of the run.
        address: HOST:PORT where the server is reached.
        heldout: records that the run is measured on.
        nonmembers: records that members are compared with, where they are not those.
    """

    folder: Path
    experiment: Experiment
    members: Mapping[str, Member]
    address: str
    heldout: Sequence[Any]
    nonmembers: Sequence[Any]

    @classmethod
    def load(cls, folder: Path, set: Mapping[str, Any] | None = None) -> Self:
        """Read what ``found`` has made and ``admit`` completed.

        Args:
            set: options of the experiment that the server has for itself; none of ``[data]``.

        Raises:
            ConfigError: it is no such folder, no site is known yet, or records are set.
            CheckpointError: whom it knows cannot be read.
            DataError: the records that it was made with are not here, or others are.
        """
        folder = Path(realpath(folder))  # Flower's commands work in folders of their own
        shared, own = folder / FEDERATION, folder / SERVER
        members = _members(folder)
        if not members:
            fix = "Make one with `murmura federation new`, and make its sites known with `murmura federation add`."
            raise ConfigError("there is no federation here with a site that is known", where=str(folder), fix=fix)
        if given := [key for key in set or {} if key.partition(".")[0] == "data"]:
            what = f"a run is measured on the records that its federation was made with, {SERVER}/{_HELDOUT}"
            fix = "Make a new federation of the changed experiment: `murmura federation new`."
            raise ConfigError(what, where=f"--set {given[0]}", fix=fix)
        address = server_of(shared)
        experiment = Experiment.load(shared / EXPERIMENT, set=set)
        agreed = agreed_on(shared)
        found = [_read(own / name, experiment, agreed) for name in (_HELDOUT, _NONMEMBERS)]
        return cls(folder, experiment, members, address, *found)

    @property
    def remote(self) -> Remote:
        """What preparation needs of it."""
        return Remote({name: one.records for name, one in self.members.items()}, self.heldout, self.nonmembers)

    @property
    def tls(self) -> tuple[Path, Path]:
        """Certificate and key of the server."""
        return self.folder / SERVER / _CERTIFICATE, self.folder / SERVER / _KEY


def found(plan: Plan, folder: Path, address: str, sites: Sequence[str] | None = None) -> dict[str, Path]:
    """Make a federation; returns the folders of its sites.

    Args:
        plan: of the experiment. Where its records are shared out, each site has its share.
        folder: of all of it; it must not be there.
        address: HOST[:PORT] where the server will be reached.
        sites: names of sites that have records of their own; None: those of the plan, with its records.

    Raises:
        ConfigError: a name cannot be a site's, or the folder is there.
        CheckpointError: something cannot be written.
    """
    if folder.exists():
        raise ConfigError("this path already exists", where=str(folder), fix="Name another folder.")
    folders = {name: folder / site_folder(name) for name in _checked(list(sites or plan.owned or {}))}
    try:
        _make(plan, folder, address, folders, shared_out=sites is None)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # else nobody could try again
        raise
    return folders


def _make(plan: Plan, folder: Path, address: str, folders: Mapping[str, Path], *, shared_out: bool) -> None:
    """Write all that a new federation has.

    Args:
        shared_out: whether each site has its share of the plan's records.
    """
    host, port = split(address)
    if host in _EVERY:
        fix = "Give the name or the address of the server's machine."
        raise ConfigError("sites cannot reach the server there: it stands for every address", where=address, fix=fix)
    _, records = plan.complete
    with explaining("the federation cannot be written", folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        for one in (folder, folder / SERVER, *folders.values()):
            atomic.make_private(one)
        own, shared = folder / SERVER, folder / FEDERATION
        if shared_out:
            shares = {site.name: [*site.records, *site.apart] for site in records.planted.sites}
            share_out(plan.experiment, shares, folders, None, ["auto"], simulated=False)
        else:
            atomic.make_private(shared)
            _write(shared / EXPERIMENT, plan.experiment.dump())
            for name, one in folders.items():
                quoted = toml(name)
                told = _TEMPLATE.format(name=name, folder=one.name, quoted=quoted, federation=FEDERATION)
                _write(one / SITE_FILE, told)
        people = records.people
        for name, some in {_HELDOUT: people.heldout, _NONMEMBERS: people.nonmembers}.items():
            _write(own / name, "".join(f"{json.dumps(asdict(one))}\n" for one in some))
        measured, apart = records.public, [*people.heldout, *people.nonmembers]
        listed = sorted(digests(apart, measured.choices, measured.benchmarks))
        _write(shared / HELDOUT_DIGESTS, json.dumps(listed))
        noted = models_at_sites(plan.experiment)
        _write(shared / MODEL_DIGESTS, json.dumps([asdict(one) for one in noted], indent=1))
        _write(shared / SERVER_ADDRESS, json.dumps({"address": joined(host, port)}))
    new_authority(shared / AUTHORITY, own / _AUTHORITY_KEY, plan.experiment.run.name)
    certify(folder)
    if "model.name" not in {one.option for one in noted}:
        say(
            f"the weights of {plan.experiment.model.name} are not on this machine, so sites cannot tell whether theirs "
            "are the same: fetch them (`murmura models fetch`), and make the federation anew"
        )


def server_of(federation: Path) -> str:
    """HOST:PORT of the server, as the folder says that is for everybody.

    Raises:
        ConfigError: nothing says it.
    """
    path = federation / SERVER_ADDRESS
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        fix = "Get the folder that the federation hands round from whoever made it."
        raise ConfigError(f"where the server is cannot be read ({why})", where=str(path), fix=fix) from None


def certify(folder: Path, further: Sequence[str] = ()) -> list[str]:
    """Give the server a new certificate, for where sites reach it, for its own machine, and for further names or
    addresses; returns all of them.

    Raises:
        ConfigError: the authority's files are damaged, nothing says where sites reach the server, or one of these is no
            name of a machine.
        CheckpointError: something cannot be read or written.
    """
    host, _ = split(server_of(folder / FEDERATION))
    others = [f"*.{machine(one[2:])}" if one.startswith("*.") else machine(one) for one in further]  # all of a domain
    own, named = folder / SERVER, list(dict.fromkeys([host, *others, "localhost", "127.0.0.1"]))
    new_server(own / _CERTIFICATE, own / _KEY, named, folder / FEDERATION / AUTHORITY, own / _AUTHORITY_KEY)
    return named


def introduce(folder: Path, site: str, records: int) -> Member:
    """Make the keys of a site, where it has none, and write down what it is made known by, which is returned.

    Raises:
        CheckpointError: something cannot be read or written.
    """
    member = Member(site, records, public(identity(folder)).hex(), node_key(folder / NODE_KEY))
    path = folder / PUBLIC_KEYS
    with explaining("what the site is made known by cannot be written", path):
        _write(path, json.dumps(asdict(member), indent=2))
    return member


def admit(folder: Path, introductions: Sequence[Path], replace: bool = False) -> dict[str, Member]:
    """Make sites known to a federation, whose roster has them from then on; returns all that it knows.

    Args:
        replace: whether sites that are known may have other keys from now on.

    Raises:
        ConfigError: no federation is there; a file is not what ``introduce`` writes; or it has other keys for a site
            that is known.
        CheckpointError: something cannot be read or written.
    """
    if not (folder / SERVER).is_dir():
        fix = "Name the folder that `murmura federation new` made."
        raise ConfigError("there is no federation here", where=str(folder), fix=fix)
    members = _members(folder)
    for one in introductions:
        member = _introduced(one)
        known = members.get(member.site, member)
        if (known.identity, known.node) != (member.identity, member.node) and not replace:
            prints = f"{known.fingerprint}, not {member.fingerprint}"
            what = f"site {member.site} is known by other keys (its fingerprint is {prints})"
            fix = "Ask its owner whether these keys are the site's; if so, give --replace."
            raise ConfigError(what, where=str(one), fix=fix)
        members[member.site] = member
    keys = [key for one in members.values() for key in (one.identity, one.node)]
    if len(set(keys)) < len(keys):
        raise ConfigError("two sites have the same key", where=str(folder), fix="Each makes keys of its own.")
    _know(folder, members)
    return members


def expel(folder: Path, site: str) -> dict[str, Member]:
    """Have a federation know a site no more; returns those that it still knows.

    Raises:
        ConfigError: it does not know it.
        CheckpointError: something cannot be written.
    """
    members = _members(folder)
    if site not in members:
        fix = f"It knows {', '.join(members) or 'none'}."
        raise ConfigError("the federation does not know this site", where=f"site {site}", fix=fix)
    del members[site]
    _know(folder, members)
    return members


def _members(folder: Path) -> dict[str, Member]:
    """Whom a federation knows."""
    path = folder / SERVER / _MEMBERS
    try:
        return {name: Member(**one) for name, one in json.loads(path.read_text()).items()} if path.exists() else {}
    except OSError as error:
        what = f"the federation's members cannot be read ({error.strerror})"
        raise CheckpointError(what, where=str(path), fix=f"{remedy(error)}.") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        fix = "Restore it, or remove it and make all sites known again with `murmura federation add`."
        raise ConfigError(f"this is not what was written ({error})", where=str(path), fix=fix) from None


def _know(folder: Path, members: Mapping[str, Member]) -> None:
    """Write down whom a federation knows, and its roster; this first, so that what fails in between can be repeated."""
    path = folder / SERVER / _MEMBERS
    with explaining("the federation's members cannot be written down", path):
        roster = {name: one.identity for name, one in members.items()}
        _write(folder / FEDERATION / ROSTER, json.dumps(roster, indent=0))
        _write(path, json.dumps({name: asdict(one) for name, one in members.items()}, indent=2))


def _introduced(path: Path) -> Member:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        member = Member(str(given["site"]), int(given["records"]), str(given["identity"]), str(given["node"]))
        node = load_ssh_public_key(member.node.encode())
        is_p384 = isinstance(node, EllipticCurvePublicKey) and node.curve.name == "secp384r1"
        are_keys = len(bytes.fromhex(member.identity)) == 32 and is_p384
        if not are_keys or member.records < 1 or not _is_name(member.site):
            raise ValueError("the name, a key or the number of records is none")
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, UnsupportedAlgorithm) as error:
        why = getattr(error, "strerror", None) or (f"it lacks {error}" if isinstance(error, KeyError) else str(error))
        fix = f"Name the file {PUBLIC_KEYS} that `murmura site init` has written."
        raise ConfigError(f"this does not make a site known ({why})", where=str(path), fix=fix) from None
    return member


def _is_name(site: str) -> bool:
    """Whether people who are shown it see all of it, and nothing else."""
    return site.isprintable() and site.strip() == site != ""


def _checked(sites: list[str]) -> list[str]:
    for name in sites:
        if not _is_name(name) or sites.count(name) > 1 or site_folder(name) == SERVER:
            what = f"'{harmless(name)}' cannot be a site's name, or is given twice"
            raise ConfigError(what, where="--sites, or data.train", fix="Give that site another name.")
    return sites


def _read(path: Path, experiment: Experiment, agreed: Set[str]) -> list[Any]:
    """The records of a file, which are among those that sites leave out of what they train on.

    Args:
        agreed: digests of those.
    """
    kind: type[Any] = KINDS[experiment.task.kind]
    fix = "Restore it from a copy, or make the federation anew."
    try:
        records = load_records(path, kind).records if path.stat().st_size else []
    except OSError as error:
        what = f"records that the run is measured with cannot be read ({error.strerror})"
        raise DataError(what, where=str(path), fix=fix) from None
    except DataError as error:
        raise DataError(error.what, where=error.where, fix=fix) from None
    if others := len(set(digests(records)) - agreed):
        what = f"the federation was not made with {several(others, 'record')} here, so that sites may train on them"
        raise DataError(what, where=str(path), fix=fix)
    return records


def _write(path: Path, text: str) -> None:
    atomic.write(path, text.encode(), private=True)
