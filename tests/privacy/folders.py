"""Run folders with nothing in them but ledgers."""

from murmura.privacy.journal import Journal
from murmura.privacy.ledger import PrivacyLedger
from murmura.runs import RunFolder
from murmura.runs.names import PRIVACY_LEDGER, RECORDS, SITES
from tests.privacy.plans import followed


def ledger_of(plan, path, rounds=1):
    """A ledger in a file that says that a plan was followed to its end, in so many rounds."""
    made = PrivacyLedger(plan, Journal(path))
    for round in range(1, rounds + 1):
        made.record(round, [followed(plan, plan.steps // rounds)])
    return made


def run_folder(path, records, sites=None, whole=None):
    """A run that left nothing but its config and ledgers; one without records had its sites elsewhere."""
    path.mkdir(parents=True)
    RunFolder(path).config.write_text("" if records else '[run]\nengine = "flower"\n')
    return leave_ledgers(path, records, sites, whole)


def leave_ledgers(path, records, sites=None, whole=None):
    """Sites with these records (digests by site), the ledgers of ``sites`` by plan and one of all sites."""
    folder = RunFolder(path)
    for place in (folder.private, folder.checkpoint):
        place.mkdir()
    for site, digest in records.items():
        place = folder.private_of(site)
        place.mkdir(exist_ok=True)
        journal = Journal(place / "store.journal")
        if digest is not None:
            journal.append({"records": digest})
        if sites and site in sites:
            ledger = ledger_of(sites[site], place / "privacy.journal")
            journal.append({"ledger": ledger.journal.anchor})
    if (path / SITES).exists():  # what is published may name others: what the run used tells
        folder.write_private(RECORDS, [{"sites": [{"site": site, "used": 1} for site in records]}])
    if whole is not None:
        ledger_of(whole, folder.checkpoint / PRIVACY_LEDGER)
    return path
