"""A folder with one file a site: which of its entries are sites, and which are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from murmura.data.files import READERS, ending, stem
from murmura.data.refusal import indented
from murmura.data.texts import folded
from murmura.errors import DataError, nearest, nearest_file
from murmura.progress import say

_ONE_FILE = (
    'For one file or hub data set of all sites, set data.sites.by = "column" and data.sites.column, or '
    'data.sites.by = "partition" and data.sites.count.'
)
_HIDDEN = (".*", "~$*", "thumbs.db", "desktop.ini")  # what systems and Excel leave behind, nobody's records
_ABOUT = ("readme", "readme.*", "license", "license.*")


@dataclass(frozen=True)
class Entries:
    """What a folder with one file a site holds, hidden files apart.

    Attributes:
        sites: Site to file, sites in alphabetical order.
        ignored: What is about the folder (README, LICENSE), or is to be ignored.
        others: What no site can be made of.
    """

    sites: dict[str, Path]
    ignored: list[Path]
    others: list[Path]


def entries(folder: str | Path, ignore: Sequence[str] = ()) -> Entries:
    """Sort the entries of a folder. Every file of a type that is read is a site, called like the file without its
    ending.

    Args:
        ignore: Names of entries that are no sites, or patterns of them (``*.ods``); capitals count as small letters.

    Raises:
        DataError: There is no such folder, or nothing in it; or two files give the same name (upper and lower case
            not told apart, since a site's name becomes a folder's).
    """
    path = Path(folder)
    if not path.is_dir():
        fix = f"Expected a folder with one file a site. {_ONE_FILE}"
        beside = {one.name for one in path.parent.iterdir() if one.is_dir()} if path.parent.is_dir() else set()
        if not path.exists() and (hint := nearest_file(path.name, beside)):
            fix = f"{hint} {fix}"
        what = "there is no such folder" if not path.exists() else "not a folder"
        raise DataError(what, where=str(path.absolute()), fix=fix)
    found = sorted(entry for entry in path.iterdir() if not _is_like(entry, _HIDDEN))
    ignored = [entry for entry in found if _is_like(entry, [*_ABOUT, *ignore])]
    left = [entry for entry in found if entry not in ignored]
    files = [entry for entry in left if ending(entry) in READERS and not entry.is_dir()]
    others = [entry for entry in left if entry not in files]
    if not left:
        fix = f"Expected one file a site: {', '.join(READERS)}."
        raise DataError("no site's file in this folder", where=str(folder), fix=fix)
    return Entries(_by_site(files, folder), ignored, others)


def require_ignored(found: Sequence[Entries], patterns: Sequence[str], where: str) -> None:
    """
    Raises:
        DataError: in none of some folders is anything called like one of the patterns by which it was to be ignored.
    """
    for pattern in patterns:
        if not any(_is_like(entry, [pattern]) for one in found for entry in one.ignored):
            names = [entry.name for one in found for entry in [*one.sites.values(), *one.others]]
            fix = nearest(pattern, names)
            raise DataError(f"nothing here is called '{pattern}', to ignore", where=where, fix=fix)


def site_files(folder: str | Path, ignore: Sequence[str] = ()) -> dict[str, Path]:
    """The files of a folder with one file per site, sites in alphabetical order; what is ignored is said.

    Raises:
        DataError: As ``entries``; there is something that no site can be made of; or nothing is called like one of
            ``ignore``.
    """
    found = entries(folder, ignore)
    require_ignored([found], ignore, str(folder))
    if found.others:
        names = [entry.name + "/" * entry.is_dir() for entry in found.others]
        what = "1 entry" if len(names) == 1 else f"{len(names)} entries"
        quoted = ", ".join(f"'{entry.name}'" for entry in found.others)
        raise DataError(
            f"{what} of this folder cannot be read as a site's records:{indented(names)}",
            where=str(folder),
            fix=f"Known: {', '.join(READERS)}. Save tables as .xlsx or CSV UTF-8, unpack archives, and move elsewhere "
            f"what is no site's; or have an experiment ignore it: data.sites.ignore = [{quoted}].",
        )
    if found.ignored:
        say(f"{folder}: ignored, no site's file: {', '.join(entry.name for entry in found.ignored)}")
    return found.sites


def is_passed_over(entry: Path, ignore: Sequence[str] = ()) -> bool:
    """Whether an entry of such a folder, which need not be there yet, is taken for no site's file."""
    return _is_like(entry, [*_HIDDEN, *_ABOUT, *ignore])


def _is_like(entry: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(entry.name.casefold(), pattern.casefold()) for pattern in patterns)


def _by_site(files: Sequence[Path], folder: str | Path) -> dict[str, Path]:
    sites: dict[str, Path] = {}
    for file in sorted(files, key=lambda entry: (stem(entry), entry.name)):
        try:
            file.name.encode()
        except UnicodeEncodeError:
            raise DataError("the name of this file is not in UTF-8", where=str(file), fix="Rename it.") from None
        twin = sites.setdefault(folded(stem(file)).casefold(), file)
        if twin != file:
            what = f"'{twin.name}' and '{file.name}' both name the site '{stem(file)}'"
            raise DataError(what, where=str(folder), fix="Rename or remove one of them.")
    return {stem(file): file for file in sites.values()}
