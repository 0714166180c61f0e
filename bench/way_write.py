"""Ways (m), (s) and (f): Murmura writes greedily, by sampling, and with several sites' adapters in one batch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

from work import WritingWork, adapter_of, bank, finish, gpu_peak, initial, timed, tokens_of

from murmura.generation.sampling import Sampling
from murmura.generation.writer import complete
from murmura.streams import Stream

ENDLESS = SimpleNamespace(eos_token_id=None, decode=lambda ids, **_: "")  # texts end by their limits alone


def main(work: WritingWork, out: str, way: str) -> None:
    murmura, shapes = bank(work)
    murmura.model.generation_config.eos_token_id = None
    # Greedily and by sampling one adapter writes that changes nothing, so that tokens can be compared with the base's.
    murmura.load([adapter_of(shapes, site) for site in range(work.sites)] if way == "f" else [initial(shapes)])
    prompts, limits = work.prompts(), work.limits()
    slots = [work.site_of(i) if way == "f" else 0 for i in range(work.texts)]
    sampling = Sampling(work.temperature, work.top_p, work.top_k) if way == "s" else None
    streams = [Stream(0) / "text" / i for i in range(work.texts)]

    def write(most: int) -> list[list[int]]:
        how = {"sampling": sampling, "streams": streams[:most], "rows": max(work.batches)}
        written = complete(murmura, ENDLESS, prompts[:most], slots[:most], limits[:most], **how)
        return [text.ids for text in written]

    write(2)
    written, seconds = timed(lambda: write(work.texts), 1)
    finish(out, {"tokens": tokens_of(written)}, seconds, gpu_peak(work))


if __name__ == "__main__":
    main(WritingWork.read(sys.argv[1]), *sys.argv[2:])
