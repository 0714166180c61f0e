"""What files are called, in a run folder, in a site's place and in a federation."""

from __future__ import annotations

from urllib.parse import quote, unquote

CONFIG = "config.toml"
"""The experiment with every option written out, as the last round was run with; the kind of record too."""
ENVIRONMENT = "environment.json"
SITES = "sites.json"
EXCLUSION_COUNTS = "data.json"
EXCLUSIONS = "exclusions.json"
"""Of each record that nobody uses: its file, its line and the reason."""
MEASURED = "measured.json"
"""What the run is measured on."""
METRICS = "metrics.jsonl"
DISCLOSURE = "disclosure.json"
AUGMENT = "augment.json"
"""With ``[augment]``: which public records sites were given, and why."""
PERSONAL = "personal.json"
"""With ``[personal]``: how good the models of single sites are."""
RESUMED = "resumed.json"
"""What was different when the run was resumed; there only where something was."""
SUMMARY = "summary.json"
REPORT = "report.html"
CHECKPOINTS = "checkpoint"
ID = f"{CHECKPOINTS}/id"
"""What sites know the run by, and other runs that have counted it: wherever it lies."""
PRIVATE = "private"
OWNER = "@run"
"""In ``private``, what is for the run's owner alone. No site's folder can be called so (``site_folder``)."""
STATES = "states"
"""Within a private folder, hidden states of its owner's records that memory has no room for, while a run goes on."""
FIGURES = f"{PRIVATE}/{OWNER}/figures.jsonl"
"""Of a run that guarantees something: how long each round took, which grows with the records; and where its ε counts on
secret cohorts, what really travelled."""
RECORDS = f"{PRIVATE}/{OWNER}/records.jsonl"
"""Of a run that promises an ε: what became of all records."""
INPUTS = f"{PRIVATE}/{OWNER}/inputs.jsonl"
"""Digests of the files that the run reads (``experiment.inputs``)."""
ANCHOR = f"{PRIVATE}/{OWNER}/anchor.jsonl"
"""Of a finished run that promised an ε: how far the server's privacy ledger had come, which its checkpoints had."""
LOG = f"{PRIVATE}/{OWNER}/log.txt"
"""Of such a run: what else would have been printed."""
TRACKING, TRACKED = "tracking", f"{PRIVATE}/{OWNER}/tracked.json"
"""What trackers of experiments keep on this disk, and of which rounds each has been told (``tracking.tell``)."""
EVALUATION = "evaluation.json"
"""What ``murmura evaluate`` has found."""
AUDIT = "audit.json"
"""What ``murmura audit`` has found, in figures over many records."""
AUDIT_SCORES = f"{PRIVATE}/{OWNER}/audit.jsonl"
"""The same record by record."""
TRANSCRIPT = f"{PRIVATE}/{OWNER}/rounds"
"""With ``audit.keep``, what a curious server would have kept of each round (``federation.server.transcript``)."""
NOT_FOR_PUBLICATION = (
    "For the owner of this run alone. Do not publish this file: what it tells of the sites is not covered by the ε of "
    "the run's report, which would no longer hold."
)
"""The first line of these files; of JSON lines as ``{"private": ...}``."""
PRIVACY_LEDGER = "privacy.journal"
"""In ``checkpoint`` the server's, in a site's place the site's."""
PRIVACY, REPORTED, PENDING, CAVEATS = "privacy", "reported", "pending", "caveats"
"""Journals in ``checkpoint``: the server's ledger, ε that sites have reported, secret cohorts that are not released."""
CHOSEN_BY = f"{CHECKPOINTS}/chosen-by.journal"
"""What the runs had spent by which options of this one were chosen (``privacy.run_ledgers``)."""
CENTRES_LEDGER = "centres.journal"
"""In a site's place: what noisy centres of its records have spent, and nothing else of the run."""
SENT = "sent.json"
"""In ``checkpoint``: what has travelled so far, in rounds too that were lost."""
LIVE = "live.json"
"""In ``checkpoint``, while a run goes on: what it is doing (``federation.server.activity``)."""
WITHHELD = "withheld.json"
"""In ``checkpoint``: why nobody but the run's owner may watch it before its end (``status.status``)."""
SITE_JOURNAL = "store.journal"
"""In a site's place: what it keeps and since when (``federation.site.store``)."""
SITE_NOTES = "notes.txt"
"""In a site's place: what its owner should know, and nobody else."""
SITE_DRAFTS = "drafts.jsonl"
"""In a site's place: some of what a model has last written after its records (``ShownDraft``), where it was
told to keep that; for its owner."""
SITE_IDENTITY = "identity.pem"
"""In a site's place: the key by which other sites know it (``federation.site.identity``)."""
SUMS_JOURNAL = "sums.journal"
"""In a site's place: every secure sum that it has signed (``federation.site.masking``)."""
ANSWERS_JOURNAL = "answers.journal"
"""In a site's place: every answer that a promise is for (``federation.site.answered``)."""
MEASURED_JOURNAL = "measured.journal"
"""Likewise every answer that measures a run on its records."""
RUNS_JOURNAL = "runs.journal"
"""In a site's place: every run that it has answered with its records (``federation.site.joined``)."""
RELEASED_JOURNAL = "released.journal"
"""In a site's place: everything that has left it (``federation.site.released``)."""
CONSENT_JOURNAL = "consent.journal"
"""In a site's place: to which experiments its owner has said yes (``experiment.consent``)."""
SITE_FILE, SITE_DATA = "site.toml", "records.jsonl"
"""In a site's place: what its owner has written down (``experiment.site_file``), and a simulated site's records."""
FEDERATION = "@federation"
"""In ``private``, what the members of a federation hand round. No site's folder can be called so."""
EXPERIMENT, ROSTER = "experiment.toml", "roster.json"
"""In that: the experiment, and the public keys of all sites."""
HELDOUT_DIGESTS, MODEL_DIGESTS, SERVER_ADDRESS, AUTHORITY = "heldout.json", "models.json", "server.json", "ca.crt"
"""Also in that, where sites are on machines of their own: digests of the records and questions that the run is measured
on, digests of the models that sites use (an ``Input`` each), where the server is reached, and the certificate that its
own is signed by."""
FLOWER, NODE_KEY, PUBLIC_KEYS = "flower", "flower.key", "public.json"
"""In such a site's place: what Flower keeps, the key by which it knows the site, and what the site is made known by."""
SITE_RECORDS, SITE_ANCHOR, CENTRES_ANCHOR, RELEASED_ANCHOR = "records", "ledger", "centres", "released"
"""Keys of lines in ``SITE_JOURNAL``: the digest of the site's records, and how far its privacy ledger had come (the
second one also of the server's, in ``ANCHOR``), that of its centres, and the journal of what has left."""
ADAPTER = "adapter"
SITE_ADAPTERS = "sites"
MODEL = "model"
NOT_FOR_RELEASE = "NOT_FOR_RELEASE.txt"
"""Beside a model that was trained on canaries: that it was."""
OUTCOMES = "outcomes"
"""A folder for what a method leaves besides: ``Method.outcomes``."""
CLASSIFIER = "classifier.json"
"""In ``outcomes``, of a run on labelled records."""
EVOLUTION, CURVE, DATASET = "evolution.json", "curve.json", "dataset"
"""In ``outcomes``, of a run that makes texts: its population (``runs.evolution.Generation``), how good the model is by
how many of them (``CurvePoint``), and the folder of the texts."""

