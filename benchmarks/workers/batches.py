"""Write the node ids of the batches of an epoch, for the gather benchmark.

    python benchmarks/workers/batches.py WORKLOAD OUT.npz [--batches N]

`nodes` holds the node ids of all batches, batch after batch, in the order of a loader; batch b is
`nodes[begins[b]:begins[b + 1]]`.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from memory_loader import MemoryLoader, csc_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("workload", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--batches", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--fanout", default="15,10")
    options = parser.parse_args()

    nodes = 1 << json.loads((options.workload / "workload.json").read_text())["scale"]
    graph = csc_of(np.load(options.workload / "edges.npy"), nodes, undirected=False)
    seeds = np.load(options.workload / "splits.npz")["train"]
    loader = MemoryLoader(
        graph,
        np.empty((nodes, 0), np.float32),
        np.empty(nodes, np.int8),
        seeds,
        [int(word) for word in options.fanout.split(",")],
        options.batch_size,
    )
    rng = np.random.default_rng(0)
    parts = []
    for batch in range(min(options.batches, len(loader))):
        begin = batch * options.batch_size
        parts.append(loader.sample(seeds[begin : begin + options.batch_size], rng)[0])
    begins = np.cumsum([0, *(len(part) for part in parts)])
    np.savez(options.out, nodes=np.concatenate(parts), begins=begins)
    print(json.dumps({"batches": len(parts), "rows": int(begins[-1])}))


if __name__ == "__main__":
    main()
