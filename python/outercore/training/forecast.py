"""The forecast of a training: the expected reads and seconds of an epoch."""

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
    """The forecast of the training loader, with the training step of the network as a stage.

    It is empty for whole graphs and edges, whose loaders have no forecast. A copy of the network
    makes the steps, so the network and PyTorch's generators do not change.

    Cost: as `MiniBatches.forecast`, and the memory of a second network with its optimiser.
    """
    if config.of_links or config.of_graphs:
        return {}
    loader = work.loaders.training()
    if not isinstance(loader, MiniBatches):
        # `open_loader` of the caller has made another loader.
        return {}
    generators = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=generators), _copied(work):
        try:
            found = loader.forecast(_step_of(work, config, device))
        except BudgetError:
            # A batch is larger than planned. The run handles this when it reaches the batch.
            return {}
    if not work.loaders.shares["validation_memory"]:
        # Each validation takes the memory of the caches, so later epochs start with empty caches.
        found["later_epochs"] = dict(found["first_epoch"])
    return found


@contextmanager
def _copied(work: Work) -> Iterator[None]:
    """Replaces the network by a copy within the block."""
    network = work.model
    work.model = copy.deepcopy(network)
    try:
        yield
    finally:
        work.model = network


def _step_of(work: Work, config: TrainConfig, device: torch.device) -> Callable[[Any], None]:
    """A function that trains the network on a batch."""
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
