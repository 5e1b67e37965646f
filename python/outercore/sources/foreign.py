"""Files of other tools that are known and not read: refused by name, with the way to convert."""

from __future__ import annotations

from pathlib import Path

from outercore.errors import UnsupportedError
from outercore.sources.text import suffix_of

_ARCS = "write its arcs as text: `webgraph to arcs BASENAME > arcs.txt`"
_HEADER = "give them a header: `np.save(NEW, np.memmap(FILE, dtype, shape=...))`"
_PICKLE = ("a pickle, which may run code when it is read", "save its arrays by `np.savez`")
_TORCH = (
    "a PyTorch file, which may run code when it is read",
    "in Python: `outercore.from_pyg(torch.load(FILE), OUT)`",
)
_GRAPHBOLT = (
    "the description of a GraphBolt data set",
    "import its edge file and `.npy` arrays by name",
)
_HDF5 = ("an HDF5 file", "save its arrays by `np.save`")
_ARROW = ("an Arrow file", "write it as Parquet: `pyarrow.parquet.write_table`")
_SHEET = ("a spreadsheet", "save it as CSV")
_JSON = ("JSON", "write its columns as CSV or Parquet")
_RAW = ("raw numbers", _HEADER)
_ARCHIVE = ("an archive of files", "unpack it and import the files")
_WAYS = {
    ".graph": ("a WebGraph or METIS graph", f"WebGraph: {_ARCS}; METIS: write a line for each arc"),
    ".properties": ("the properties of a WebGraph graph", _ARCS),
    ".dgl": (
        "a DGL graph",
        "in Python: `u, v = dgl.load_graphs(FILE)[0][0].edges()`, then `np.savez` of both as "
        "`edge_index`",
    ),
    ".pt": _TORCH,
    ".pth": _TORCH,
    ".pkl": _PICKLE,
    ".pickle": _PICKLE,
    ".mat": ("a MATLAB file", "in Python: `scipy.io.loadmat`, then `scipy.sparse.save_npz`"),
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".feather": _ARROW,
    ".arrow": _ARROW,
    ".xlsx": _SHEET,
    ".xls": _SHEET,
    ".ods": _SHEET,
    ".json": _JSON,
    ".jsonl": _JSON,
    ".yaml": _GRAPHBOLT,
    ".gml": ("GML", "in Python: `networkx.read_gml`, then write the edges as CSV"),
    ".graphml": ("GraphML", "in Python: `networkx.read_graphml`, then write the edges as CSV"),
    ".bin": _RAW,
    ".raw": _RAW,
    ".memmap": _RAW,
    ".zip": _ARCHIVE,
    ".tar": _ARCHIVE,
    ".tgz": _ARCHIVE,
    ".7z": _ARCHIVE,
}
_MAPPED = (".npy", ".npz", ".parquet")
"""Read in any order, which a packed file does not allow."""


def refuse_foreign(path: Path) -> None:
    """Errors: `UnsupportedError` for a file of a kind that is known and not read."""
    if path.is_dir() and (path / "metadata.yaml").exists():
        _refuse(path, *_GRAPHBOLT)
    suffix = suffix_of(path)
    if suffix in _MAPPED and path.suffix.lower() not in (*_MAPPED, ".pq"):
        _refuse(path, f"a packed {suffix} file", f"unpack it: `{path.stem}`")
    # `edges.csv.zip` is an archive, `edges.tar.gz` too.
    known = _WAYS.get(path.suffix.lower()) or _WAYS.get(suffix)
    if known is not None:
        _refuse(path, *known)


def _refuse(path: Path, what: str, way: str) -> None:
    raise UnsupportedError(f"`{path}` is {what}, which is not read\nhint: {way}")
