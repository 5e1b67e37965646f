"""What a run learns edges from: its own graph of training edges, and pairs to score.

Message passing reads `graph` alone, a data set without the held-out edges in either direction. So
no network can see them, whatever samples its neighbourhoods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Importer, verify_arrays
from outercore.base.sizes import parse_size
from outercore.data.graph import Graph
from outercore.data.triples import Part
from outercore.errors import CorruptError, InvalidError, VersionError
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import checksum_of_file, seal, unseal
from outercore.files.large_arrays import blocks, mapped
from outercore.files.npy import NpyRows
from outercore.training.config import LinkConfig, TrainConfig
from outercore.training.links.adjacency import Adjacency
from outercore.training.links.held_out import HELD_OUT, GivenEdges, loops_of, trained, without
from outercore.training.links.negatives import Purpose, generator, held_out_negatives
from outercore.training.tasks import array_key

_DESCRIBED = "links.json"
"""Written last: what is there without it is not complete."""
_VERSION = 2
"""The first one had sizes of files, and no checksums."""
_WIDENED = "x.npy"
_NO_KEYS = np.empty(0, np.int64)
_NONE_HELD_OUT = LinkConfig(held_out=0.0)


@dataclass(frozen=True)
class Pairs:
    """Edges of a part and the negatives they are scored against.

    Shapes: `edges` and `negatives` int64 [n, 2]; `targets` int64 [edges, k], mapped.
    """

    edges: NDArray[np.int64]
    negatives: NDArray[np.int64]
    """For all edges together; none where each has its own."""
    targets: NDArray[np.int64] | None = None
    """For each edge other targets of its source, where these are given."""


@dataclass(frozen=True)
class LinkData:
    """The prepared edges of a run, in its directory `links`."""

    root: Path
    original: Graph
    """The data set that the run was started with."""
    graph: Graph
    """Its training edges, for message passing, with all self-loops; no features."""
    features: str | None
    """The `.npy` with the features of the nodes; `None` where they have none."""

    @property
    def parts(self) -> list[str]:
        """Held-out parts that are there."""
        return [part for part in HELD_OUT if (self.root / f"{part}.npy").exists()]

    def train(self) -> NDArray[Any]:
        """The edges to train on, [edges, 2], mapped from their file."""
        return _mapped(self.root / "train.npy")

    def sizes(self, name: str) -> tuple[int, int]:
        """Edges and negatives of a held-out part."""
        pairs = self.part(name)
        own = 0 if pairs.targets is None else pairs.targets.size
        return len(pairs.edges), len(pairs.negatives) + own

    def part(self, name: str) -> Pairs:
        """The edges and negatives of a held-out part."""
        edges, own = np.load(self.root / f"{name}.npy"), self.root / f"{name}_target_neg.npy"
        if own.exists():
            return Pairs(edges, np.empty((0, 2), np.int64), _mapped(own))
        return Pairs(edges, np.load(self.root / f"{name}_neg.npy"))


def open_links(
    root: Path,
    original: Graph,
    config: TrainConfig,
    check: Callable[[], None] = lambda: None,
    storage: Storage | None = None,
) -> LinkData:
    """The edges of a run, prepared in the directory `root` where they are not yet.

    `check` is called again and again, and raises to stop.

    Cost: five passes over the edges; an import of those to train on, within the run's budget. The
    disk holds them twice. What is prepared is read once to compare its checksums.
    Errors: `InvalidError` where no edge is left to train on; `CorruptError` for damage in the data
    set or in what was prepared; those of `GivenEdges` and `Importer`.
    """
    storage = storage or Storage()
    with device_errors(f"edges `{root}`"):
        if (root / _DESCRIBED).exists():
            _require_whole(root, check)
        else:
            # Half of it may be there.
            storage.remove_tree(root)
            storage.make_directory(root)
            _prepare(root, original, config, check, storage)
    return LinkData(root, original, Graph(root / "graph"), _features_file(root, original, config))


def _prepare(
    root: Path, graph: Graph, config: TrainConfig, check: Callable[[], None], storage: Storage
) -> None:
    _verify(graph, config)
    divided = divide(graph, config)
    count = 0
    with Importer(root / "graph", _import_options(graph, config), _stopper(check)) as importer:
        for pairs in divided.kept():
            check()
            importer.push_edges(pairs[:, 0], pairs[:, 1])
            count += len(pairs)
        # They are no links, but a server passes messages along them, and so does every other task.
        for pairs in loops_of(graph):
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
    replace_file(storage, root / _DESCRIBED, seal(described))


def _verify(graph: Graph, config: TrainConfig) -> None:
    """Copies get checksums of their own, so damage must be found here.

    Errors: `CorruptError`.
    """
    keys = [f"edges/edge/{name}" for name in ("offsets", "sources", "ids")]
    name = config.sampling.features
    if name != "x" or graph.manifest["roles"].get("features"):
        key = array_key(graph, name)
        keys += [key] if graph.manifest["arrays"][key]["dtype"] == "bfloat16" else []
    verify_arrays(Path(graph.root), [key for key in keys if key in graph.manifest["arrays"]])


def _sizes(root: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in sorted(root.glob("*.npy"))}


def _require_whole(root: Path, check: Callable[[], None]) -> None:
    """Errors: `CorruptError` names the file that is not as it was prepared."""
    what, hint = f"`{root / _DESCRIBED}`", f"hint: remove `{root}`, and the run prepares it again"
    try:
        described = unseal((root / _DESCRIBED).read_bytes(), what)
    except CorruptError as error:
        raise CorruptError(f"{error}\n{hint}") from None
    if described.get("version") not in (1, _VERSION):
        raise VersionError(
            f"{what}: expected version {_VERSION}, found {described.get('version')}\n{hint}"
        )
    found = _sizes(root)
    for name, size in described["bytes"].items():
        if (now := found.get(name, "no file")) != size:
            raise CorruptError(f"`{root / name}`: expected {size} bytes, found {now}\n{hint}")
    for name, expected in described.get("checksums", {}).items():
        check()
        checksum = checksum_of_file(root / name)
        if checksum != expected:
            raise CorruptError(
                f"`{root / name}`: found checksum {checksum}, expected {expected}\n{hint}"
            )


@dataclass(frozen=True)
class Divided:
    """The edges of a data set by what they are for."""

    kept: Callable[[], Iterator[NDArray[np.int64]]]
    """Those that are not held out, some at a time."""
    held_out: dict[Part, NDArray[np.int64]]
    given: GivenEdges | None


def divide(graph: Graph, config: TrainConfig) -> Divided:
    """The edges to learn from, and those that are held out.

    Cost: one pass over the edges; those that are held out are in memory.
    """
    nodes = graph.num_nodes
    if config.link.edges is not None:
        given = GivenEdges.read(Path(config.link.edges), nodes)
        keys = given.held_out_keys(nodes)
        every, _ = trained(graph, _NONE_HELD_OUT, 0)
        held = {part: given.arrays[part] for part in HELD_OUT if part in given.arrays}
        return Divided(lambda: without(every, keys, nodes), held, given)
    links, parts = trained(graph, config.link, config.run.seed)
    held = {
        part: np.concatenate([np.empty((0, 2), np.int64), *without(some, _NO_KEYS, nodes)])
        for part, some in parts.items()
    }
    held = {part: pairs for part, pairs in held.items() if len(pairs)}
    return Divided(lambda: without(links, _NO_KEYS, nodes), held, None)


def _import_options(graph: Graph, config: TrainConfig) -> dict[str, Any]:
    return {
        "memory": parse_size(config.budget.memory),
        "nodes": graph.num_nodes,
        "undirected": bool(graph.manifest["edge_types"]["edge"].get("undirected")),
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
    """The edges to learn: all that message passing has, or those that the user gave."""
    kind = np.dtype(np.uint32 if graph.num_nodes <= 1 << 32 else np.int64)
    given = None if divided.given is None else divided.given.arrays.get("train")
    if divided.given is not None and given is not None:
        joined = Adjacency(Graph(root / "graph")).joined(given)
        if not joined.all():
            row = int(np.flatnonzero(~joined)[0])
            raise InvalidError(
                f"edges `{divided.given.path}`: array `train`: row {row}: nodes "
                f"{given[row, 0]} and {given[row, 1]} have no edge in data set `{graph.root}`"
            )
        count = len(given)
    with NpyRows(root / "train.npy", (count, 2), kind) as rows:
        for pairs in divided.kept() if given is None else (given,):
            rows.append(pairs)


def _write_held_out(
    root: Path,
    part: Part,
    edges: NDArray[np.int64],
    divided: Divided,
    graph: Graph,
    seed: int,
) -> None:
    arrays = {} if divided.given is None else divided.given.arrays
    own, given = arrays.get(f"{part}_target_neg"), arrays.get(f"{part}_neg")
    if given is None and own is None:
        nodes = graph.num_nodes
        keys = _NO_KEYS if divided.given is None else divided.given.held_out_keys(nodes)
        purpose = Purpose.VALID if part == "valid" else Purpose.TEST
        given = held_out_negatives(
            len(edges), generator(seed, purpose), nodes, Adjacency(graph), keys
        )
    files: dict[str, NDArray[np.int64]] = {part: edges}
    if own is not None:
        files[f"{part}_target_neg"] = own
    elif given is not None:
        files[f"{part}_neg"] = given
    for name, pairs in files.items():
        with NpyRows(root / f"{name}.npy", pairs.shape, np.int64) as rows:
            rows.append(pairs)


def _features_file(root: Path, graph: Graph, config: TrainConfig) -> str | None:
    """The file that loaders read features from; `None` where nodes have none."""
    name = config.sampling.features
    if name == "x" and not graph.manifest["roles"].get("features"):
        return None
    entry = graph.manifest["arrays"][array_key(graph, name)]
    own = entry["dtype"] == "bfloat16"
    path = root / _WIDENED if own else Path(graph.root) / entry["file"]
    return str(path.resolve())


def _widen_features(root: Path, graph: Graph, config: TrainConfig) -> None:
    """Copies features of the type bfloat16 as float32.

    A `.npy` does not say that its 16 bits are bfloat16, and it is read by its path.
    """
    if _features_file(root, graph, config) != str((root / _WIDENED).resolve()):
        return
    entry = graph.manifest["arrays"][array_key(graph, config.sampling.features)]
    halves = mapped(Path(graph.root), {**entry, "dtype": "uint16"})
    with NpyRows(root / _WIDENED, halves.shape) as copy:
        for _, block in blocks(halves, 1 << 12):
            copy.append((block.astype(np.uint32) << 16).view(np.float32))


def _mapped(path: Path) -> NDArray[Any]:
    array: NDArray[Any] = np.load(path, mmap_mode="r")
    return array
