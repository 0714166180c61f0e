"""The options of ``[tracking]``."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from murmura.config import Section, address
from murmura.errors import nearest
from murmura.tracking import TRACKERS


def _known(name: str) -> str:
    if name not in TRACKERS:
        raise ValueError(f"there is no tracker '{name}'. {nearest(name, TRACKERS)}")
    return name


class TrackingConfig(Section):
    """Trackers of experiments that are told what the run publishes: figures of its rounds, options, and where its
    report is. One that fails stops no run."""

    to: tuple[Annotated[str, AfterValidator(_known)], ...] = ()
    """Any of "tensorboard", "mlflow" and "wandb" (Weights & Biases, which sends it to a server of that company unless
    WANDB_MODE is offline or WANDB_BASE_URL names another), each with its extra: pip install 'murmura[mlflow]'."""
    project: str = Field("murmura", min_length=1)
    """The project at Weights & Biases, the experiment at MLflow."""
    folder: str | None = None
    """Where trackers write what they keep on this disk; `tracking` in the run's folder if not given."""
    mlflow_uri: Annotated[str, address("MLFLOW_TRACKING_USERNAME and _PASSWORD")] | None = None
    """MLflow's tracking URI, such as https://HOST or sqlite:///FILE; if not given, mlflow.db in
    `folder`."""

    @model_validator(mode="after")
    def _options_of_trackers(self) -> TrackingConfig:
        if len(set(self.to)) < len(self.to):
            raise ValueError("'to' names a tracker twice")
        if not self.to:
            self.refuse_idle(["project", "folder", "mlflow_uri"], "without tracking.to")
        elif "mlflow" not in self.to:
            self.refuse_idle(["mlflow_uri"], "unless tracking.to names mlflow")
        return self
