"""Which edges of a data set are trained on, and which validate and test."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.shell import quoted
from outercore.data.triples import PARTS, HeldOut, Part, Triples
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.importing.table.torch_file import read_torch
from outercore.training.config import LinkConfig
from outercore.training.links.adjacency import among, pair_keys

if TYPE_CHECKING:
    from outercore.data.graph import Graph

HELD_OUT: tuple[Part, ...] = ("valid", "test")
_OWN = "_target_neg"
_KINDS = ("_neg", _OWN)
"""Names of negatives after that of their part: for all edges, and for each edge."""


@dataclass(frozen=True)
class GivenEdges:
    """Edges and negatives of a file by the names of the arrays, int64 [n, 2] each.

    `valid_target_neg` and `test_target_neg` are [n, k]: for each edge other targets of its source.
    """

    path: Path
    arrays: dict[str, NDArray[np.int64]] = field(repr=False)

    @classmethod
    def read(cls, path: Path, nodes: int) -> GivenEdges:
        """Reads and checks an `.npz`, or a folder of OGB's, for a graph of so many nodes.

        Errors: `NotFoundError`; `CorruptError` for a file that cannot be read; `InvalidError` for
        an array of another name, type or shape, a node out of range, an edge in two parts.
        """
        read = _of_folder(path) if path.is_dir() else _members(path)
        arrays = {name: _checked(path, name, array, nodes) for name, array in read}
        known = (*PARTS, *(f"{part}{kind}" for part in HELD_OUT for kind in _KINDS))
        if not any(part in arrays for part in HELD_OUT):
            raise InvalidError(
                f"edges `{path}`: expected an array `valid` or `test`, found "
                f"{', '.join(f'`{name}`' for name in arrays) or 'none'}"
            )
        for name in arrays:
            if name not in known:
                raise InvalidError(
                    f"edges `{path}`: unknown array `{name}`\nhint: known: {', '.join(known)}"
                )
            part = name.partition("_")[0]
            if part not in arrays:
                raise InvalidError(f"edges `{path}`: `{name}` without `{part}`")
            if name.endswith(_OWN) and len(arrays[name]) != len(arrays[part]):
                raise InvalidError(
                    f"edges `{path}`: array `{name}`: expected a row for each of the "
                    f"{len(arrays[part]):,} edges in `{part}`, found {len(arrays[name]):,}"
                )
        given = cls(path, arrays)
        given._require_disjoint(nodes)
        return given

    def held_out_keys(self, nodes: int) -> NDArray[np.int64]:
        """Keys of all held-out edges, ascending, each once."""
        held = [self.arrays[part] for part in HELD_OUT if part in self.arrays]
        return np.unique(pair_keys(np.concatenate(held), nodes))

    def _require_disjoint(self, nodes: int) -> None:
        parts = [part for part in PARTS if part in self.arrays]
        keys = {part: np.unique(pair_keys(self.arrays[part], nodes)) for part in parts}
        for place, part in enumerate(parts):
            for other in parts[place + 1 :]:
                both = keys[part][among(keys[part], keys[other])]
                if len(both):
                    raise InvalidError(
                        f"edges `{self.path}`: nodes {both[0] // nodes} and {both[0] % nodes} are "
                        f"joined in `{part}` and in `{other}`, in one direction or the other\n"
                        "hint: an edge belongs to one part, with all its copies"
                    )


def require_topology(graph: Graph) -> None:
    """Errors: `InvalidError` for a knowledge graph, whose triples are no edges of one kind."""
    if "edges/edge/offsets" not in graph.manifest["arrays"]:
        raise InvalidError(
            f"data set `{graph.root}`: expected a graph with edges, found triples\n"
            f"hint: `outercore embed {quoted(graph.root)}` learns to predict these"
        )


def trained(graph: Graph, config: LinkConfig, seed: int) -> tuple[Triples, dict[Part, Triples]]:
    """The links of a graph that are not held out by a share, and those that are, by part.

    Cost: one pass over the graph, to count them.
    """
    share = config.held_out / 2
    links = Triples(Path(graph.root), generation=graph.generation)
    parts = links.divided(HeldOut(share, share, seed))
    left = parts.pop("train", replace(links, counted=0))
    return left, parts


def without(links: Triples, keys: NDArray[np.int64], nodes: int) -> Iterator[NDArray[np.int64]]:
    """Pairs int64 [n, 2] of a graph's links, those with one of the ascending `keys` left out.

    A node has no link to itself.
    """
    for chunk in links.chunks():
        pairs = chunk[:, [0, 2]]
        wanted = (pairs[:, 0] != pairs[:, 1]) & ~among(pair_keys(pairs, nodes), keys)
        yield pairs[wanted]


def loops_of(graph: Graph) -> Iterator[NDArray[np.int64]]:
    """The self-loops of a graph, pairs int64 [n, 2].

    Cost: one pass over the graph.
    """
    for chunk in Triples(Path(graph.root)).chunks():
        pairs = chunk[:, [0, 2]]
        yield pairs[pairs[:, 0] == pairs[:, 1]]


def _members(path: Path) -> list[tuple[str, NDArray[Any]]]:
    if not path.exists():
        raise NotFoundError(
            f"edges `{path}`: no such file\n"
            "hint: `link.edges` is an `.npz` file with held-out edges"
        )
    if not zipfile.is_zipfile(path):
        raise InvalidError(f"edges `{path}`: expected an `.npz`, found another kind of file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return [(name, archive[name]) for name in archive.files]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CorruptError(f"edges `{path}`: expected an `.npz` of arrays: {error}") from error


def _of_folder(path: Path) -> list[tuple[str, NDArray[Any]]]:
    """The arrays of `train.pt`, `valid.pt` and `test.pt`, as OGB has them in `split/NAME`."""
    found: list[tuple[str, NDArray[Any]]] = []
    for part in PARTS:
        if not (file := path / f"{part}.pt").exists():
            continue
        read = read_torch(file)
        if not isinstance(read, dict):
            raise InvalidError(f"edges `{file}`: expected arrays by name")
        if "edge" in read:
            found.append((part, np.asarray(read["edge"])))
        elif {"source_node", "target_node"} <= read.keys():
            found.append((part, np.stack([read["source_node"], read["target_node"]], axis=1)))
        else:
            raise InvalidError(
                f"edges `{file}`: expected `edge`, or `source_node` and `target_node`, found "
                f"{', '.join(f'`{name}`' for name in read) or 'none'}"
            )
        negatives = (("edge_neg", "_neg"), ("target_node_neg", _OWN))
        found += [(f"{part}{kind}", read[name]) for name, kind in negatives if name in read]
    return found


def _checked(path: Path, name: str, array: NDArray[Any], nodes: int) -> NDArray[np.int64]:
    if not name.endswith(_OWN):
        return _pairs(path, name, array, nodes)
    what = f"edges `{path}`: array `{name}`"
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.size:
        raise InvalidError(
            f"{what}: expected targets for each edge, integers [n, k], found {array.dtype} "
            f"{list(array.shape)}"
        )
    wrong = np.flatnonzero(((array < 0) | (array >= nodes)).any(axis=1))
    if len(wrong):
        row = array[wrong[0]]
        raise InvalidError(
            f"{what}: row {wrong[0]}: found node {row[(row < 0) | (row >= nodes)][0]}, expected 0 "
            f"to {nodes - 1}"
        )
    return array.astype(np.int64, copy=False)


def _pairs(path: Path, name: str, array: NDArray[Any], nodes: int) -> NDArray[np.int64]:
    what = f"edges `{path}`: array `{name}`"
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu":
        raise InvalidError(
            f"{what}: expected pairs of node ids, integers [n, 2], found {array.dtype} "
            f"{list(array.shape)}"
        )
    if not len(array):
        raise InvalidError(f"{what}: expected at least one pair, found none")
    wrong = np.flatnonzero(((array < 0) | (array >= nodes)).any(axis=1))
    if len(wrong):
        raise InvalidError(
            f"{what}: row {wrong[0]}: found nodes {array[wrong[0]].tolist()}, expected 0 to "
            f"{nodes - 1}"
        )
    loops = np.flatnonzero(array[:, 0] == array[:, 1])
    if len(loops):
        raise InvalidError(
            f"{what}: row {loops[0]}: expected two nodes, found {int(array[loops[0], 0])} twice"
        )
    return array.astype(np.int64)
