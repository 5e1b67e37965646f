"""The data sets and models of the int8 benchmark: imported and trained once."""

from __future__ import annotations

import csv
import json
import lzma
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import accuracy
import graphs
import numpy as np
from adapters import RealData, data_root, write
from limits import run_limited
from measure import say
from product import command, imported

from outercore import open as open_data_set
from outercore.data.many_graphs import ManyGraphs

SPLIT_SEED = 0
PLACE = "place"
"""Node array with an embedding, for sets without features."""
_SAGE = (
    "--model sage --fanout 10,5 --hidden 128 --set model.dropout=0.2 --set model.norm=batch "
    "--batch-size 512 --set run.validation=sampled"
)


@dataclass(frozen=True)
class Served:
    """A trained model, with its test ids and labels."""

    name: str
    metric: str
    inputs: str
    """Inputs of the network, as a text."""
    data_set: Path
    run: Path
    test: np.ndarray
    """Ids of the test nodes or graphs."""
    labels: np.ndarray
    """Labels of all nodes or graphs."""
    array: str | None
    """The array of the features; `None` for a model without features."""


def _lines(path: Path) -> list[str]:
    with lzma.open(path, "rt") as file:
        return file.read().splitlines()


def _divided(known: np.ndarray) -> dict[str, np.ndarray]:
    """60/20/20 of the ids in `known`."""
    order = np.random.default_rng(SPLIT_SEED).permutation(known)
    cuts = np.split(order, [int(0.6 * len(order)), int(0.8 * len(order))])
    return dict(zip(("train", "valid", "test"), map(np.sort, cuts), strict=True))


def _karate_club(name: str, root: Path) -> RealData:
    """Edges and a class per node, from CSV files; no features."""
    edges = np.loadtxt(_lines(root / name / "edges.csv.xz")[1:], delimiter=",", dtype=np.int64)
    rows = list(csv.reader(_lines(root / name / "target.csv.xz")[1:]))
    y = np.full(len(rows), -1, np.int64)
    for row in rows:
        y[int(row[0])] = int(row[-1])
    splits = _divided(np.flatnonzero(y >= 0))
    return RealData(name, edges, np.zeros((len(y), 0)), y, splits, int(y.max()) + 1)


def _prone(name: str, root: Path) -> RealData:
    """Edges and several labels per node; no features."""
    (edge_file,) = (root / name).glob("*.ungraph.xz")
    (label_file,) = (root / name).glob("*.cmty.xz")
    edges = np.loadtxt(_lines(edge_file), dtype=np.int64)
    lists = [np.array(line.split(), np.int64) for line in _lines(label_file)]
    y = np.zeros((int(edges.max()) + 1, len(lists)), np.float32)
    for label, nodes in enumerate(lists):
        y[nodes, label] = 1
    splits = _divided(np.flatnonzero(y.any(axis=1)))
    return RealData(name, edges, np.zeros((len(y), 0)), y, splits, len(lists), "f1_micro")


PLAIN: dict[str, tuple[Callable[[str, Path], RealData], str]] = {
    "lastfm-asia": (_karate_club, f"{_SAGE} --epochs 15 --patience 0"),
    "github-musae": (_karate_club, f"{_SAGE} --epochs 4 --patience 0"),
    "ppi-prone": (_prone, f"{_SAGE} --epochs 60 --lr 0.01 --patience 0 --metric f1_micro"),
    "dblp-prone": (_prone, f"{_SAGE} --epochs 4 --patience 0 --metric f1_micro"),
}
"""Sets without features, and options to train them on an embedding."""

EPOCHS = {
    "cora": 60, "chameleon_filtered": 30, "squirrel_filtered": 20, "tolokers": 15,
    "twitch-musae": 2, "facebook100": 1,
    "mutag": 30, "imdb-binary": 15, "enzymes": 30, "proteins": 12, "collab": 2, "reddit-binary": 4,
    "mol-esol": 25, "mol-lipo": 12, "mol-bbbp": 12, "mol-tox21": 5, "mol-hiv": 2,
}  # fmt: skip
"""Fewer epochs than in `accuracy.py` and `graphs.py`: the models need not be the best."""

