"""Train GraphSAGE by Ray Train: workers share each epoch of one data set, and its predictions.

    python examples/ray_train.py DATASET --out RUN [--workers 2] [--epochs 3]

Every seed is in a batch of exactly one worker. At the end, each worker predicts a part of the nodes
and writes it to `RUN/predictions/part=K`. Spark, DuckDB and Polars read the parts as one table.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model
from safetensors.torch import save_file
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import outercore as oc


def work(options: dict[str, Any]) -> None:
    """The job of each worker. Every worker opens the data set, so no data is copied or sent."""
    torch.manual_seed(0)
    graph = oc.open(options["dataset"])
    # The loader takes its share of an epoch by the rank in the process group.
    loader = oc.NeighborLoader(
        graph, [10, 5], "train", batch_size=64, shuffle=True, drop_last=True, memory="64MiB"
    )
    network = GraphSAGE(graph.num_features, 32, num_layers=2, out_channels=graph.num_classes)
    model = prepare_model(network)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options["epochs"]):
        model.train()
        losses = []
        for batch in loader:
            optimiser.zero_grad()
            seeds = slice(batch.batch_size)
            loss = cross_entropy(model(batch.x, batch.edge_index)[seeds], batch.y[seeds])
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        _report(network, {"epoch": epoch + 1, "loss": float(np.mean(losses))})
    loader.close()
    _predict(graph, network, Path(options["out"]) / "predictions")


def _report(model: torch.nn.Module, metrics: dict[str, Any]) -> None:
    """Reports the metrics of an epoch to Ray; rank 0 adds the weights, equal in all workers."""
    with tempfile.TemporaryDirectory() as directory:
        checkpoint = None
        if ray.train.get_context().get_world_rank() == 0:
            save_file(model.state_dict(), Path(directory) / "model.safetensors")
            checkpoint = ray.train.Checkpoint.from_directory(directory)
        ray.train.report(metrics, checkpoint=checkpoint)


@torch.no_grad()
def _predict(graph: oc.Graph, model: torch.nn.Module, out: Path) -> None:
    """Writes the predictions of this worker's part of the nodes, batch by batch."""
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    nodes = np.arange(graph.num_nodes * rank // workers, graph.num_nodes * (rank + 1) // workers)
    part = out / f"part={rank}"
    part.mkdir(parents=True, exist_ok=True)
    schema = pa.schema({"id": pa.int64(), "prediction": pa.int64()})
    model.eval()
    # The nodes are already divided among the workers: the loader must not divide them again.
    loader = oc.NeighborLoader(
        graph, [10, 5], nodes, batch_size=256, labels=None, memory="64MiB", rank=0, world_size=1
    )
    with loader, pq.ParquetWriter(part / "nodes.parquet", schema) as file:
        for batch in loader:
            logits = model(batch.x, batch.edge_index)[: batch.batch_size]
            columns = [batch.n_id[: batch.batch_size].numpy(), logits.argmax(dim=1).numpy()]
            file.write_table(pa.table(columns, schema=schema))


def main() -> None:
    """Train and predict; print the last loss and the accuracy on the test nodes."""
    parser = argparse.ArgumentParser(description="Train GraphSAGE by Ray Train.")
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    out = options.out.resolve()
    ray.init(num_cpus=options.workers, include_dashboard=False, log_to_driver=False)
    trainer = TorchTrainer(
        work,
        train_loop_config={
            "dataset": str(options.dataset.resolve()),
            "out": str(out),
            "epochs": options.epochs,
        },
        scaling_config=ray.train.ScalingConfig(num_workers=options.workers),
        run_config=ray.train.RunConfig(name="ray", storage_path=str(out)),
    )
    result = trainer.fit()
    predicted = pq.read_table(out / "predictions").sort_by("id")
    graph = oc.open(options.dataset)
    test = graph.split("test")
    right = predicted["prediction"].to_numpy()[test] == graph.array("y")[test]
    print(f"loss {result.metrics['loss']:.4f}, accuracy on the test nodes {right.mean():.4f}")


if __name__ == "__main__":
    main()
