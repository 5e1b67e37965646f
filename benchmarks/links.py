"""Train link prediction on real graphs, and compare with published scores.

    python benchmarks/links.py [NAME...] [--seeds 1] [--work DIR] [--data DIR]

Every run uses the command line: `outercore import`, then `outercore train --task link`. The test
score is the score of the epoch with the best validation score. For each set, the baseline is the
same command with `--model mlp`, which does not pass messages.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import adapters
from limits import run_limited
from measure import REPOSITORY, machine, say
from product import command

import outercore
from outercore.training.metrics import LinkScores


@dataclass(frozen=True)
class Recipe:
    """Functions and options to import a data set and to train on it."""

    files: Callable[[Path, Path], list[object]]
    """Writes a set of the data library to a folder; returns the arguments of `outercore import`."""
    options: str
    """Options of `outercore train`."""
    metrics: tuple[str, ...]
    published: str
    held_out: str = "link.edges={files}/held_out.npz"
    """The held-out edges, as an argument of `--set`."""


def ogbl_ddi(root: Path, out: Path) -> list[object]:
    """The training edges of OGB, its held-out edges and their negatives."""
    with np.load(root / "ogbl-ddi" / "ogbl_ddi.npz") as parts:
        np.save(out / "edges.npy", parts["train"].astype(np.int64))
    shutil.copyfile(root / "ogbl-ddi" / "ogbl_ddi.npz", out / "held_out.npz")
    return [out / "edges.npy", "--undirected", "--nodes", 4267]


def collegemsg_by_time(root: Path, out: Path) -> list[object]:
    """Every message, with its time."""
    np.savetxt(
        out / "messages.csv",
        _messages(root) - [1, 1, 0],
        fmt="%d",
        delimiter=",",
        header="source,target,time",
        comments="",
    )
    edges = f"user,sends,user={out / 'messages.csv'}"
    return ["--nodes", "user=1899", "--edges", edges, "--add-reverse"]


def _messages(root: Path) -> np.ndarray:
    """Source and target (ids from 1) and time in seconds, int64 [messages, 3]."""
    with lzma.open(root / "collegemsg" / "CollegeMsg.txt.xz", "rt") as file:
        return np.loadtxt(file, dtype=np.int64)


def collegemsg(root: Path, out: Path) -> list[object]:
    """Pairs of people with messages, one edge per pair."""
    messages = _messages(root)
    messages = messages[np.argsort(messages[:, 2], kind="stable")]
    names, ends = np.unique(messages[:, :2], return_inverse=True)
    pairs = np.sort(ends.reshape(-1, 2), axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    _, first = np.unique(pairs, axis=0, return_index=True)
    np.save(out / "edges.npy", pairs[np.sort(first)])
    return [out / "edges.npy", "--undirected", "--nodes", len(names)]


RECIPES = {
    "ogbl-ddi": Recipe(
        ogbl_ddi,
        "--hidden 128 --batch-size 32768 --lr 0.005 --epochs 70 --patience 0 "
        "--set run.validation=full --metric hits@20",
        ("hits@20", "roc_auc"),
        "GraphSAGE 53.90 ± 4.74, GCN 37.07 ± 5.07, matrix factorisation 13.68 ± 4.75",
    ),
    "collegemsg": Recipe(
        collegemsg,
        "--hidden 64 --batch-size 512 --lr 0.001 --epochs 40 --patience 10",
        ("roc_auc", "average_precision"),
        "none for this split",
        held_out="link.held_out=0.2",
    ),
    "collegemsg-by-time": Recipe(
        collegemsg_by_time,
        "--time time --fanout 20 --hidden 64 --batch-size 200 --lr 0.0003 --epochs 20 --patience 5 "
        "--metric average_precision",
        ("roc_auc", "average_precision"),
        "AP: TGAT 79.6, JODIE 89.4, TGN 92.3, GraphMixer 93.3",
        held_out="link.held_out=0.3",
    ),
}


def data_set(name: str, arguments: argparse.Namespace) -> tuple[Path, str]:
    """The imported data set, and the option for held-out edges."""
    files = arguments.work / "links" / name
    out = files / "data"
    if not (out / "graph.json").exists():
        files.mkdir(parents=True, exist_ok=True)
        imported = RECIPES[name].files(adapters.data_root(arguments.data), files)
        made = run_limited(command("import", *imported, "--out", out, "--overwrite"))
        if made.returncode:
            raise RuntimeError(f"{name}: {made.stderr[-1500:]}")
    return out, RECIPES[name].held_out.format(files=files)


def degree_product(run: Path) -> float:
    """ROC-AUC in per cent if the score of a test pair is the product of its degrees plus 1."""
    offsets = outercore.open(run / "links" / "graph").array("edges/edge/offsets")
    degrees = np.diff(offsets.astype(np.int64)) + 1
    edges, negatives = (
        degrees[np.load(run / "links" / file)].prod(axis=1).astype(np.float32)
        for file in ("test.npy", "test_neg.npy")
    )
    return 100 * (LinkScores("roc_auc", edges, negatives).value() or 0.0)


def trained(name: str, model: str, arguments: argparse.Namespace) -> str:
    """Test metrics in per cent over the seeds, epochs and seconds, as table cells."""
    recipe = RECIPES[name]
    graph, held_out = data_set(name, arguments)
    scores, epochs, seconds = [], [], 0.0
    for seed in range(arguments.seeds):
        run = arguments.work / "links" / name / f"{model}-{seed}"
        shutil.rmtree(run, ignore_errors=True)
        outcome = run_limited(
            command(
                "train", graph, "--task", "link", "--model", model,
                "--set", held_out,
                *recipe.options.split(), *arguments.more.split(), "--seed", seed, "--out", run,
                "--json",
            )
        )  # fmt: skip
        if outcome.returncode:
            raise RuntimeError(f"{name} {model}: {outcome.stderr[-1500:]}")
        record = json.loads(outcome.stdout[outcome.stdout.index("{") :])
        test = record["result"]["links"]["test"]
        scores.append([100 * test[metric] for metric in recipe.metrics])
        epochs.append(len(record["epochs"]))
        seconds += outcome.wall_s
        say(f"{name} {model} seed {seed}: {test}, {epochs[-1]} epochs, {outcome.wall_s:.0f} s")
        if (run / "links").exists():
            say(f"{name} seed {seed}: ROC-AUC by the product of degrees {degree_product(run):.2f}")
    means, spreads = np.mean(scores, axis=0), np.std(scores, axis=0)
    cells = ", ".join(
        f"{metric} {mean:.2f}" + (f" ± {spread:.2f}" if arguments.seeds > 1 else "")
        for metric, mean, spread in zip(recipe.metrics, means, spreads, strict=True)
    )
    return f"{cells} | {np.mean(epochs):.0f} | {seconds / arguments.seeds:.0f} s"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    cache = Path(os.environ.get("OUTERCORE_BENCH_DIR", REPOSITORY / ".cache" / "bench"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *RECIPES], metavar="NAME")
    parser.add_argument("--models", nargs="*", default=["sage", "mlp"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--more", default="", help="further options of `outercore train`")
    parser.add_argument("--work", type=Path, default=cache)
    parser.add_argument("--data", help="the data library")
    options = parser.parse_args(arguments)
    say(json.dumps(machine()))
    print("| data set | model | test, per cent | epochs | time | published |")
    print("|---|---|---|---:|---:|---|")
    for name in options.names or RECIPES:
        for model in options.models:
            cells = trained(name, model, options)
            print(f"| {name} | {model} | {cells} | {RECIPES[name].published} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
