"""Speed of BLAS: peak, and for the products of a chunk. Prints one JSON line.

    python benchmarks/workers/blas.py --rows 1000 --negatives 1000 --dim 100 [--threads 2]

The products of a chunk are the scores [rows, dim] by [dim, negatives], the gradient of the queries,
and the gradient of the candidates.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

SQUARE = 4096
"""Rows and columns of the product that measures the peak."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--negatives", type=int, default=1000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    square = torch.randn(SQUARE, SQUARE)
    out = torch.empty(SQUARE, SQUARE)
    peak = 2 * SQUARE**3 / seconds(lambda: torch.mm(square, square, out=out), calls=5)

    queries = torch.randn(options.rows, options.dim)
    candidates = torch.randn(options.negatives, options.dim)
    scores = torch.empty(options.rows, options.negatives)
    to_queries, to_candidates = torch.empty_like(queries), torch.empty_like(candidates)

    def chunk() -> None:
        torch.mm(queries, candidates.t(), out=scores)
        torch.mm(scores, candidates, out=to_queries)
        torch.mm(scores.t(), queries, out=to_candidates)

    needed = 6 * options.rows * options.negatives * options.dim
    print(json.dumps({"peak": peak, "chunk": needed / seconds(chunk, calls=50)}))


def seconds(call: Callable[[], object], calls: int) -> float:
    """The median of several calls, after one that does not count."""
    call()
    times = []
    for _ in range(calls):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
