"""Pools of public records like those of the small experiments, with vectors of a tiny encoder."""

from murmura.data.records import Instruction
from murmura.retrieval.encoder import Encoder
from murmura.retrieval.pool import MANIFEST, Made, Pool
from tests.conftest import make_encoder
from tests.experiment.small import record
from tests.retrieval.pools import make_pool

DOMAINS = ("heart", "letter")


def save_encoder(folder, tokenizer, **options):
    make_encoder(tokenizer, **options).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def public(count, first=100):
    """Records of the domains by turns; none is a site's own unless ``first`` is so small that it is."""
    return [Instruction(**record(DOMAINS[number % 2], first + number)) for number in range(count)]


def embedded_pool(folder, encoder, records, domains=DOMAINS):
    """A pool of these records, of the domains by turns, embedded by the encoder in a folder."""
    by = Encoder(str(encoder), device="cpu")
    pool = make_pool(folder, by.embed([one.question for one in records]), domains, records=records)
    manifest = pool.manifest.model_copy(update={"encoder": Made(name=str(encoder), fingerprint=by.fingerprint)})
    (folder / MANIFEST).write_text(manifest.model_dump_json())
    return Pool.open(folder)
