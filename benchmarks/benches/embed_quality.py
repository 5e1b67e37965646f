"""Quality of embeddings: the recipes are trained again, and ranked among all entities.

    python benchmarks/benches/embed_quality.py [--sets CASE ...] [--seeds 3]
        [--partitions 1 8 16] [--epochs N] [--threads N] [--data DIR] [--work DIR] [--json]

Every run uses the command line: `outercore import`, then `outercore embed` with a recipe of
`outercore.embedding.config`. With partitions, a quarter of the entities is in memory. The rest of
the table and of the optimiser's state is on disk. Recipes were chosen on the validation parts; only
this benchmark reads the test parts.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from adapters import data_root
from limits import run_limited
from measure import HERE, REPOSITORY, Result, Series, Settings, Target, markdown, say, write_results
from product import command

WHAT = (
    "Mean reciprocal rank on the test part among all entities, other true answers left out, one "
    "value a seed. Partitions: a quarter of them in memory. `sampled` is Legend's protocol, 1,000 "
    "candidates drawn uniformly and nothing left out, on the same run. Pairs: how often a held-out "
    "link scores above a pair of nodes drawn uniformly."
)
LIBKGE = "LibKGE's table"


@dataclass(frozen=True)
class Case:
    """A recipe on a data set, and published results."""

    data: str
    recipe: str
    published: float | None = None
    source: str = ""
    least: float | None = None
    """Lower bound for the mean over the seeds."""
    options: str = ""
    """Further options of `outercore embed`."""
    in_partitions: str = ""
    """Further options for partitions, also chosen on the validation part."""
    memory: str = "1GiB"


CASES = {
    # A pool of 8 partitions has 294 triples, so this batch size gives two batches per pool.
    "complex-codex-s": Case(
        "codex-s",
        "complex-codex-s",
        0.465,
        "CoDEx",
        0.46,
        in_partitions="--batch-size 150 --set optimiser.chunk_size=150",
    ),
    "complex-wn18": Case("wn18", "complex-wn18", 0.951, LIBKGE, 0.945),
    "complex-fb15k-237": Case(
        "fb15k-237",
        "complex-fb15k-237",
        0.348,
        LIBKGE,
        0.35,
        in_partitions="--set budget.sweeps=32",
    ),
    "transe-codex-s": Case("codex-s", "transe-codex-s", 0.354, "CoDEx", 0.354),
    "rotate-wn18": Case("wn18", "rotate-wn18", 0.946, LIBKGE, 0.946),
    "legend-fb15k-237": Case(
        "fb15k-237",
        "complex-legend",
        options="--set evaluation.also=uniform --set evaluation.count=1000",
        # Batches of 100,000 triples need this memory.
        memory="2GiB",
    ),
    "dot-ca-astroph": Case(
        "ca-astroph-lcc",
        "dot-ca-astroph",
        options="--held-out 0.1 --set evaluation.also=uniform --set evaluation.count=1000",
    ),
    # The evaluation of node2vec: half of the links are held out. The paper reports .937 for pairs,
    # by logistic regression on products of rows.
    "dot-ca-astroph-half": Case(
        "ca-astroph-lcc",
        "dot-ca-astroph",
        options="--held-out 0.5 --set evaluation.also=uniform --set evaluation.count=1000",
    ),
    "dot-facebook100": Case(
        "facebook100-open",
        "dot-ca-astroph",
        options="--dim 64 --epochs 1 --held-out 0.01 --set evaluation.valid_triples=2000 "
        "--set evaluation.test_triples=20000 "
        "--set evaluation.also=uniform --set evaluation.count=1000",
        memory="2GiB",
    ),
}
KNOWLEDGE_GRAPHS = ("fb15k-237", "wn18", "codex-s")


@dataclass(frozen=True)
class Options:
    """The runs, and their directories."""

    cases: Sequence[str]
    seeds: int
    partitions: Sequence[int]
    work: Path
    data: Path
    threads: int
    memory: str = ""
    """Memory of every run; empty: the memory of the case."""
    epochs: int = 0
    """Epochs of every run; 0: the epochs of the recipe."""


def run(settings: Settings) -> Result:
    """Run every case in memory; with `--quick`, only the smallest case for two epochs."""
    cases = ["complex-codex-s"] if settings.quick else list(CASES)
    return measured(
        Options(
            cases=cases,
            seeds=settings.repeats,
            partitions=[1, 8] if settings.quick else [1, 8, 16],
            work=settings.work,
            data=data_root(),
            threads=settings.threads,
            epochs=2 if settings.quick else 0,
        )
    )


def measured(options: Options) -> Result:
    """Trains every case; in partitions only with the first seed."""
    result = Result("embed-quality", WHAT)
    for name in options.cases:
        case = CASES[name]
        for partitions in options.partitions:
            where = "in memory" if partitions == 1 else f"{partitions} partitions"
            seeds = options.seeds if partitions == 1 else 1
            records = [train(name, case, seed, partitions, options) for seed in range(seeds)]
            result.series += _series(name, where, records)
            result.details[f"{name}, {where}"] = records
        _compare(result, name, case)
    return result


def train(name: str, case: Case, seed: int, partitions: int, options: Options) -> dict[str, Any]:
    """A run in a separate process: its metrics, seconds, and peak memory in bytes."""
    graph = data_set(case.data, options.work, options.data)
    out = options.work / "runs" / f"{name}-{seed}-{partitions}"
    shutil.rmtree(out, ignore_errors=True)
    memory = options.memory or case.memory
    arguments: list[object] = ["--recipe", case.recipe, "--seed", seed, "--memory", memory]
    arguments += ["--set", f"budget.threads={options.threads}"]
    arguments += ["--set", f"budget.partitions={partitions}"]
    if partitions > 1:
        # Swaps in turn give the same quality as swaps in place, mostly a better one. Their longer
        # waits do not matter here.
        arguments += ["--set", f"budget.slots={max(2, partitions // 4)}"]
        arguments += ["--set", "budget.swap=in-turn"]
        arguments += case.in_partitions.split()
    if options.epochs:
        arguments += ["--epochs", options.epochs]
    outcome = run_limited(
        command("embed", graph, *case.options.split(), *arguments, "--out", out),
        env={"OMP_NUM_THREADS": str(options.threads)},
    ).check()
    record = json.loads((out / "record.json").read_text())
    figures = json.loads((out / "embedding.json").read_text())["metrics"]
    pairs = None if case.data in KNOWLEDGE_GRAPHS else pair_auc(graph, out, record["config"])
    shutil.rmtree(out)
    test = next(figure for figure in figures if figure["part"] == "test")
    where = f"{name} seed {seed}, {partitions} partitions"
    say(f"{where}: MRR {test['mrr']:.4f}, {outcome.wall_s:.0f} s")
    return {
        "seed": seed,
        "config": record["config"],
        "plan": record["plan"],
        "epochs": record["epochs"],
        "peak_memory_bytes": record["peak_memory_bytes"],
        "wall_s": outcome.wall_s,
        "figures": figures,
        "pair_auc": pairs,
    }


def pair_auc(graph: Path, out: Path, config: dict[str, Any], most: int = 1 << 20) -> float:
    """The share of (held-out link, random pair of nodes) in which the link has the higher score."""
    import outercore
    from outercore.embedding.config import EmbedConfig
    from outercore.embedding.data.parts import data_of

    links = data_of(outercore.open(graph), EmbedConfig.from_dict(config)).parts["test"].read()
    links = links[:most, [0, 2]]
    table = np.load(out / "entities.npy", mmap_mode="r")
    random = np.random.default_rng(config["run"]["seed"])
    drawn = random.integers(len(table), size=links.shape)
    true, false = (
        np.einsum("ij,ij->i", table[pairs[:, 0]], table[pairs[:, 1]]) for pairs in (links, drawn)
    )
    false.sort()
    # A tie counts one half.
    below = np.searchsorted(false, true) + np.searchsorted(false, true, side="right")
    return float(below.mean() / 2 / len(false))


def _series(name: str, where: str, records: Sequence[dict[str, Any]]) -> list[Series]:
    """MRR and Hits@10 of the test part by every protocol."""
    series: dict[str, Series] = {}
    for record in records:
        seconds = sum(epoch["seconds"] for epoch in record["epochs"])
        for figure in record["figures"]:
            if figure["part"] != "test":
                continue
            ways = [("filtered", figure["filtered"])] if figure["candidates"] == "all" else []
            if figure["candidates"] != "all":
                ways = [("sampled", figure["raw"])]
            for way, metrics in ways:
                for unit, key in (("MRR", "mrr"), ("Hits@10", "hits_at_10"), ("AUC", "auc")):
                    label = f"{name}, {way} {unit}"
                    note = f"{figure['protocol']}; {len(record['epochs'])} epochs, {seconds:.0f} s"
                    line = series.setdefault(label, Series(where, label, unit, note=note))
                    line.values.append(metrics[key])
    pairs = [record["pair_auc"] for record in records if record["pair_auc"] is not None]
    if pairs:
        series["pairs"] = Series(where, f"{name}, pairs", "AUC", pairs)
    return list(series.values())


def _compare(result: Result, name: str, case: Case) -> None:
    label = f"{name}, filtered MRR"
    for means in [series for series in result.series if series.case == label]:
        mean = statistics.fmean(means.values)
        spread = f" ± {statistics.stdev(means.values):.4f}" if len(means.values) > 1 else ""
        beside = f" (published {case.published}, {case.source})" if case.published else ""
        least = case.least if means.program == "in memory" else None
        result.targets.append(
            Target(f"{label}, {means.program}: {mean:.4f}{spread}{beside}", mean, least)
        )


def data_set(name: str, work: Path, root: Path) -> Path:
    """The data set, imported once."""
    out = work / "embed" / f"{name}.outercore"
    if (out / "graph.json").exists():
        return out
    say(f"importing {name}")
    files = work / "embed" / name
    files.mkdir(parents=True, exist_ok=True)
    if name in KNOWLEDGE_GRAPHS:
        arguments = _knowledge_graph(root / name, files)
    else:
        np.save(files / "edges.npy", _edges(root / name))
        arguments = [files / "edges.npy", "--undirected", "--self-loops", "drop"]
    run_limited(command("import", *arguments, "--out", out)).check()
    shutil.rmtree(files)
    return out


def _knowledge_graph(folder: Path, files: Path) -> list[object]:
    for part in ("train", "valid", "test"):
        text = lzma.decompress((folder / f"{part}.txt.xz").read_bytes())
        (files / f"{part}.tsv").write_bytes(text)
    # Entities that are only in held-out parts are ranked too, as in other libraries.
    return [
        files / "train.tsv", "--triples", "--valid", files / "valid.tsv",
        "--test", files / "test.tsv", "--unknown", "keep",
    ]  # fmt: skip


def _edges(folder: Path) -> np.ndarray:
    """The undirected edges, each once, int64 [edges, 2]."""
    if (folder / "graph.jlg.gz").exists():
        # The first line has the counts of nodes and edges; ids start at 1.
        return np.loadtxt(folder / "graph.jlg.gz", np.int64, delimiter=",", skiprows=1) - 1
    raw = np.load(folder / "edges.npz")
    gaps = raw["gap_lo"].astype(np.int64) + 256 * raw["gap_hi"].astype(np.int64)
    degrees = raw["up_degree"].astype(np.int64)
    sources = np.repeat(np.arange(len(degrees)), degrees)
    sums, starts = np.cumsum(gaps), np.cumsum(degrees) - degrees
    before = np.where(starts > 0, sums[starts - 1], 0)[degrees > 0]
    targets = sums - np.repeat(before, degrees[degrees > 0]) + sources
    return np.stack([sources, targets], axis=1)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 if a mean is below its bound."""
    cache = Path(os.environ.get("OUTERCORE_BENCH_DIR", REPOSITORY / ".cache" / "bench"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3, help="in memory; one in partitions")
    parser.add_argument("--partitions", nargs="+", type=int, default=[1, 8, 16])
    parser.add_argument("--epochs", type=int, default=0, help="instead of the recipes' own")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--memory", default="", help="of every run, by default 1GiB or 2GiB")
    parser.add_argument("--work", type=Path, default=cache)
    parser.add_argument("--data", help="the data library")
    parser.add_argument("--json", action="store_true")
    parsed = parser.parse_args(arguments)
    result = measured(
        Options(
            cases=parsed.sets,
            seeds=parsed.seeds,
            partitions=parsed.partitions,
            work=parsed.work.resolve(),
            data=data_root(parsed.data),
            threads=parsed.threads,
            memory=parsed.memory,
            epochs=parsed.epochs,
        )
    )
    path = write_results([result], HERE / "results")
    print(path.read_text() if parsed.json else markdown([result]))
    say(f"written: {path}")
    return 1 if any(target.met is False for target in result.targets) else 0


if __name__ == "__main__":
    sys.exit(main())
