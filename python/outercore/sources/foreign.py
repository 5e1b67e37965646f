"""Files of other tools that are known and not read: refused by name, with the way to convert."""

from __future__ import annotations

from pathlib import Path

from outercore.errors import UnsupportedError
from outercore.sources.text import suffix_of

_ARCS = "write its arcs as text: `webgraph to arcs BASENAME > arcs.txt`"
_HEADER = "give them a header: `np.save(NEW, np.memmap(FILE, dtype, shape=...))`"
_WAYS = {
    ".graph": (
        "a WebGraph graph",
        "write its arcs as text: `webgraph to arcs BASENAME > arcs.txt`",
    ),
    ".properties": (
        "the properties of a WebGraph graph",
        "write its arcs as text: `webgraph to arcs BASENAME > arcs.txt`",
    ),
    ".dgl": (
        "a DGL graph",
        "in Python: `u, v = dgl.load_graphs(FILE)[0][0].edges()`, then `np.savez` of both as "
        "`edge_index`",
    ),
    ".pt": (
        "a PyTorch file, which may run code when it is read",
        "in Python: `outercore.from_pyg(torch.load(FILE), OUT)`",
    ),
    ".pkl": ("a pickle, which may run code when it is read", "save its arrays by `np.savez`"),
    ".pickle": ("a pickle, which may run code when it is read", "save its arrays by `np.savez`"),
    ".mat": ("a MATLAB file", "in Python: `scipy.io.loadmat`, then `scipy.sparse.save_npz`"),
    ".h5": ("an HDF5 file", "save its arrays by `np.save`"),
    ".hdf5": ("an HDF5 file", "save its arrays by `np.save`"),
    ".feather": ("an Arrow file", "write it as Parquet: `pyarrow.parquet.write_table`"),
    ".arrow": ("an Arrow file", "write it as Parquet: `pyarrow.parquet.write_table`"),
    ".xlsx": ("a spreadsheet", "save it as CSV"),
    ".json": ("JSON", "write its columns as CSV or Parquet"),
    ".yaml": (
        "the description of a GraphBolt data set",
        "import its edge file and `.npy` arrays by name",
    ),
    ".gml": ("GML", "in Python: `networkx.read_gml`, then write the edges as CSV"),
    ".graphml": ("GraphML", "in Python: `networkx.read_graphml`, then write the edges as CSV"),
    ".bin": ("raw numbers", _HEADER),
    ".raw": ("raw numbers", _HEADER),
    ".memmap": ("raw numbers", _HEADER),
}


def refuse_foreign(path: Path) -> None:
    """Errors: `UnsupportedError` for a file of a kind that is known and not read."""
    if path.is_dir() and (path / "metadata.yaml").exists():
        what, way = _WAYS[".yaml"]
        raise UnsupportedError(f"`{path}` is {what}, which is not read\nhint: {way}")
    known = _WAYS.get(suffix_of(path))
    if known is not None:
        what, way = known
        raise UnsupportedError(f"`{path}` is {what}, which is not read\nhint: {way}")
