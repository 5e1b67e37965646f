"""Data sets with grids of other partition sizes, to measure those too."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outercore.errors import NotFoundError


@contextmanager
def without_grid(data_set: Path, partition_log2: int) -> Iterator[Path]:
    """A data set of the same files without its grid, beside it, so on the same device."""
    root = data_set.resolve()
    manifest = json.loads((root / "graph.json").read_text())
    try:
        copy = Path(tempfile.mkdtemp(prefix=f".{root.name}-{partition_log2}-", dir=root.parent))
    except OSError as error:
        raise NotFoundError(
            f"partitions of 2^{partition_log2}: no directory beside `{root}`: {error.strerror}"
            "\nhint: tune a copy of the data set where you may write"
        ) from None
    try:
        # It is of the file as it was.
        manifest.pop("checksum", None)
        arrays = manifest["arrays"]
        manifest["arrays"] = {
            key: value for key, value in arrays.items() if not key.startswith("grid/")
        }
        for described in manifest["arrays"].values():
            link = copy / described["file"]
            if Path(described["file"]).is_absolute() or link.exists():
                continue
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(root / described["file"])
        (copy / "graph.json").write_text(json.dumps(manifest))
        if (root / "device.json").exists():
            shutil.copy(root / "device.json", copy)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)
