"""The edges of a run: a graph of training edges, and pairs to score.

Message passing reads only `graph`, a data set without the held-out edges in either direction. So no
sampling method can show these edges to a network.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Importer, verify_arrays
from outercore.base.shell import quoted
from outercore.base.sizes import parse_size
from outercore.data.csc import Edges, among, pair_keys
from outercore.data.edge_types import PLAIN_EDGE
from outercore.data.graph import Graph
from outercore.data.schema import TOPOLOGY
from outercore.data.triples import PARTS, HeldOut, Part, Triples
from outercore.errors import CorruptError, InvalidError, NotFoundError, VersionError
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import checked_json_bytes, checksum_of_file, parse_checked_json
from outercore.files.npy import NpyRows, map_npy, read_npy
from outercore.importing.table.torch_file import read_torch
from outercore.loading.link_seeds import Purpose, generator
from outercore.training.config import TrainConfig
from outercore.training.tasks import array_key

HELD_OUT: tuple[Part, ...] = ("valid", "test")
_OWN = "_target_neg"
_KINDS = ("_neg", _OWN)
"""Endings of the names of negatives: shared by all edges of a split, and separate for each edge."""
_DESCRIBED = "links.json"
"""The last file that is written. Without it, the directory is not complete."""
_VERSION = 2
_WIDENED = "x.npy"
_WIDENED_ROWS = 1 << 12
"""Number of rows of features that are converted to float32 together."""
PAIRS = 1 << 16
"""Number of pairs that are looked up together. A smaller number takes less memory but more time."""
_HELD_OUT_ROUNDS = 200
"""Maximum number of draws until enough pairs have no edge."""


@dataclass(frozen=True)
class Pairs:
    """The edges of a held-out split, and the negatives that they are scored against.

    Shapes: `edges` and `negatives` int64 [n, 2]; `targets` int64 [edges, k], a mapped file.
    """

    edges: NDArray[np.int64]
    negatives: NDArray[np.int64]
    """Negatives that all edges share; empty if each edge has separate negatives."""
    targets: NDArray[np.int64] | None = None
    """Separate negatives of each edge, if given: other targets for its source."""


@dataclass(frozen=True)
class LinkData:
    """The prepared edges of a run, in its directory `links`."""

    root: Path
    graph: Graph
    """The training edges and all self-loops, for message passing. It has no features."""
    features: str | None
    """The path of the `.npy` with the features of the nodes; `None` without features."""

    @property
    def parts(self) -> list[str]:
        """The names of the held-out splits of the run."""
        return [part for part in HELD_OUT if (self.root / f"{part}.npy").exists()]

    def train(self) -> NDArray[Any]:
        """The edges to train on, [edges, 2], mapped from their file."""
        return map_npy(self.root / "train.npy", "edges")

    def sizes(self, name: str) -> tuple[int, int]:
        """The numbers of edges and negatives of a held-out split."""
        pairs = self.part(name)
        own = 0 if pairs.targets is None else pairs.targets.size
        return len(pairs.edges), len(pairs.negatives) + own

    def part(self, name: str) -> Pairs:
        """The edges and negatives of a held-out split."""
        edges, own = read_npy(self.root / f"{name}.npy", "edges"), self.root / f"{name}{_OWN}.npy"
        if own.exists():
            return Pairs(edges, np.empty((0, 2), np.int64), map_npy(own, "negatives"))
        return Pairs(edges, read_npy(self.root / f"{name}_neg.npy", "negatives"))


def open_links(
    root: Path,
    graph: Graph,
    config: TrainConfig,
    check: Callable[[], None] = lambda: None,
    storage: Storage | None = None,
) -> LinkData:
    """Opens the edges of a run; prepares them in the directory `root` at the first call.

    `check` is called between steps. It raises an error to stop.

    Cost: five passes over the edges, and an import of the training edges within the run's budget.
    The disk holds the training edges twice. Later calls read the prepared files once to compare
    their checksums.
    Errors: `InvalidError` if no edge is left to train on; `CorruptError` for damage in the data set
    or in prepared files; errors of `EdgesFile` and `Importer`.
    """
    storage = storage or Storage()
    with device_errors(f"edges `{root}`"):
        if (root / _DESCRIBED).exists():
            _require_whole(root, check)
        else:
            # Remove the files of an interrupted preparation.
            storage.remove_tree(root)
            storage.make_directory(root)
            _prepare(root, graph, config, check, storage)
    return LinkData(root, Graph(root / "graph"), _features_file(root, graph, config))


def _prepare(
    root: Path, graph: Graph, config: TrainConfig, check: Callable[[], None], storage: Storage
) -> None:
    _verify(graph, config)
    divided = divide(graph, config)
    count = 0
    with Importer(root / "graph", _import_options(graph, config), _stopper(check)) as importer:
        for pairs in divided.train():
            check()
            importer.push_edges(pairs[:, 0], pairs[:, 1])
            count += len(pairs)
        # Self-loops are not predicted, but messages pass along them, as in a server.
        for pairs in self_loops(graph):
            check()
            importer.push_edges(pairs[:, 0], pairs[:, 1])
        if not count:
            raise InvalidError(
                f"data set `{graph.root}`: no edge is left to train on\nhint: hold out fewer"
            )
        importer.finish()
    _write_train(root, graph, divided, count)
    for part, pairs in divided.held_out.items():
        check()
        _write_held_out(root, part, pairs, divided, graph, config.run.seed)
    _widen_features(root, graph, config)
    for file in root.glob("*.npy"):
        storage.sync(file)
    checksums = {file.name: checksum_of_file(file) for file in sorted(root.glob("*.npy"))}
    described = {"version": _VERSION, "bytes": _sizes(root), "checksums": checksums}
    replace_file(storage, root / _DESCRIBED, checked_json_bytes(described))


def _verify(graph: Graph, config: TrainConfig) -> None:
    """Checks the arrays that are copied: a copy gets a new checksum, which would hide damage.

    Errors: `CorruptError`.
    """
    keys = [f"edges/edge/{name}" for name in TOPOLOGY]
    name = config.sampling.features
    if name != "x" or graph.schema.features:
        key = array_key(graph, name)
        keys += [key] if graph.arrays[key]["dtype"] == "bfloat16" else []
    verify_arrays(Path(graph.root), [key for key in keys if key in graph.arrays])


def _sizes(root: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in sorted(root.glob("*.npy"))}


def _require_whole(root: Path, check: Callable[[], None]) -> None:
    """Checks that prepared files have not changed. Errors: `CorruptError` names the file."""
    what, hint = f"`{root / _DESCRIBED}`", f"hint: remove `{root}`, and the run prepares it again"
    try:
        described = parse_checked_json((root / _DESCRIBED).read_bytes(), what)
    except CorruptError as error:
        raise CorruptError(f"{error}\n{hint}") from None
    if described.get("version") != _VERSION:
        raise VersionError(
            f"{what}: expected version {_VERSION}, found {described.get('version')}\n{hint}"
        )
    sizes = _sizes(root)
    for name, size in described["bytes"].items():
        if (now := sizes.get(name, "no file")) != size:
            raise CorruptError(f"`{root / name}`: expected {size} bytes, found {now}\n{hint}")
    for name, expected in described["checksums"].items():
        check()
        checksum = checksum_of_file(root / name)
        if checksum != expected:
            raise CorruptError(
                f"`{root / name}`: found checksum {checksum}, expected {expected}\n{hint}"
            )


@dataclass(frozen=True)
class Divided:
    """The edges of a data set, divided into training edges and held-out edges; no self-loops."""

    train: Callable[[], Iterator[NDArray[np.int64]]]
    """A function that iterates over blocks int64 [n, 2] of the training edges."""
    held_out: dict[Part, NDArray[np.int64]]
    file: EdgesFile | None
    """The user's file of held-out edges; `None` if edges are held out at random."""
    keys: NDArray[np.int64]
    """Keys of the held-out edges of this file, ascending; see `pair_keys`."""


