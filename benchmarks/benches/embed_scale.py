"""An epoch over a graph whose embeddings are several times larger than the process's memory."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from limits import drop_cached, parse_bytes, run_limited
from measure import Result, Series, Settings, say
from product import command
from workloads import CHUNK_EDGES, rmat

DIM = 64
NEGATIVES = 100


@dataclass(frozen=True)
class Scale:
    """A graph, and the memory of the embedding process."""

    nodes: int
    links: int
    scale: int
    """Scale of the R-MAT graph; its ids are folded to the number of nodes."""
    limit: str
    """Memory limit of the whole process, including the page cache."""
    budget: str
    """Budget of the command; the rest is for Python with PyTorch."""


FULL = Scale(20_000_000, 40_000_000, scale=25, limit="2GiB", budget="1536MiB")
QUICK = Scale(1_000_000, 2_000_000, scale=20, limit="448MiB", budget="100MiB")
WHAT = (
    "One epoch of `outercore embed --model dot` at 64 numbers a node with full Adagrad, 100 "
    "negatives a side, on an R-MAT graph whose scrambled ids are folded to the number of nodes; "
    "every link once. The whole process runs in a memory cgroup, page cache included; `--memory` "
    "leaves some hundred MiB to Python and PyTorch. The import runs under the same limit. Disk: "
    "the data set, the partitions twice, buckets of links, and `entities.npy` at the end. "
    "Peak resident counts the pages of libraries, which the kernel may take back."
)


def run(settings: Settings) -> Result:
    """Import, train one epoch, check the rows; the run's directory is removed."""
    result = Result("embed_scale", WHAT)
    size = QUICK if settings.quick else FULL
    limit, budget = parse_bytes(size.limit), parse_bytes(size.budget)
    table = size.nodes * 2 * 4 * DIM
    data = _imported(settings, size, limit)

    out = settings.work / "embed_scale.run"
    shutil.rmtree(out, ignore_errors=True)
    drop_cached([data])
    say(f"{size.nodes:,} nodes, {table:,} bytes, --memory {budget:,}, cgroup of {limit:,}")
    outcome = run_limited(
        command(
            "embed", data, "--out", out, "--json", "--memory", budget, "--model", "dot",
            "--dim", DIM, "--negatives", NEGATIVES, "--held-out", 0, "--epochs", 1,
            "--set", f"budget.threads={settings.threads}",
        ),
        limit,
        env={"OMP_NUM_THREADS": str(settings.threads)},
    )  # fmt: skip
    outcome.check()
    record = json.loads(outcome.stdout[outcome.stdout.index("{") :])
    _check_rows(out / "entities.npy", size.nodes)
    on_disk = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    shutil.rmtree(out)

    (epoch,) = record["epochs"]
    counters, plan = epoch["counters"], record["plan"]
    case = f"{size.nodes:,} nodes, {epoch['triples']:,} links"
    measured = (
        ("whole run", "seconds", outcome.wall_s),
        ("epoch", "seconds", epoch["seconds"]),
        ("epoch: waits for partitions", "seconds", counters["waited_s"]),
        ("epoch: waits for triples", "seconds", counters["triples_waited_s"]),
        ("trained", "links/s", epoch["triples"] / epoch["seconds"]),
        ("partitions read", "bytes", counters["bytes_read"]),
        ("partitions written", "bytes", counters["bytes_written"]),
        ("rows and state", "bytes", table),
        ("budget", "bytes", budget),
        ("limit of the process", "bytes", limit),
        ("peak resident", "bytes", outcome.peak_resident),
        ("run on disk", "bytes", on_disk),
    )
    result.series += [Series("Outercore", f"{case}: {what}", unit, [value])
                      for what, unit, value in measured]  # fmt: skip
    if outcome.peak is not None:
        result.series.append(
            Series("Outercore", f"{case}: peak of cgroup", "bytes", [outcome.peak])
        )
        result.compare(
            f"{case}: limit over peak of cgroup ({outcome.enforced})",
            ("Outercore", f"{case}: limit of the process"),
            ("Outercore", f"{case}: peak of cgroup"),
            1.0,
        )
    result.compare(
        f"{case}: rows and state over the limit",
        ("Outercore", f"{case}: rows and state"),
        ("Outercore", f"{case}: limit of the process"),
    )
    result.details = {
        "plan": plan,
        "epoch": epoch,
        "timeline": record["timeline"],
        "enforced": outcome.enforced,
        "limit_hits": outcome.limit_hits,
        "bytes_read": outcome.bytes_read,
        "bytes_written": outcome.bytes_written,
    }
    return result


def _imported(settings: Settings, size: Scale, limit: int) -> Path:
    """The data set, imported once."""
    out = settings.work / f"rmat-{size.nodes}.links.outercore"
    if (out / "graph.json").exists():
        return out
    edges = settings.work / f"rmat-{size.nodes}.edges.npy"
    say(f"making {size.links:,} links")
    pairs = np.lib.format.open_memmap(edges, "w+", np.int64, (size.links, 2))
    for begin in range(0, size.links, CHUNK_EDGES):
        count = min(CHUNK_EDGES, size.links - begin)
        part = rmat(size.scale, count, np.random.default_rng((1, size.scale, begin)))
        pairs[begin : begin + count] = part * size.nodes >> size.scale
    pairs.flush()
    del pairs
    say("importing")
    run_limited(
        command(
            "import", edges, "--nodes", size.nodes, "--out", out, "--memory", limit // 2, "--json"
        ),
        limit,
    ).check()
    edges.unlink()
    return out


def _check_rows(path: Path, nodes: int) -> None:
    """Checks the table of embeddings.

    Errors: `RuntimeError` for another shape, or a row that is not finite.
    """
    rows = np.load(path, mmap_mode="r")
    if rows.shape != (nodes, DIM):
        raise RuntimeError(f"`{path}`: shape {rows.shape}, expected {(nodes, DIM)}")
    for begin in range(0, nodes, 1 << 18):
        if not np.isfinite(rows[begin : begin + (1 << 18)]).all():
            raise RuntimeError(f"`{path}`: a row from {begin} on is not finite")
