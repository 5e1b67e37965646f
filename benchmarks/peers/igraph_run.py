"""BFS, components and PageRank of igraph on an edge list. Prints one JSON line.

python benchmarks/peers/igraph_run.py edges.npy --source S [--repeats R]

igraph's PageRank (PRPACK) does not have an option for iterations: it ends at a fixed tolerance. Its
time is the time that a user waits. Parallel edges and loops are kept, as in the other programs.
"""

import argparse
import json
import resource
import time
from pathlib import Path

import igraph
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("edges", type=Path)
    parser.add_argument("--source", type=int, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    pairs = np.load(options.edges).astype(np.int64)
    begun = time.perf_counter()
    graph = igraph.Graph(n=int(pairs.max()) + 1, edges=pairs, directed=False)
    del pairs
    result: dict[str, object] = {"build_s": time.perf_counter() - begun}
    for name, run in (
        ("bfs", lambda: graph.distances(source=[options.source])),
        ("wcc", graph.connected_components),
        ("pagerank", lambda: graph.pagerank(damping=0.85)),
    ):
        seconds = []
        for _turn in range(options.repeats):
            begun = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - begun)
        result[name] = seconds
    result["peak_resident"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
