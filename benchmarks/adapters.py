"""Convert the collected real data sets to files for `outercore import`.

Every adapter is a function `root -> RealData`; `write` writes the arrays as

    edges.npy    int64 [E, 2], each undirected edge once
    x.npy        float32 [N, F]
    y.npy        int64 [N], -1 for nodes without a label
    splits.npz   train, valid, test: int64 ids
    about.json   name, sizes, metric and the published range

Use it as a library or as `python benchmarks/adapters.py NAME --out DIR`.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

DEFAULT_ROOT = Path(__file__).resolve().parents[2] / "shared" / "data"
TWITCH_LANGUAGES = ("DE", "ENGB", "ES", "FR", "PTBR", "RU", "TW")
TWITCH_FEATURES = 3170
FACEBOOK_CLASSES = 6


@dataclass(frozen=True)
class RealData:
    """A graph with all data for node classification."""

    name: str
    edges: np.ndarray
    x: np.ndarray
    y: np.ndarray
    splits: dict[str, np.ndarray]
    classes: int
    metric: str = "accuracy"
    published: tuple[float, float] | None = None
    """Lowest and highest published score, as fractions; None without published scores."""
    note: str = ""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.y)


class MissingDataError(FileNotFoundError):
    """The data library, or the requested data set, is not on this machine."""


def data_root(given: str | None = None) -> Path:
    """The data library: the option, `OUTERCORE_DATA`, or a folder next to the repository."""
    return Path(given or os.environ.get("OUTERCORE_DATA") or DEFAULT_ROOT)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise MissingDataError(
            f"data file `{path}` not found; set OUTERCORE_DATA or --data to the data library"
        )
    return path


def _rows_summing_to_one(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(x.sum(axis=1, keepdims=True), 1e-12)


def _random_split(labelled: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """60/20/20 of the labelled nodes; ids ascend within each part."""
    order = np.random.default_rng(seed).permutation(labelled)
    train, valid = int(0.6 * len(order)), int(0.8 * len(order))
    parts = {"train": order[:train], "valid": order[train:valid], "test": order[valid:]}
    return {name: np.sort(ids).astype(np.int64) for name, ids in parts.items()}


def cora(root: Path, split: int = 0) -> RealData:
    """Citations; public split (20 per class / 500 / 1000); rows of features sum to one."""
    raw = np.load(_existing(root / "cora" / "data.npz"))
    nodes, width = (int(n) for n in raw["feat_shape"])
    x = np.zeros((nodes, width), np.float32)
    rows = np.repeat(np.arange(nodes), np.diff(raw["feat_indptr"]))
    x[rows, raw["feat_indices"].astype(np.int64)] = raw["feat_data"]
    return RealData(
        name="cora",
        edges=raw["edges"].astype(np.int64),
        x=_rows_summing_to_one(x).astype(np.float32),
        y=raw["labels"].astype(np.int64),
        splits={part: raw[part].astype(np.int64) for part in ("train", "valid", "test")},
        classes=7,
        published=(0.810, 0.833),
        note="public split; GCN 81.0-81.5, GAT 82.1, SAGE 83.3",
    )


def _heterophilous(
    root: Path, name: str, split: int, metric: str, published: tuple[float, float], note: str
) -> RealData:
    raw = np.load(_existing(root / name / f"{name}.npz"))
    masks = {"train": "train_masks", "valid": "val_masks", "test": "test_masks"}
    count = len(raw["train_masks"])
    if not 0 <= split < count:
        raise ValueError(f"{name} has splits 0 to {count - 1}, asked for {split}")
    return RealData(
        name=name,
        edges=raw["edges"].astype(np.int64),
        x=raw["node_features"].astype(np.float32),
        y=raw["node_labels"].astype(np.int64),
        splits={part: np.flatnonzero(raw[key][split]) for part, key in masks.items()},
        classes=int(raw["node_labels"].max()) + 1,
        metric=metric,
        published=published,
        note=note,
    )


def tolokers(root: Path, split: int = 0) -> RealData:
    """Crowd workers who share tasks; the label is whether a worker was banned (ROC-AUC)."""
    return _heterophilous(
        root,
        "tolokers",
        split,
        "roc_auc",
        (0.8199, 0.8421),
        "one of 10 splits; SAGE 82.43 +- 0.44, GCN 83.64 +- 0.67, GAT 83.70 +- 0.47, "
        "no graph 72.95",
    )


def squirrel_filtered(root: Path, split: int = 0) -> RealData:
    """Wikipedia pages on squirrels, without duplicates; the label is a traffic class."""
    return _heterophilous(
        root,
        "squirrel_filtered",
        split,
        "accuracy",
        (0.3356, 0.4094),
        "one of 10 splits; GCN 39.47 +- 1.47, SAGE 36.09 +- 1.99, GAT 35.62 +- 2.06, "
        "no graph 36.55",
    )


def chameleon_filtered(root: Path, split: int = 0) -> RealData:
    """Wikipedia pages on chameleons, without duplicates; the label is a traffic class."""
    return _heterophilous(
        root,
        "chameleon_filtered",
        split,
        "accuracy",
        (0.3363, 0.4501),
        "one of 10 splits; GCN 40.89 +- 4.12, SAGE 37.77 +- 4.14, GAT 39.21 +- 3.08, "
        "no graph 36.73",
    )


def _twitch_language(root: Path, language: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges, multi-hot features and the `mature` label of one language."""
    folder = _existing(root / "twitch-musae" / language)

    def text(kind: str, suffix: str) -> str:
        packed = _existing(folder / f"musae_{language}_{kind}.{suffix}.xz")
        return lzma.open(packed, "rt", encoding="utf-8").read()

    features = {int(node): ids for node, ids in json.loads(text("features", "json")).items()}
    x = np.zeros((len(features), TWITCH_FEATURES), np.float32)
    for node, ids in features.items():
        x[node, ids] = 1.0
    y = np.full(len(features), -1, np.int64)
    for row in csv.DictReader(text("target", "csv").splitlines()):
        y[int(row["new_id"])] = row["mature"] == "True"
    edges = np.loadtxt(text("edges", "csv").splitlines()[1:], delimiter=",", dtype=np.int64)
    return edges, x, y


