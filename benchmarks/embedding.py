"""Embeddings in memory: what a chunk costs beside autograd, and what a recipe reaches.

    python benchmarks/embedding.py gradients [--rows N] [--negatives N] [--dim D] [--threads T]
    python benchmarks/embedding.py train DIRECTORY NAME [--epochs N] [--seed S] [--threads T]

`gradients` compares the processor time of one chunk's loss and gradients by hand with that of
PyTorch's operations alone and of the same formulas under autograd; the least of several calls
counts, so that a busy machine disturbs little. Triples a second are those of one core, both sides.
Where the work is a matrix product, its share of the rate of a large one is told.

`train` reads `DIRECTORY/NAME/{train,valid,test}.txt.xz` (head, relation, tail a line), prints the
loss and the speed of each epoch, the validation figure every few, and in the end the figures of
the best epoch on the test split with their protocol.
"""

from __future__ import annotations

import argparse
import lzma
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outercore.embedding import reference
from outercore.embedding.config import EmbedConfig, LossConfig, ModelConfig
from outercore.embedding.evaluate import Evaluation, evaluate
from outercore.embedding.kernels import Workspace
from outercore.embedding.losses import build_loss
from outercore.embedding.models import Chunk, Model, build_model
from outercore.embedding.observe import EpochReport
from outercore.embedding.store import MemoryStore
from outercore.embedding.trainer import Trainer, table_layout

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measure import say

# ComplEx of rank 100 with reciprocal relations and N3 (Lacroix et al. 2018): all entities as
# negatives where there are few of them, else a sample that estimates their sum.
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
    gradients = verbs.add_parser("gradients")
    gradients.add_argument("--rows", type=int, default=1000)
    gradients.add_argument("--negatives", type=int, default=1000)
    gradients.add_argument("--dim", type=int, default=100)
    train = verbs.add_parser("train")
    train.add_argument("directory", type=Path)
    train.add_argument("name", choices=list(RECIPES))
    train.add_argument("--epochs", type=int)
    train.add_argument("--seed", type=int, default=0)
    for verb in (gradients, train):
        verb.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.verb == "gradients":
        compare_gradients(options.rows, options.negatives, options.dim)
    else:
        train_recipe(options.directory, options.name, options.seed, options.epochs)


def compare_gradients(rows: int, negatives: int, dim: int) -> None:
    """One line for each model: milliseconds of processor time, and their ratios."""
    adversarial = LossConfig(kind="self-adversarial", margin=9.0)
    cases = [
        (ModelConfig(kind="complex", dim=dim), LossConfig()),
        (ModelConfig(kind="distmult", dim=dim), LossConfig()),
        (ModelConfig(kind="transe", dim=dim, norm=2), LossConfig()),
        (ModelConfig(kind="transe", dim=dim, norm=1), adversarial),
        (ModelConfig(kind="rotate", dim=dim), adversarial),
    ]
    peak = _product_rate()
    say(f"a product of matrices of 2,000 x 2,000: {peak / 1e9:.0f} GFLOP/s of processor time")
    for config, objective in cases:
        model, loss = build_model(config), build_loss(objective)
        chunk = _chunk(model, rows, negatives, dim)
        to_candidates = torch.zeros_like(chunk.candidates)
        by_hand, by_pytorch = (
            _least(partial(model.gradients, chunk, loss, to_candidates, Workspace(native=native)))
            for native in (True, False)
        )
        by_autograd = _least(partial(_autograd, config, objective, chunk))
        share = ""
        if config.kind != "rotate" and not (config.kind == "transe" and config.norm == 1):
            # Scores, gradients of queries, gradients of candidates.
            work = 3 * 2.0 * rows * negatives * dim
            share = f", {100 * work / peak / (1e-3 * by_hand):.0f} % of that rate"
        name = f"{config.kind}-l{config.norm}" if config.kind == "transe" else config.kind
        say(
            f"{name}, {objective.kind}: by hand {by_hand:.1f} ms ({rows / 2e-3 / by_hand:,.0f} "
            f"triples/s{share}), PyTorch alone {by_pytorch:.1f} ms, autograd {by_autograd:.1f} ms: "
            f"{by_pytorch / by_hand:.1f} and {by_autograd / by_hand:.1f} times"
        )


