"""Train GraphSAGE with several processes that share each epoch, by PyTorch's `torchrun`.

    torchrun --standalone --nproc-per-node 2 examples/torchrun.py DATASET [--epochs 3]
    python examples/torchrun.py DATASET --steps-of 2

Every seed is in a batch of exactly one process. In each step, every process uses one batch, and the
gradients are averaged. The second command makes the same steps in one process, with two batches per
step.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import outercore as oc


def main() -> None:
    """Train, and print the mean loss of each epoch over all processes."""
    arguments = _arguments()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    graph = oc.open(arguments.dataset)
    # The loader takes its share of an epoch by the rank in the process group.
    loader = oc.NeighborLoader(
        graph, [10, 5], "train", batch_size=64, shuffle=True, drop_last=True, memory="64MiB"
    )
    model: nn.Module = GraphSAGE(
        graph.num_features, 32, num_layers=2, out_channels=graph.num_classes
    )
    if ranks > 1:
        model = DistributedDataParallel(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(arguments.epochs):
        losses = [
            _step(model, optimiser, batches) for batches in _groups(loader, arguments.steps_of)
        ]
        mean = torch.tensor(losses).mean()
        if ranks > 1:
            dist.all_reduce(mean)
            mean /= ranks
        if int(os.environ.get("RANK", "0")) == 0:
            print(f"epoch {epoch + 1}: {len(losses)} steps, loss {mean:.5f}")
    if ranks > 1:
        dist.destroy_process_group()


def _groups(loader: oc.NeighborLoader, size: int) -> Iterator[list]:
    """Groups of `size` batches; an incomplete last group is left out."""
    batches = iter(loader)
    groups = iter(lambda: list(itertools.islice(batches, size)), [])
    return (group for group in groups if len(group) == size)


def _step(model: nn.Module, optimiser: torch.optim.Optimizer, batches: list) -> float:
    """Makes a step with the mean loss of some batches, and returns this loss."""
    optimiser.zero_grad()
    total = 0.0
    for batch in batches:
        seeds = slice(batch.batch_size)
        loss = cross_entropy(model(batch.x, batch.edge_index)[seeds], batch.y[seeds]) / len(batches)
        loss.backward()
        total += float(loss.detach())
    optimiser.step()
    return total


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train GraphSAGE with several processes.")
    parser.add_argument("dataset")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps-of", type=int, default=1, help="batches of a step in one process")
    return parser.parse_args()


if __name__ == "__main__":
    main()
