"""Way (p) of ``attention.py``: Murmura's bank, with attention as PyTorch computes it."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import way_bank
from work import Work

from murmura.training import loop


def main(work: Work, out: str) -> None:
    loop.short_in_float32 = nullcontext
    way_bank.main(work, out)


if __name__ == "__main__":
    main(Work.read(sys.argv[1]), sys.argv[2])