def divide(graph: Graph, config: TrainConfig) -> Divided:
    """Divides the edges into training edges and held-out edges.

    Cost: one pass over the edges. Held-out edges stay in memory.
    """
    nodes, share = graph.num_nodes, config.link.held_out / 2
    file, keys = None, np.empty(0, np.int64)
    if config.link.edges is not None:
        file = EdgesFile.read(Path(config.link.edges), nodes)
        keys, share = file.held_out_keys(nodes), 0.0

    def pairs_of(links: Triples) -> Iterator[NDArray[np.int64]]:
        for chunk in links.chunks():
            pairs = chunk[:, [0, 2]]
            yield pairs[(pairs[:, 0] != pairs[:, 1]) & ~among(pair_keys(pairs, nodes), keys)]

    every = Triples(Path(graph.root), generation=graph.generation)
    parts = every.divided(HeldOut(share, share, config.run.seed))
    left = parts.pop("train", replace(every, counted=0))
    if file is not None:
        held = {part: file.arrays[part] for part in HELD_OUT if part in file.arrays}
    else:
        none = np.empty((0, 2), np.int64)
        whole = {part: np.concatenate([none, *pairs_of(links)]) for part, links in parts.items()}
        held = {part: pairs for part, pairs in whole.items() if len(pairs)}
    return Divided(lambda: pairs_of(left), held, file, keys)


