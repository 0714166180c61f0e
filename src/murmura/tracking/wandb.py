"""Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from murmura.tracking.sink import Sink, Tracked


class WeightsAndBiases(Sink):
    """A run with the run's own id, so that it goes on where it was. Of this machine its system and Python's version are
    told besides, and nothing else: neither its name, paths, packages, code and console, nor how busy it is, which
    follows from the records that are worked on."""

    needs = extra = "wandb"

    def __init__(self, run: Tracked) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # to its makers
        import wandb

        run.folder.mkdir(parents=True, exist_ok=True)
        quiet = wandb.Settings(
            console="off",
            host="",  # else its name
            program="murmura",  # else its path
            silent=True,
            login_timeout=30,  # where nobody has logged in, nobody may be there to
            disable_code=True,
            disable_git=True,
            save_code=False,
            x_save_requirements=False,  # the packages that are installed
            x_disable_stats=True,
            x_disable_meta=True,
            x_disable_machine_info=True,
        )
        self._after = run.after
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=run.run,
            resume="allow",
            reinit="create_new",  # else it is whichever run this process is in already
            dir=str(run.folder),
            config=dict(run.parameters),
            settings=quiet,
        )

    def log(self, round: int, figures: Mapping[str, float]) -> None:
        self._run.log({**figures, "round": round}, step=round)
        if round <= self._after:  # its server takes nothing more of such a step; tables and filters go by the summary
            self._run.summary.update(dict(figures))

    def close(self, report: Path | None) -> None:
        if report is not None:
            self._run.summary["report"] = str(report)
        self._run.finish(exit_code=0 if report is not None else 1)
