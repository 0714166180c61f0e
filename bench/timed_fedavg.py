"""Flower's FedAvg with a clock, of ``way_flower.py`` and ``way_stock.py``."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from flwr.app import Message
from flwr.serverapp.strategy import FedAvg


class TimedFedAvg(FedAvg):
    """FedAvg that notes the seconds of each round, and the sites' GPU memory where they tell it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.seconds: list[float] = []
        self.gpu_peak = 0

    def configure_train(self, server_round: int, *rest: Any) -> Iterable[Message]:
        self.begun = time.perf_counter()
        return super().configure_train(server_round, *rest)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies = list(replies)
        failed = [reply.error for reply in replies if reply.has_error()]
        if failed:
            raise RuntimeError(f"{len(failed)} sites failed: {failed[0]}")
        peaks = [int(reply.content["metrics"].get("gpu-peak", 0)) for reply in replies]
        self.gpu_peak = max([self.gpu_peak, *peaks])
        result = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self.begun)
        return result
