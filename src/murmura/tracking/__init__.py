"""What a run publishes, told to trackers of experiments as it goes on."""

from murmura.registry import Registry

TRACKERS = Registry(
    "murmura.trackers",
    {
        "mlflow": "murmura.tracking.mlflow:MLflow",
        "tensorboard": "murmura.tracking.tensorboard:TensorBoard",
        "wandb": "murmura.tracking.wandb:WeightsAndBiases",
    },
)
"""Those that are known, by name; other packages may bring some."""
