"""Runs of comparisons without processes of their own, which take long to start."""

import time

import pytest

from murmura.compare import jobs
from murmura.errors import MurmuraError
from murmura.experiment.run import run
from murmura.runs.folder import RunFolder
from murmura.training.states import SHARED


def runs_in_this_process(monkeypatch):
    """Have comparisons make their runs here from now on; the names of those that were begun."""
    begun = []

    def in_process(job, at_once, under_way):
        begun.append(job.folder.name)
        began = time.monotonic()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv(SHARED, str(job.states))
                run(job.experiment, resume=RunFolder(job.folder).holds_run)
        except MurmuraError as error:
            return jobs.Ended(time.monotonic() - began, str(error))
        return jobs.Ended(time.monotonic() - began)

    monkeypatch.setattr(jobs, "_run", in_process)
    return begun
