"""Generate the synthetic inputs of the benchmarks once, and reuse them.

    python benchmarks/workloads.py NAME --out DIR

A workload is a folder with `edges.npy` (int64 [E, 2]), `x.npy` (float32 [N, F]), `y.npy`,
`splits.npz` (train) and `workload.json`. The graphs are R-MAT (0.57, 0.19, 0.19, 0.05) with
scrambled ids, as in Graph500. Without scrambling, nodes of high degree would share pages, and every
cache would look better than it is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

QUADRANTS = (0.57, 0.19, 0.19, 0.05)
CHUNK_EDGES = 1 << 21
CHUNK_ROWS = 1 << 16
DATA_BEGIN = 4096


@dataclass(frozen=True)
class Workload:
    """Sizes of a synthetic graph."""

    name: str
    scale: int
    """The graph has 2^scale nodes."""
    edges: int
    width: int
    """Features per node, float32; 0: no features."""
    seeds: int
    """Nodes of the training split."""
    classes: int = 16
    seed: int = 1
    order: str = "any"
    """`in-edges first`: nodes with in-edges have the lower ids. In R-MAT half have no in-edges."""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return 1 << self.scale

    @property
    def data_bytes(self) -> int:
        """Bytes of features and topology as stored: 4-byte sources, 8-byte offsets."""
        return self.nodes * self.width * 4 + self.edges * 4 + (self.nodes + 1) * 8


WORKLOADS = {
    workload.name: workload
    for workload in (
        # Epochs and gathers: 9 GB, of which a tenth is the memory limit.
        Workload("rmat24", scale=24, edges=1 << 26, width=128, seeds=1 << 16),
        # Sampled edges per second, and the import of 64 M edges.
        Workload("rmat22", scale=22, edges=1 << 26, width=0, seeds=1 << 18),
        # Inference over all nodes: 1.2 GB, 16 arcs per node.
        Workload("rmat21", scale=21, edges=1 << 25, width=128, seeds=1 << 15),
        # Embedding with partitions on disk: 512 MB of rows and state with 64 dimensions.
        Workload("rmat20", scale=20, edges=1 << 23, width=0, seeds=1 << 16),
        # Serving: ten edges per node, 512 bytes of features.
        *(
            Workload(
                f"serve{scale}",
                scale,
                edges=10 << scale,
                width=128,
                seeds=1 << (scale - 6),
                order="in-edges first",
            )
            for scale in (16, 20, 22)
        ),
        # Serving with rows of one page: 4 KiB of features.
        Workload("wide16", 16, edges=10 << 16, width=1024, seeds=1 << 10, order="in-edges first"),
        # Epochs of small batches: 2 GiB of rows of 512 bytes, and of rows of one page.
        Workload("rows512", 22, edges=1 << 25, width=128, seeds=1 << 16),
        Workload("rows4096", 19, edges=1 << 22, width=1024, seeds=1 << 16),
        # Features of increasing width, on one graph.
        *(
            Workload(f"wide19-{width}", 19, edges=1 << 22, width=width, seeds=1 << 16)
            for width in (128, 256, 512, 1024)
        ),
        # For quick runs and for the tests of the scripts.
        Workload("rmat18", scale=18, edges=1 << 21, width=128, seeds=1 << 13),
    )
}


def scrambled(ids: np.ndarray, scale: int) -> np.ndarray:
    """A fixed bijection of [0, 2^scale): multiply by an odd number, fold the high half down."""
    mask = np.uint64((1 << scale) - 1)
    half = np.uint64((scale + 1) // 2)
    z = ids.astype(np.uint64)
    for odd in (0x9E3779B1, 0x85EBCA77):
        z = (z * np.uint64(odd)) & mask
        z ^= z >> half
    return z.astype(np.int64)


def rmat(scale: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """`count` directed edges [count, 2] of an R-MAT graph, ids scrambled."""
    a, b, c, _ = QUADRANTS
    bounds = [np.uint16(round(65536 * edge)) for edge in (a, a + b, a + b + c)]
    source = np.zeros(count, np.uint32)
    target = np.zeros(count, np.uint32)
    for _level in range(scale):
        draw = np.frombuffer(rng.bytes(2 * count), np.uint16)
        low = draw >= bounds[1]
        source <<= 1
        source |= low
        target <<= 1
        target |= (draw >= bounds[0]) & ~low
        target |= draw >= bounds[2]
    return np.stack([scrambled(source, scale), scrambled(target, scale)], axis=1)


def _array(path: Path, dtype: str, shape: tuple[int, ...]) -> np.memmap:
    """A new `.npy` file to fill, with its data from byte 4096.

    Rows whose size divides a page are then within one page, for every program that reads the file.
    """
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    length = DATA_BEGIN - 10
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little"))
        file.write(head.encode().ljust(length - 1) + b"\n")
    return np.memmap(path, dtype=np.dtype(dtype), mode="r+", offset=DATA_BEGIN, shape=shape)


def make(work: Workload, out: Path) -> dict[str, object]:
    """Write the files of `work` to `out`, unless they exist."""
    done = out / "workload.json"
    if done.exists() and {"order": "any", **json.loads(done.read_text())} == asdict(work):
        return asdict(work)
    out.mkdir(parents=True, exist_ok=True)
    edges = _array(out / "edges.npy", "<i8", (work.edges, 2))
    has_neighbours = np.zeros(work.nodes, bool)
    for begin in range(0, work.edges, CHUNK_EDGES):
        count = min(CHUNK_EDGES, work.edges - begin)
        part = rmat(work.scale, count, np.random.default_rng((work.seed, 0, begin)))
        edges[begin : begin + count] = part
        has_neighbours[part[:, 1]] = True
    if work.order == "in-edges first":
        ranked = np.argsort(~has_neighbours, kind="stable")
        place = np.empty(work.nodes, np.int64)
        place[ranked] = np.arange(work.nodes)
        for begin in range(0, work.edges, CHUNK_EDGES):
            edges[begin : begin + CHUNK_EDGES] = place[edges[begin : begin + CHUNK_EDGES]]
        has_neighbours = has_neighbours[ranked]
    edges.flush()
    if work.width:
        x = _array(out / "x.npy", "<f4", (work.nodes, work.width))
        for begin in range(0, work.nodes, CHUNK_ROWS):
            rows = min(CHUNK_ROWS, work.nodes - begin)
            rng = np.random.default_rng((work.seed, 1, begin))
            x[begin : begin + rows] = rng.random((rows, work.width), np.float32)
        x.flush()
    rng = np.random.default_rng((work.seed, 2))
    np.save(out / "y.npy", rng.integers(0, work.classes, work.nodes))
    seeds = rng.choice(np.flatnonzero(has_neighbours), work.seeds, replace=False)
    np.savez(out / "splits.npz", train=seeds)
    done.write_text(json.dumps(asdict(work)))
    return asdict(work)


def write_text(edges: Path, out: Path) -> None:
    """The edge list as `source,target` lines, the text input of the import benchmark."""
    import pyarrow as pa
    import pyarrow.csv as text

    if out.exists():
        return
    array = np.load(edges, mmap_mode="r")
    partial = out.with_suffix(".part")
    schema = pa.schema([("source", pa.int64()), ("target", pa.int64())])
    with text.CSVWriter(
        partial, schema, write_options=text.WriteOptions(include_header=False)
    ) as writer:
        for begin in range(0, len(array), CHUNK_EDGES):
            part = np.ascontiguousarray(array[begin : begin + CHUNK_EDGES].T)
            writer.write_table(pa.table([part[0], part[1]], schema=schema))
    partial.rename(out)


def main(arguments: list[str] | None = None) -> int:
    """Command line: `workloads.py NAME --out DIR [--text]`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--text", action="store_true", help="write edges.csv too")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    made = make(WORKLOADS[options.name], options.out)
    if options.text:
        write_text(options.out / "edges.npy", options.out / "edges.csv")
    print(json.dumps({**made, "seconds": round(time.perf_counter() - started, 1)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