def _import_options(graph: Graph, config: TrainConfig) -> dict[str, Any]:
    return {
        "memory": parse_size(config.budget.memory),
        "nodes": graph.num_nodes,
        "undirected": graph.schema.is_undirected,
        "self_loops": "keep",
        "duplicates": "keep",
        "overwrite": False,
        "command": "outercore train --task link",
        "inputs": [f"training edges of {Path(graph.root).resolve()}"],
        "edges": ["training edges"],
        "reading": "",
    }


def _stopper(check: Callable[[], None]) -> Callable[[str, int, int, str], None]:
    def progress(phase: str, done: int, total: int, unit: str) -> None:
        check()

    return progress


def _write_train(root: Path, graph: Graph, divided: Divided, count: int) -> None:
    """Writes the edges to train on: all edges of message passing, or `train` of the user's file."""
    kind = np.dtype(np.uint32 if graph.num_nodes <= 1 << 32 else np.int64)
    train = None if divided.file is None else divided.file.arrays.get("train")
    if divided.file is not None and train is not None:
        joined = Edges(Graph(root / "graph"), PLAIN_EDGE, pairs=PAIRS).connect(train)
        if not joined.all():
            row = int(np.flatnonzero(~joined)[0])
            raise InvalidError(
                f"edges `{divided.file.path}`: array `train`: row {row}: nodes "
                f"{train[row, 0]} and {train[row, 1]} have no edge in data set `{graph.root}`"
            )
        count = len(train)
    with NpyRows(root / "train.npy", (count, 2), kind) as rows:
        for pairs in divided.train() if train is None else (train,):
            rows.append(pairs)


def _write_held_out(
    root: Path,
    part: Part,
    edges: NDArray[np.int64],
    divided: Divided,
    graph: Graph,
    seed: int,
) -> None:
    arrays = {} if divided.file is None else divided.file.arrays
    names = (f"{part}{_OWN}", f"{part}_neg")
    name = next((name for name in names if name in arrays), names[-1])
    if name not in arrays:
        purpose = Purpose.VALID if part == "valid" else Purpose.TEST
        every = Edges(graph, PLAIN_EDGE, pairs=PAIRS)
        random = generator(seed, purpose)
        negatives = held_out_negatives(len(edges), random, graph.num_nodes, every, divided.keys)
        arrays = {name: negatives}
    for file, pairs in ((part, edges), (name, arrays[name])):
        with NpyRows(root / f"{file}.npy", pairs.shape, np.int64) as rows:
            rows.append(pairs)


def _features_file(root: Path, graph: Graph, config: TrainConfig) -> str | None:
    """The path of the file with the features of the nodes; `None` for nodes without features."""
    name = config.sampling.features
    if name == "x" and not graph.schema.features:
        return None
    entry = graph.arrays[array_key(graph, name)]
    own = entry["dtype"] == "bfloat16"
    path = root / _WIDENED if own else Path(graph.root) / entry["file"]
    return str(path.resolve())


def _widen_features(root: Path, graph: Graph, config: TrainConfig) -> None:
    """Copies features of the type bfloat16 to a float32 file.

    Loaders get only the path of the `.npy`, whose header cannot express bfloat16.
    """
    if _features_file(root, graph, config) != str((root / _WIDENED).resolve()):
        return
    key = array_key(graph, config.sampling.features)
    shape = graph.arrays[key]["shape"]
    with NpyRows(root / _WIDENED, tuple(shape)) as copy:
        for first in range(0, shape[0], _WIDENED_ROWS):
            copy.append(graph.rows(key, slice(first, first + _WIDENED_ROWS)))


