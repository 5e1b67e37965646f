"""BFS, components and PageRank of NetworKit on an edge list. Prints one JSON line.

python benchmarks/peers/networkit_run.py edges.npy --source S [--repeats R] [--threads T]
"""

import argparse
import json
import resource
import time
from pathlib import Path

import networkit as nk
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("edges", type=Path)
    parser.add_argument("--source", type=int, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=20)
    options = parser.parse_args()

    nk.setNumberOfThreads(options.threads)
    pairs = np.load(options.edges).astype(np.uint64)
    begun = time.perf_counter()
    ends = (np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))
    graph = nk.GraphFromCoo(ends, n=int(pairs.max()) + 1, weighted=False, directed=False)
    del pairs, ends
    result: dict[str, object] = {"build_s": time.perf_counter() - begun}

    def pagerank() -> nk.centrality.PageRank:
        ranks = nk.centrality.PageRank(graph, 0.85, 1e-300)
        ranks.maxIterations = options.iterations
        return ranks

    for name, make in (
        ("bfs", lambda: nk.distance.BFS(graph, options.source, False)),
        ("wcc", lambda: nk.components.ConnectedComponents(graph)),
        ("pagerank", pagerank),
    ):
        seconds = []
        for _turn in range(options.repeats):
            algorithm = make()
            begun = time.perf_counter()
            algorithm.run()
            seconds.append(time.perf_counter() - begun)
        result[name] = seconds
    result["peak_resident"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps(result))


if __name__ == "__main__":
    main()
