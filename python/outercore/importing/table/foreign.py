"""Refuses files of other tools in known, unsupported formats. The error tells how to convert."""

from __future__ import annotations

import re
from pathlib import Path

from outercore.errors import UnsupportedError
from outercore.importing.table.text import suffix_of

_ARCS = "write its arcs as text: `webgraph to arcs BASENAME > arcs.txt`"
_HEADER = "give them a header: `np.save(NEW, np.memmap(FILE, dtype, shape=...))`"
_PICKLE = ("a pickle, which may run code when it is read", "save its arrays by `np.savez`")
_TORCH = (
    "a PyTorch file, which may run code when it is read",
    "in Python: `outercore.from_pyg(torch.load(FILE), OUT)`",
)
_HDF5 = ("an HDF5 file", "save its arrays by `np.save`")
_ARROW = ("an Arrow file", "write it as Parquet: `pyarrow.parquet.write_table`")
_SHEET = ("a spreadsheet", "save it as CSV")
_JSON = ("JSON", "write its columns as CSV or Parquet")
_RAW = ("raw numbers", _HEADER)
_NETWORKX = "read it in Python by `networkx`, then write the edges as CSV"
_PAJEK = ("a Pajek network", _NETWORKX)
_DOT = ("a Graphviz graph", _NETWORKX)
_PAGE = ("a web page", "fetch the file itself: the page may be an error, or name the file")
_METIS = (
    "a METIS graph",
    "without weights, in a shell: `awk 'NR > 1 {for (i = 1; i <= NF; i++) print NR - 1, $i}' FILE "
    "> edges.txt`, whose ids start at 1 (--one-based)",
)
_WEBGRAPH = ("a WebGraph graph", _ARCS)
_ARCHIVE = ("an archive of files", "unpack it and import the files")
_WAYS = {
    ".graph": _WEBGRAPH,
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
    ".yaml": ("a description of a data set", "import the folder that it is in"),
    ".gml": ("GML", _NETWORKX),
    ".graphml": ("GraphML", _NETWORKX),
    ".gexf": ("GEXF", _NETWORKX),
    ".paj": _PAJEK,
    ".dot": _DOT,
    ".gv": _DOT,
    ".g6": ("graph6", _NETWORKX),
    ".adjlist": ("a list of neighbours", _NETWORKX),
    ".metis": _METIS,
    ".html": _PAGE,
    ".htm": _PAGE,
    ".bin": _RAW,
    ".raw": _RAW,
    ".memmap": _RAW,
    ".zip": _ARCHIVE,
    ".tar": _ARCHIVE,
    ".tgz": _ARCHIVE,
    ".7z": _ARCHIVE,
}
_MAPPED = (".npy", ".npz", ".parquet")
"""Endings of files that are read in any order, so they cannot be compressed."""


def refuse_foreign(path: Path) -> None:
    """Errors: `UnsupportedError` for a file in a known, unsupported format."""
    suffix = suffix_of(path)
    if suffix in _MAPPED and path.suffix.lower() not in (*_MAPPED, ".pq"):
        _refuse(path, f"a packed {suffix} file", f"unpack it: `{path.stem}`")
    # `edges.csv.zip` and `edges.tar.gz` are archives.
    known = _WAYS.get(path.suffix.lower()) or _WAYS.get(suffix)
    if suffix == ".graph":
        known = _graph(path)
    if suffix == ".net" and _start(path).lstrip().lower().startswith("*vertices"):
        known = _PAJEK
    if known is not None:
        _refuse(path, *known)


def _graph(path: Path) -> tuple[str, str]:
    """Format and advice for `.graph`: METIS if its first line has counts, otherwise WebGraph."""
    lines = [line for line in _start(path).splitlines() if not line.startswith("%")]
    if lines and re.fullmatch(r"\s*\d+\s+\d+(\s+\d+){0,2}\s*", lines[0]):
        return _METIS
    return _WEBGRAPH


def _start(path: Path) -> str:
    """The first characters of a file, not decompressed; empty for a directory."""
    if not path.is_file():
        return ""
    with open(path, "rb") as file:
        return file.read(1 << 16).decode("ascii", "replace")


def _refuse(path: Path, what: str, way: str) -> None:
    raise UnsupportedError(f"`{path}` is {what}, which is not read\nhint: {way}")
