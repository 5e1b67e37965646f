"""Gather the rows of each batch from a memory-mapped array. Prints one JSON line.

    python benchmarks/workers/gather_memmap.py X.npy BATCHES.npz [--advice random] [--seconds S]

A loader over `np.memmap` features does this for each batch, after sampling. The time of sampling is
not counted, which favours the mapped programs.
"""

import argparse
import itertools
import json
import mmap
import time

import numpy as np

ADVICE = {"none": None, "random": mmap.MADV_RANDOM}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("x")
    parser.add_argument("batches")
    parser.add_argument("--advice", choices=ADVICE, default="none")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop an epoch after so long")
    options = parser.parse_args()

    plan = np.load(options.batches)
    nodes, begins = plan["nodes"], plan["begins"]
    x = np.load(options.x, mmap_mode="r")
    if ADVICE[options.advice] is not None:
        x._mmap.madvise(ADVICE[options.advice])
    epochs = []
    for _ in range(options.epochs):
        done, rows, started = 0, 0, time.perf_counter()
        for begin, end in itertools.pairwise(begins):
            batch = x[nodes[begin:end]]
            rows += len(batch)
            done += 1
            if time.perf_counter() - started > options.seconds:
                break
        epochs.append({"batches": done, "rows": rows, "seconds": time.perf_counter() - started})
    print(json.dumps({"program": f"memmap-{options.advice}", "epochs": epochs}))


if __name__ == "__main__":
    main()
