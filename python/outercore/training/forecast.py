"""Reads and seconds expected for an epoch of a training."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from outercore.errors import BudgetError
from outercore.loading.minibatches import MiniBatches
from outercore.training.config import TrainConfig
from outercore.training.work import Work


def forecast(work: Work, config: TrainConfig, device: torch.device) -> dict[str, Any]:
    """The forecast of the training loader, with steps of the network among its stages.

    Empty for whole graphs and edges, whose batches are different. The network and PyTorch's
    generators do not change: a copy makes the steps.

    Cost: see `MiniBatches.forecast`; the memory of a network and its optimiser.
    """
    if config.of_links or config.of_graphs:
        return {}
    loader = work.loaders.training()
    if not isinstance(loader, MiniBatches):
        # A caller's own, by `open_loader`.
        return {}
    generators = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=generators), _copied(work):
        try:
            found = loader.forecast(_step_of(work, config, device))
        except BudgetError:
            # A batch is larger than planned. The run handles this when the batch comes.
            return {}
    if not work.loaders.shares["validation_memory"]:
        # Each validation takes the memory of the caches.
        found["later_epochs"] = dict(found["first_epoch"])
    return found


@contextmanager
def _copied(work: Work) -> Iterator[None]:
    """Within it the network is a copy."""
    network = work.model
    work.model = copy.deepcopy(network)
    try:
        yield
    finally:
        work.model = network


def _step_of(work: Work, config: TrainConfig, device: torch.device) -> Callable[[Any], None]:
    """A training step over a batch."""
    work.model.to(device).train()
    adam = torch.optim.Adam(
        work.model.parameters(),
        lr=config.optimiser.learning_rate,
        weight_decay=config.optimiser.weight_decay,
    )

    def step(batch: Any) -> None:
        adam.zero_grad(set_to_none=True)
        loss, _ = work.loss(batch, device)
        float(loss.detach())
        loss.backward()
        adam.step()

    return step