def twitch(root: Path, languages: tuple[str, ...], name: str, split: int = 0) -> RealData:
    """Streamers and their friendships; the label is mature language or not.

    The graphs of several languages are joined in the given order. `split` is the random seed of the
    60/20/20 split.
    """
    edges, xs, ys, offset = [], [], [], 0
    for language in languages:
        part_edges, part_x, part_y = _twitch_language(root, language)
        edges.append(part_edges + offset)
        xs.append(part_x)
        ys.append(part_y)
        offset += len(part_y)
    y = np.concatenate(ys)
    return RealData(
        name=name,
        edges=np.concatenate(edges),
        x=np.concatenate(xs),
        y=y,
        splits=_random_split(np.flatnonzero(y >= 0), split),
        classes=2,
        note="no agreed published table; compare with the features-only baseline",
    )


def _mixed(values: np.ndarray) -> np.ndarray:
    """A fixed 64-bit hash of integers (the finaliser of SplitMix64)."""
    with np.errstate(over="ignore"):
        z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def sketch(columns: list[np.ndarray], width: int, repeats: int = 4) -> np.ndarray:
    """Hash categorical columns into `width` signed counters (a count sketch).

    Each (column, value) adds +-1/sqrt(repeats) to `repeats` counters, so that different values are
    nearly orthogonal. Zero means a missing value and adds nothing.
    """
    nodes = len(columns[0])
    x = np.zeros(nodes * width, np.float32)
    step = np.float32(1 / np.sqrt(repeats))
    for index, column in enumerate(columns):
        present = np.flatnonzero(column)
        for turn in range(repeats):
            key = _mixed(_mixed(column[present]) + np.uint64(index * repeats + turn))
            counter = (key % np.uint64(width)).astype(np.int64)
            sign = np.where(key >> np.uint64(63), step, -step)
            x[present * width + counter] += sign
    return x.reshape(nodes, width)