def _product_rate() -> float:
    """Operations a second of processor time in a large product of matrices."""
    first, second = torch.ones(2000, 2000), torch.ones(2000, 2000)
    out = torch.empty(2000, 2000)
    return 2 * 2000.0**3 / (1e-3 * _least(partial(torch.mm, first, second, out=out)))


def _chunk(model: Model, rows: int, negatives: int, dim: int) -> Chunk:
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return 0.1 * torch.randn(*shape, generator=random)

    return Chunk(
        side="tail",
        anchors=normal(rows, dim),
        relations=normal(rows, model.relation_width(dim)),
        targets=normal(rows, dim),
        candidates=normal(negatives, dim),
        weights=torch.full((rows,), 1.0 / rows),
        masked=None,
        bias=None,
    )


def _autograd(config: ModelConfig, objective: LossConfig, chunk: Chunk) -> None:
    """As one writes it with autograd in mind: a query, one product, `logsumexp`."""
    leaves = [
        rows.detach().requires_grad_(True)
        for rows in (chunk.anchors, chunk.relations, chunk.targets, chunk.candidates)
    ]
    anchors, relations, targets, candidates = leaves
    match config.kind:
        case "rotate":
            positives = reference.score(config, anchors, relations, targets)
            negatives = reference.score(config, anchors[:, None], relations[:, None], candidates)
        case "transe":
            queries = anchors + relations
            positives = -(queries - targets).norm(p=config.norm, dim=1)
            negatives = -torch.cdist(queries, candidates, p=float(config.norm))
        case _:
            queries = anchors * relations
            if config.kind == "complex":
                real, imaginary = anchors.chunk(2, dim=1)
                other_real, other_imaginary = relations.chunk(2, dim=1)
                queries = torch.cat(
                    [
                        real * other_real - imaginary * other_imaginary,
                        imaginary * other_real + real * other_imaginary,
                    ],
                    dim=1,
                )
            positives = (queries * targets).sum(dim=1)
            negatives = queries @ candidates.t()
    value = reference.loss(objective, positives, negatives, chunk.weights)
    torch.autograd.grad(value, leaves)


def _least(call: Callable[[], object], calls: int = 8) -> float:
    call()
    times = []
    for _ in range(calls):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return 1e3 * min(times)


def train_recipe(directory: Path, name: str, seed: int, epochs: int | None) -> None:
    """Trains a recipe and prints what it reaches."""
    splits, entities, relations = read_triples(directory / name)
    values = dict(RECIPES[name], run={"seed": seed})
    if epochs is not None:
        values["optimiser"] = {**values["optimiser"], "epochs": epochs}
    config = EmbedConfig.from_dict(values)
    store = MemoryStore(splits["train"], entities, relations)
    trainer = Trainer(store, config)
    layout = table_layout(config, trainer.model, relations)
    store.allocate(layout, config.run.seed, torch.device("cpu"))

    def ranks(split: str) -> Evaluation:
        return evaluate(
            store,
            trainer.model,
            splits[split],
            reciprocal=config.model.reciprocal,
            known=list(splits.values()),
        )

    def tell(report: EpochReport) -> None:
        score = "" if report.score is None else f", valid MRR {report.score:.4f}"
        say(
            f"epoch {report.epoch + 1}: loss {report.loss:.4f}, "
            f"{report.triples / report.seconds:,.0f} triples/s{score}"
        )

    trainer.fit(lambda: ranks("valid").mrr, tell)
    print(f"{name}, seed {seed}: {ranks('test')}")


def read_triples(folder: Path) -> tuple[dict[str, Tensor], int, int]:
    """The three splits with names numbered as they come, and how many names there are."""
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