NODES = [*(name for name in EPOCHS if name in accuracy.RECIPES), *PLAIN]
GRAPHS = [name for name in EPOCHS if name in graphs.RECIPES]


def served(name: str, work: Path, data: str | None = None) -> Served:
    """The model of a set, trained once."""
    work.mkdir(parents=True, exist_ok=True)
    if name in GRAPHS:
        return _graphs(name, work, data)
    return _plain(name, work, data) if name in PLAIN else _nodes(name, work, data)


def _nodes(name: str, work: Path, data: str | None) -> Served:
    """A set with features, trained by its recipe in `accuracy.py`."""
    recipe = accuracy.RECIPES[name]
    data_set = accuracy.data_set(name, 0, work, data)
    options = f"{recipe.options} --epochs {EPOCHS[name]} --patience 0 --memory 512MiB"
    run = trained(data_set, work / f"{name}.run", options)
    graph = open_data_set(data_set)
    metric = "roc_auc" if name == "tolokers" else "accuracy"
    test = graph.split("test")
    return Served(name, metric, "features", data_set, run, test, graph.array("y"), "x")


def _plain(name: str, work: Path, data: str | None) -> Served:
    """A set without features, trained on an embedding of its nodes."""
    read, options = PLAIN[name]
    data_set = work / f"{name}.outercore"
    real = read(name, data_root(data))
    if not (data_set / "graph.json").exists():
        files = work / name
        write(real, files)
        # The set lacks features, and an array without columns cannot be imported as features.
        (files / "x.npy").unlink()
        imported(files, data_set, undirected=True)
        shutil.rmtree(files)
    if f"nodes/node/{PLACE}" not in open_data_set(data_set).manifest["arrays"]:
        say(f"{name}: embedding its nodes")
        run = work / f"{name}.embedding"
        shutil.rmtree(run, ignore_errors=True)
        embed = "--recipe dot-ca-astroph --dim 64 --epochs 10 --set link.held_out=0"
        run_limited(command("embed", data_set, *embed.split(), "--out", run)).check()
        run_limited(command("embedding", "features", run, data_set, "--name", PLACE)).check()
    run = trained(data_set, work / f"{name}.run", f"{options} --features {PLACE}")
    test = real.splits["test"]
    return Served(name, real.metric, "embedding of 64", data_set, run, test, real.y, PLACE)


def _graphs(name: str, work: Path, data: str | None) -> Served:
    """A set of many graphs, trained by its recipe in `graphs.py`; for sets with folds the first."""
    recipe, run = graphs.RECIPES[name], work / f"{name}.run"
    home = work / "graphs"
    home.mkdir(exist_ok=True)
    data_set = home / name
    parts = ("train", "valid", "test")
    splits = parts if name.startswith("mol-") else tuple(f"0-{part}" for part in parts)
    if not _is_done(run):
        data_set = graphs.imported(name, data_root(data), home, best_epoch=False)
        graphs.run(data_set, name, splits, epochs=EPOCHS[name], seed=0)
        shutil.rmtree(run, ignore_errors=True)
        (home / "run").rename(run)
    graph = open_data_set(data_set)
    many = ManyGraphs(graph)
    test = many.split(splits[2])
    described = json.loads((run / "model" / "model.json").read_text())
    array = described["config"]["sampling"]["features"]
    if f"nodes/node/{array}" not in graph.manifest["arrays"]:
        array = None
    inputs = "degrees" if array is None else f"categories `{array}`"
    return Served(name, recipe.metric, inputs, data_set, run, test, many.array("y"), array)


def trained(data_set: Path, run: Path, options: str) -> Path:
    """A finished run of `outercore train` with `options`."""
    if not _is_done(run):
        say(f"training {run.stem}")
        shutil.rmtree(run, ignore_errors=True)
        run_limited(command("train", data_set, *options.split(), "--out", run)).check()
    return run


def _is_done(run: Path) -> bool:
    """Whether a training has finished; a stopped training has a model, too."""
    record = run / "record.json"
    return record.exists() and json.loads(record.read_text())["status"] == "finished"