JUDGED = "judged"
"""A folder for what judges made of a finished run's answers, a ``runs.judgement.Judgement`` each; of the same name in
the owner's place all that was asked and said."""

ENDPOINTS = "endpoints.json"
"""Which endpoints ``murmura judge`` has sent questions and answers to (``runs.judgement.Posted``): written before they
are sent, and there still when judgements are gone."""

EXPANDED = "expanded.jsonl"
"""Texts that the server has had written, one after the other: only ever added to (``synthesis.expansion``)."""

ENDED, FOUND = (SUMMARY, OUTCOMES, REPORT), (AUDIT, EVALUATION, JUDGED)
"""What says how a run ended, and what was found about its model since; only a finished one has them."""
_DESCRIPTION = (CONFIG, RESUMED, ENVIRONMENT, SITES, EXCLUSION_COUNTS, EXCLUSIONS, MEASURED)
_ROUNDS = (METRICS, DISCLOSURE, AUGMENT, PERSONAL, TRACKING, CHECKPOINTS, PRIVATE, EXPANDED, ENDPOINTS)
WRITTEN = (*_DESCRIPTION, *_ROUNDS, *ENDED, *FOUND, ADAPTER, SITE_ADAPTERS, MODEL, NOT_FOR_RELEASE)
"""All that a run writes into its folder."""


def site_folder(site: str) -> str:
    """A site's name as that of a folder, with no path in it."""
    name = quote(site, safe="")
    if name.strip("."):
        return name
    return name.replace(".", "%2E") or "%"  # quote leaves dots alone, and a folder needs a name


def site_of(folder: str) -> str:
    """The inverse of ``site_folder``."""
    return "" if folder == "%" else unquote(folder)
