"""Train, test and predict by PyTorch Lightning, on batches from disk.

    pip install lightning
    python examples/lightning_fit.py DATASET [--epochs 3] [--memory 256MiB] [--out FOLDER]

`trainer.fit`, `test` and `predict` accept `oc.NeighborLoader` like a `DataLoader`. Lightning saves
the loader's state in its checkpoints, so a stopped run resumes at the same batch.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_geometric.nn import GraphSAGE

import outercore as oc


class Classifier(lightning.LightningModule):
    """GraphSAGE that predicts the classes of nodes."""

    def __init__(self, features: int, classes: int) -> None:
        """Two layers of 64 hidden dimensions."""
        super().__init__()
        self.model = GraphSAGE(features, 64, num_layers=2, out_channels=classes)

    def forward(self, batch: Any) -> Tensor:
        """Logits [batch_size, classes] of the seeds."""
        logits: Tensor = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        return logits

    def training_step(self, batch: Any) -> Tensor:
        """The loss of the seeds."""
        loss = cross_entropy(self(batch), batch.y[: batch.batch_size])
        self.log("train_loss", loss, batch_size=batch.batch_size, prog_bar=True)
        return loss

    def validation_step(self, batch: Any) -> None:
        """Accuracy on the validation nodes."""
        self._log_accuracy("valid_accuracy", batch)

    def test_step(self, batch: Any) -> None:
        """Accuracy on the test nodes."""
        self._log_accuracy("test_accuracy", batch)

    def predict_step(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The ids of the seeds and their classes."""
        return batch.n_id[: batch.batch_size], self(batch).argmax(dim=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.005)

    def _log_accuracy(self, name: str, batch: Any) -> None:
        right = self(batch).argmax(dim=1) == batch.y[: batch.batch_size]
        self.log(name, right.float().mean(), batch_size=batch.batch_size, prog_bar=True)


def main() -> None:
    """Fit, test, predict."""
    arguments = _arguments()
    lightning.seed_everything(0)
    graph = oc.open(arguments.dataset)
    common = {"num_neighbors": [10, 5], "batch_size": 512, "memory": arguments.memory}
    train = oc.NeighborLoader(graph, input_nodes="train", shuffle=True, **common)
    valid = oc.NeighborLoader(graph, input_nodes="valid", **common)
    test = oc.NeighborLoader(graph, input_nodes="test", **common)
    every = oc.NeighborLoader(graph, input_nodes=None, **common)

    out = arguments.out or tempfile.mkdtemp(prefix="lightning-")
    trainer = lightning.Trainer(
        max_epochs=arguments.epochs,
        default_root_dir=out,
        accelerator="auto",
        devices=1,
        callbacks=[ModelCheckpoint(every_n_train_steps=10, save_last=True)],
        enable_progress_bar=False,
        logger=False,
    )
    model = Classifier(graph.num_features, graph.num_classes)
    trainer.fit(model, train, valid)
    scores = trainer.test(model, test)
    batches = trainer.predict(model, every)
    assert batches is not None
    ids, classes = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert torch.equal(ids.cpu(), torch.arange(graph.num_nodes))
    print(f"accuracy {scores[0]['test_accuracy']:.3f}, {len(classes)} predictions")
    print(f"checkpoints are in {out}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train GraphSAGE by PyTorch Lightning.")
    parser.add_argument("dataset")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--memory", default="256MiB")
    parser.add_argument("--out", help="folder of checkpoints; a temporary one by default")
    return parser.parse_args()


if __name__ == "__main__":
    main()
