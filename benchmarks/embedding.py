"""Embeddings in memory: the time of batches, and the quality of recipes.

    python benchmarks/embedding.py batches [--rows N] [--negatives N] [--dim D] [--threads T]
    python benchmarks/embedding.py train DIRECTORY NAME [--epochs N] [--seed S] [--threads T]

`batches` compares whole batches in the core with whole batches in PyTorch, the implementation for
GPUs: scores, loss, gradients and steps. It prints triples per second of processor time in the
fastest of several epochs, so that other programs on the machine have little effect.

`train` reads `DIRECTORY/NAME/{train,valid,test}.txt.xz` (head, relation, tail in each line). It
prints the loss and the speed of each epoch, and the validation metric every few epochs. At the end
it prints the test metrics of the best epoch with their protocol.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outercore.embedding.config import EmbedConfig
from outercore.embedding.epochs import Epochs
from outercore.embedding.gradients.negatives import known_answers
from outercore.embedding.gradients.trainer import Trainer, table_layout
from outercore.embedding.ranking.ranks import Candidates, Evaluation, rank
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.store import EpochReport

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measure import say

# ComplEx of rank 100 with reciprocal relations and N3 (Lacroix et al. 2018). The negatives are all
# entities for small graphs, or a sample that estimates their sum.
_MODEL = {"kind": "complex", "dim": 200, "reciprocal": True}
_SAMPLED = {"count": 1000, "correction": "frequency"}
RECIPES: dict[str, dict[str, Any]] = {
    "fb15k-237": {
        "model": _MODEL,
        "negatives": _SAMPLED,
        "optimiser": {"batch_size": 500, "chunk_size": 500, "epochs": 20},
        "regulariser": {"kind": "n3", "weight": 0.02},
    },
    "wn18": {
        "model": _MODEL,
        "negatives": _SAMPLED,
        "optimiser": {"batch_size": 500, "chunk_size": 500, "epochs": 20},
        "regulariser": {"kind": "n3", "weight": 0.005},
    },
    "codex-s": {
        "model": _MODEL,
        "negatives": {"kind": "all"},
        "optimiser": {"batch_size": 250, "chunk_size": 250, "epochs": 40},
        "regulariser": {"kind": "n3", "weight": 0.01},
    },
    "kinship": {
        "model": _MODEL,
        "negatives": {"kind": "all"},
        "optimiser": {"batch_size": 200, "chunk_size": 200, "epochs": 20},
        "regulariser": {"kind": "n3", "weight": 0.01},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    batches = verbs.add_parser("batches")
    batches.add_argument("--rows", type=int, default=1000)
    batches.add_argument("--negatives", type=int, default=1000)
    batches.add_argument("--dim", type=int, default=100)
    train = verbs.add_parser("train")
    train.add_argument("directory", type=Path)
    train.add_argument("name", choices=list(RECIPES))
    train.add_argument("--epochs", type=int)
    train.add_argument("--seed", type=int, default=0)
    for verb in (batches, train):
        verb.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.verb == "batches":
        compare_batches(options.rows, options.negatives, options.dim)
    else:
        train_recipe(options.directory, options.name, options.seed, options.epochs)


def compare_batches(rows: int, negatives: int, dim: int) -> None:
    """Prints triples per second of processor time for each model, in the core and in PyTorch."""
    adversarial = {"kind": "self-adversarial", "margin": 9.0}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"kind": "complex"}, {}),
        ({"kind": "distmult"}, {}),
        ({"kind": "transe", "norm": 2}, {}),
        ({"kind": "transe", "norm": 1}, adversarial),
        ({"kind": "rotate"}, adversarial),
    ]
    random = torch.Generator().manual_seed(0)
    counts = (20_000, 50, 20_000)
    triples = torch.stack([torch.randint(n, (8 * rows,), generator=random) for n in counts], dim=1)
    for model, loss in cases:
        config = EmbedConfig.from_dict(
            {
                "model": {**model, "dim": dim},
                "loss": loss,
                "negatives": {"count": negatives},
                "optimiser": {"batch_size": rows, "chunk_size": rows},
            }
        )
        core, by_pytorch = (_rate(config, triples, native=native) for native in (True, False))
        name = f"transe-l{config.model.norm}" if config.model.kind == "transe" else model["kind"]
        say(
            f"{name}, {config.loss.kind}: core {core:,.0f} triples/s, PyTorch {by_pytorch:,.0f}: "
            f"{core / by_pytorch:.1f} times"
        )


def _rate(config: EmbedConfig, triples: Tensor, *, native: bool) -> float:
    """Triples per second of processor time in the fastest of several epochs."""
    store = MemoryStore(triples, 20_000, 50)
    trainer = Trainer(store, config, native=native)
    layout = table_layout(config, trainer.model, 50)
    store.allocate(layout, torch.device("cpu"))
    times = []
    for epoch in range(5):
        started = time.process_time()
        for pool in store.pools(epoch):
            trainer.train_pool(pool, epoch)
        times.append(time.process_time() - started)
    return len(triples) / min(times)


def train_recipe(directory: Path, name: str, seed: int, epochs: int | None) -> None:
    """Trains a recipe and prints its metrics."""
    splits, entities, relations = read_triples(directory / name)
    values = dict(RECIPES[name], run={"seed": seed})
    if epochs is not None:
        values["optimiser"] = {**values["optimiser"], "epochs": epochs}
    config = EmbedConfig.from_dict(values)
    store = MemoryStore(splits["train"], entities, relations)
    trainer = Trainer(store, config)
    layout = table_layout(config, trainer.model, relations)
    store.allocate(layout, torch.device("cpu"))

    answers = known_answers(torch.cat(list(splits.values())))

    def ranks(split: str) -> Evaluation:
        return rank(
            store,
            trainer.model,
            splits[split],
            Candidates(),
            answers,
            reciprocal=config.model.reciprocal,
        ).evaluation()

    def tell(report: EpochReport) -> None:
        score = "" if report.score is None else f", valid MRR {report.score:.4f}"
        say(
            f"epoch {report.epoch + 1}: loss {report.loss:.4f}, "
            f"{report.triples / report.seconds:,.0f} triples/s{score}"
        )

    Epochs(trainer, validate=lambda: ranks("valid").mrr, after_epoch=tell).run()
    test_metrics = ranks("test")
    print(
        f"{name}, seed {seed}: {test_metrics.protocol}\n"
        f"filtered: {test_metrics.filtered}\nraw: {test_metrics.raw}"
    )


def read_triples(folder: Path) -> tuple[dict[str, Tensor], int, int]:
    """The three splits with names numbered in the order of the file, and the counts of names."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    splits = {}
    for split in ("train", "valid", "test"):
        with lzma.open(folder / f"{split}.txt.xz", "rt", encoding="utf-8") as lines:
            splits[split] = torch.tensor(
                [
                    (
                        entities.setdefault(head, len(entities)),
                        relations.setdefault(relation, len(relations)),
                        entities.setdefault(tail, len(entities)),
                    )
                    for head, relation, tail in (line.rstrip("\n").split("\t") for line in lines)
                ]
            )
    return splits, len(entities), len(relations)


if __name__ == "__main__":
    main()