def held_out_negatives(
    count: int,
    random: np.random.Generator,
    nodes: int,
    edges: Edges,
    held_out: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Draws pairs int64 [count, 2], uniformly among the pairs of different nodes without an edge.

    `edges` are the edges of the whole data set; `held_out` are keys of edges from another file.

    Errors: `InvalidError` if there are hardly any such pairs.
    """
    chunks: list[NDArray[np.int64]] = []
    missing = count
    for _ in range(_HELD_OUT_ROUNDS):
        pairs = random.integers(nodes, size=(missing, 2))
        known = edges.connect(pairs) | among(pair_keys(pairs, nodes), held_out)
        chunks.append(pairs[~known & (pairs[:, 0] != pairs[:, 1])])
        missing -= len(chunks[-1])
        if not missing:
            return np.concatenate(chunks)
    raise InvalidError(
        f"negatives: found {count - missing} pairs of nodes without an edge, expected {count}\n"
        "hint: the graph has an edge between nearly every two nodes; there is nothing to predict"
    )


@dataclass(frozen=True)
class EdgesFile:
    """The edges and negatives in a user's file, by the names of the arrays, int64 [n, 2] each.

    `valid_target_neg` and `test_target_neg` are [n, k]: other targets for the source of each edge.
    """

    path: Path
    arrays: dict[str, NDArray[np.int64]] = field(repr=False)

    @classmethod
    def read(cls, path: Path, nodes: int) -> EdgesFile:
        """Reads and checks an `.npz`, or a folder of OGB, for a graph with `nodes` nodes.

        Errors: `NotFoundError`; `CorruptError` for a file that cannot be read; `InvalidError` for
        an unknown array, a wrong type or shape, a node out of range, or an edge in two splits.
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
        file = cls(path, arrays)
        file._require_disjoint(nodes)
        return file

    def held_out_keys(self, nodes: int) -> NDArray[np.int64]:
        """The distinct keys of all held-out edges, ascending; see `pair_keys`."""
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
    """Refuses knowledge graphs, whose triples have many relations. Errors: `InvalidError`."""
    if "edges/edge/offsets" not in graph.arrays:
        raise InvalidError(
            f"data set `{graph.root}`: expected a graph with edges, found triples\n"
            f"hint: `outercore embed {quoted(graph.root)}` learns to predict these"
        )


def self_loops(graph: Graph) -> Iterator[NDArray[np.int64]]:
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
    """Reads `train.pt`, `valid.pt` and `test.pt`, the files of OGB's folder `split/NAME`."""
    arrays: list[tuple[str, NDArray[Any]]] = []
    for part in PARTS:
        if not (file := path / f"{part}.pt").exists():
            continue
        read = read_torch(file)
        if not isinstance(read, dict):
            raise InvalidError(f"edges `{file}`: expected arrays by name")
        if "edge" in read:
            arrays.append((part, np.asarray(read["edge"])))
        elif {"source_node", "target_node"} <= read.keys():
            arrays.append((part, np.stack([read["source_node"], read["target_node"]], axis=1)))
        else:
            raise InvalidError(
                f"edges `{file}`: expected `edge`, or `source_node` and `target_node`, found "
                f"{', '.join(f'`{name}`' for name in read) or 'none'}"
            )
        negatives = (("edge_neg", "_neg"), ("target_node_neg", _OWN))
        arrays += [(f"{part}{kind}", read[name]) for name, kind in negatives if name in read]
    return arrays


def _checked(path: Path, name: str, array: NDArray[Any], nodes: int) -> NDArray[np.int64]:
    what = f"edges `{path}`: array `{name}`"
    is_pairs = not name.endswith(_OWN)
    expected = "pairs of node ids, integers [n, 2]"
    if not is_pairs:
        expected = "targets for each edge, integers [n, k]"
    is_wrong = array.ndim != 2 or array.dtype.kind not in "iu"
    if is_wrong or (array.shape[1] != 2 if is_pairs else not array.size):
        raise InvalidError(f"{what}: expected {expected}, found {array.dtype} {list(array.shape)}")
    if not len(array):
        raise InvalidError(f"{what}: expected at least one pair, found none")
    if ((array < 0) | (array >= nodes)).any():
        row, column = np.argwhere((array < 0) | (array >= nodes))[0]
        found = f"nodes {array[row].tolist()}" if is_pairs else f"node {array[row, column]}"
        raise InvalidError(f"{what}: row {row}: found {found}, expected 0 to {nodes - 1}")
    if is_pairs and len(loops := np.flatnonzero(array[:, 0] == array[:, 1])):
        raise InvalidError(
            f"{what}: row {loops[0]}: expected two nodes, found {array[loops[0], 0]} twice"
        )
    return array.astype(np.int64, copy=False)
