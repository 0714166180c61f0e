"""TensorBoard's event files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from murmura.tracking.sink import Sink, Tracked


class TensorBoard(Sink):
    """Scalars by round in ``FOLDER/tensorboard/NAME``; the options are a text."""

    needs = extra = "tensorboard"

    def __init__(self, run: Tracked) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = run.folder / "tensorboard" / run.run[:8]
        self._writer = SummaryWriter(str(place), purge_step=run.after + 1)  # what a killed run has told is told again
        table = [f"| {key} | {value} |" for key, value in run.parameters.items()]
        self._writer.add_text("options", "\n".join(["| option | value |", "| --- | --- |", *table]), run.after + 1)

    def log(self, round: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self, report: Path | None) -> None:
        if report is not None:
            self._writer.add_text("report", str(report))
        self._writer.close()