def _facebook_edges(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """All edges (u < v, global ids) and the school of every node."""
    raw = np.load(_existing(root / "facebook100-open" / "edges.npz"))
    gap = raw["gap_lo"].astype(np.int64) + 256 * raw["gap_hi"].astype(np.int64)
    degree = raw["up_degree"].astype(np.int64)
    source = np.repeat(np.arange(len(degree)), degree)
    first = np.cumsum(degree) - degree
    running = np.cumsum(gap)
    before = np.where(first > 0, running[first - 1], 0)[degree > 0]
    target = running - np.repeat(before, degree[degree > 0]) + source
    school = np.repeat(np.arange(len(raw["num_nodes"])), raw["num_nodes"])
    return np.stack([source, target], axis=1), school


def neighbour_labels(
    edges: np.ndarray, y: np.ndarray, train: np.ndarray, classes: int
) -> np.ndarray:
    """Shares of the classes among each node's training neighbours: one step of propagation.

    The row of a node does not contain its label. Nodes without training neighbours have zeros.
    """
    known = np.zeros(len(y), bool)
    known[train] = True
    counts = np.zeros(len(y) * classes, np.float32)
    for source, target in (edges.T, edges.T[::-1]):
        is_known = known[source]
        slots = target[is_known] * classes + y[source[is_known]]
        counts += np.bincount(slots, minlength=len(counts)).astype(np.float32)
    return _rows_summing_to_one(counts.reshape(len(y), classes)).astype(np.float32)


def facebook100(
    root: Path, split: int = 0, width: int = 128, with_labels: bool = False
) -> RealData:
    """Sixty college networks; graduation year 2004-2009 as six classes.

    The features do not contain the year. Status and gender are one-hot; major, second major, dorm,
    high school (codes are per school) and the school are hashed into the other columns. Labels and
    split follow `reference.json` of the set. `with_labels` uses six columns for the years of the
    training neighbours, the input of label propagation.
    """
    edges, school = _facebook_edges(root)
    raw = np.load(_existing(root / "facebook100-open" / "nodes.npz"))
    year = raw["year"].astype(np.int64)
    y = np.where((year >= 2004) & (year < 2004 + FACEBOOK_CLASSES), year - 2004, -1)
    part, labelled = np.arange(len(y)) % 4, y >= 0
    splits = {
        "train": np.flatnonzero(labelled & (part < 2)),
        "valid": np.flatnonzero(labelled & (part == 2)),
        "test": np.flatnonzero(labelled & (part == 3)),
    }
    plain = [
        np.eye(8, dtype=np.float32)[np.clip(raw["status"], 0, 7)],
        np.eye(3, dtype=np.float32)[raw["gender"]],
    ]
    if with_labels:
        plain.append(neighbour_labels(edges, y, splits["train"], FACEBOOK_CLASSES))
    columns = [school + 1]
    for name in ("major", "second_major", "dorm", "high_school"):
        code = raw[name].astype(np.int64) & 0xFFFFFFFF
        columns.append(np.where(code == 0, 0, code + (school + 1) * (1 << 32)))
    hashed = sketch(columns, width - sum(column.shape[1] for column in plain))
    suffix = "-labels" if with_labels else "" if width == 128 else f"-{width}"
    return RealData(
        name=f"facebook100{suffix}",
        edges=edges,
        x=np.concatenate([*plain, hashed], axis=1),
        y=y,
        splits=splits,
        classes=FACEBOOK_CLASSES,
        note="split by id modulo 4; majority .219, label propagation .833 (2 iterations)",
    )


def _twitch_set(name: str, languages: tuple[str, ...]) -> Callable[..., RealData]:
    return lambda root, split=0: twitch(root, languages, name, split)


ADAPTERS: dict[str, Callable[..., RealData]] = {
    "cora": cora,
    "tolokers": tolokers,
    "squirrel_filtered": squirrel_filtered,
    "chameleon_filtered": chameleon_filtered,
    "twitch-musae": _twitch_set("twitch-musae", TWITCH_LANGUAGES),
    **{f"twitch-{one}": _twitch_set(f"twitch-{one}", (one,)) for one in TWITCH_LANGUAGES},
    "facebook100": facebook100,
    "facebook100-32": lambda root, split=0: facebook100(root, split, width=32),
    "facebook100-labels": lambda root, split=0: facebook100(root, split, with_labels=True),
}
"""Adapters by name; call `ADAPTERS[name](root, split=0)`."""


def load(name: str, root: str | Path | None = None, split: int = 0) -> RealData:
    """A data set by name.

    Errors: `KeyError` for an unknown name, `MissingDataError` if the files are missing.
    """
    if name not in ADAPTERS:
        raise KeyError(f"unknown data set `{name}`; known: {', '.join(ADAPTERS)}")
    return ADAPTERS[name](data_root(None if root is None else str(root)), split=split)


def write(data: RealData, out: Path) -> dict[str, object]:
    """Write the files of `data` to `out`; returns the content of `about.json`."""
    out.mkdir(parents=True, exist_ok=True)
    np.save(out / "edges.npy", np.ascontiguousarray(data.edges))
    np.save(out / "x.npy", np.ascontiguousarray(data.x))
    np.save(out / "y.npy", data.y)
    np.savez(out / "splits.npz", **data.splits)
    about = {
        "name": data.name,
        "nodes": data.nodes,
        "edges": len(data.edges),
        "undirected": True,
        "features": data.x.shape[1],
        "classes": data.classes,
        "splits": {part: len(ids) for part, ids in data.splits.items()},
        "metric": data.metric,
        "published": data.published,
        "note": data.note,
    }
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def main(arguments: list[str] | None = None) -> int:
    """Command line: `adapters.py NAME --out DIR [--split N] [--data DIR]`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=[*ADAPTERS, "all"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--split", type=int, default=0, help="split index, or seed of the split")
    parser.add_argument(
        "--data", help="the data library (default: OUTERCORE_DATA or ../shared/data)"
    )
    options = parser.parse_args(arguments)
    names = list(ADAPTERS) if options.name == "all" else [options.name]
    for name in names:
        out = options.out / name if options.name == "all" else options.out
        try:
            about = write(load(name, options.data, options.split), out)
        except MissingDataError as missing:
            print(f"skipped {name}: {missing}", file=sys.stderr)
            continue
        print(json.dumps(about))
    return 0


if __name__ == "__main__":
    sys.exit(main())
