"""Epochs of PyTorch-BigGraph on numbered triples. Prints one JSON line.

    python benchmarks/peers/pbg_train.py TRIPLES.npz WORK --model complex --negatives 150
        [--dim 100] [--batch-size 1000] [--chunk 50] [--workers 2] [--epochs 3] [--partitions 1]
        [--delay 0]

`TRIPLES.npz` has `train` (int64 [m, 3]: head, relation, tail), `entities` and `relations`. The
directory `WORK` is emptied. It then holds the edges in PyTorch-BigGraph's format, its checkpoints,
and with several partitions the entities that are not in memory. `--chunk` triples share their
negatives on both sides: the other ends of the chunk, and uniformly drawn entities up to
`--negatives`. Workers are processes with one thread. They start in the first epoch, which does not
count. In it, all but one of them wait for `--delay` seconds in every bucket (PyTorch-BigGraph's
default is 2).
"""

import argparse
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import torch
from torchbiggraph.config import ConfigSchema
from torchbiggraph.edgelist import EdgeList
from torchbiggraph.entitylist import EntityList
from torchbiggraph.graph_storages import FileEdgeStorage, FileEntityStorage, FileRelationTypeStorage
from torchbiggraph.train import train_and_report_stats

MODELS = {
    "complex": ("complex_diagonal", "dot"),
    "distmult": ("diagonal", "dot"),
    "transe-2": ("translation", "l2"),
    "dot": ("none", "dot"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("triples")
    parser.add_argument("work", type=Path)
    parser.add_argument("--model", choices=list(MODELS), required=True)
    parser.add_argument("--dim", type=int, default=100, help="numbers of an entity")
    parser.add_argument("--negatives", type=int, required=True)
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--chunk", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--delay", type=int, default=0)
    options = parser.parse_args()
    if options.negatives < options.chunk:
        parser.error("--negatives: expected at least those of a chunk")

    shutil.rmtree(options.work, ignore_errors=True)
    count = write_input(Path(options.triples), options.work, options.partitions)
    operator, comparator = MODELS[options.model]
    config = ConfigSchema.from_dict(
        {
            "entity_path": str(options.work / "entities"),
            "edge_paths": [str(options.work / "edges")],
            "checkpoint_path": str(options.work / "checkpoint"),
            "entities": {"all": {"num_partitions": options.partitions}},
            "relations": [{"name": "all", "lhs": "all", "rhs": "all", "operator": operator}],
            "dynamic_relations": True,
            "dimension": options.dim,
            "global_emb": False,
            "comparator": comparator,
            "loss_fn": "softmax",
            "lr": 0.1,
            "num_epochs": options.epochs,
            "batch_size": options.batch_size,
            "num_batch_negs": options.chunk,
            "num_uniform_negs": options.negatives - options.chunk,
            "eval_fraction": 0.0,
            "workers": options.workers,
            "hogwild_delay": options.delay,
        }
    )
    buckets = options.partitions**2
    ends, processor, losses = [time.perf_counter()], [], []
    for index, _, stats, _ in train_and_report_stats(config):
        losses.append(stats.metrics["loss"])
        if index % buckets == buckets - 1:
            ends.append(time.perf_counter())
            processor.append(processor_seconds())
    seconds = [after - before for before, after in itertools.pairwise(ends)]
    shutil.rmtree(options.work)
    print(
        json.dumps(
            {
                "program": "pbg",
                "triples": count,
                "first_epoch": seconds[0],
                "epochs": seconds[1:],
                "triples_per_second": count * len(seconds[1:]) / sum(seconds[1:]),
                "processor_seconds": processor[-1] - processor[0],
                "losses": losses[:: max(1, len(losses) // 8)],
                "peak_resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            }
        )
    )


def processor_seconds() -> float:
    """Processor seconds of this process and its workers until now."""
    ticks = 0
    for child in multiprocessing.active_children():
        # The name, in parentheses, may contain blanks. User and system time are the 12th and 13th
        # fields after it.
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def write_input(triples: Path, work: Path, partitions: int) -> int:
    """Write randomly assigned entities, and edges by partitions; returns the number of edges."""
    with np.load(triples) as stored:
        train, entities = stored["train"], int(stored["entities"])
        relations = int(stored["relations"])
    counts = FileEntityStorage(str(work / "entities"))
    counts.prepare()
    kinds = FileRelationTypeStorage(str(work / "entities"))
    kinds.prepare()
    kinds.save_count(relations)
    edges = FileEdgeStorage(str(work / "edges"))
    edges.prepare()

    dealt = np.random.default_rng(0).permutation(entities)
    part, place = dealt % partitions, dealt // partitions
    for partition in range(partitions):
        counts.save_count("all", partition, int((part == partition).sum()))
    heads, tails = part[train[:, 0]], part[train[:, 2]]
    for source in range(partitions):
        for target in range(partitions):
            chosen = train[(heads == source) & (tails == target)]
            edges.save_edges(
                source,
                target,
                EdgeList(
                    EntityList.from_tensor(torch.from_numpy(place[chosen[:, 0]])),
                    EntityList.from_tensor(torch.from_numpy(place[chosen[:, 2]])),
                    torch.from_numpy(chosen[:, 1].copy()),
                ),
            )
    return len(train)


if __name__ == "__main__":
    main()
