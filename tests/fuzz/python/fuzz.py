"""Runs one target: see the README."""

from __future__ import annotations

import argparse
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "python")]

import grammar  # noqa: E402

from outercore.errors import OutercoreError  # noqa: E402

_SECONDS = 5
"""Of the processor: other programs on the machine do not count."""
_ADDRESSES = 3 << 30
"""Bytes that inputs may take, besides what the libraries have mapped."""
_LONGEST = 400


def _arrays(value: Any) -> None:
    """Touches every value of every array, as an import does."""
    if hasattr(value, "dtype"):
        if value.size < 1 << 24:
            value.astype("f8" if value.dtype.kind in "fiub" else object).sum()
    elif isinstance(value, dict):
        for one in value.values():
            _arrays(one)
    elif isinstance(value, list):
        for one in value:
            _arrays(one)


def _pt(path: Path) -> None:
    from outercore.importing.table.torch_file import read_torch

    _arrays(read_torch(path))


def _yaml(path: Path) -> None:
    from outercore.importing.format.graphbolt import is_typed_graphbolt, read_description
    from outercore.importing.format.relational import read_schema

    (path.parent / "e.csv").write_text("0,1\n")
    for name, read in (
        ("metadata.yaml", is_typed_graphbolt),
        ("metadata.yaml", read_description),
        ("tables.yaml", read_schema),
    ):
        described = path.rename(path.with_name(name))
        try:
            read(path.parent)
        except OutercoreError:
            pass
        finally:
            described.rename(path)


def _neo4j(path: Path) -> None:
    import pandas  # noqa: F401 - what takes its time to import is not part of an input

    from outercore.importing.format.neo4j import is_neo4j, open_neo4j
    from outercore.importing.inputs import TypedInputs
    from outercore.importing.options import ImportOptions

    if is_neo4j(path.parent):
        open_neo4j(path.parent, TypedInputs((), ()), ImportOptions())


def _npy(path: Path) -> None:
    from outercore.files.file_spec import FileSpec
    from outercore.importing.edges import open_edges
    from outercore.importing.table.rows import open_rows

    for read in (lambda: open_rows(FileSpec(path, ())), lambda: open_edges(str(path))):
        try:
            found = read()
            if hasattr(found, "chunks"):
                for _ in found.chunks():
                    pass
        except OutercoreError:
            pass


def _npz(path: Path) -> None:
    from outercore.importing.inputs import Inputs
    from outercore.importing.plain_graph import open_inputs
    from outercore.importing.table.sparse import sparse_rows

    try:
        for chunk in sparse_rows(path).chunks():
            chunk.sum()
    except OutercoreError:
        pass
    source = open_inputs(Inputs((str(path),), edge_shape=None))
    for edges in source.edges:
        edges.feed(_Taker(), None)  # type: ignore[arg-type]
    for array in source.arrays:
        for chunk in array.rows.chunks():
            chunk.sum()


class _Taker:
    """Stands in for an importer."""

    def push_edges(self, source: Any, target: Any) -> None:
        assert source.dtype == target.dtype == "int64"
        assert len(source) == len(target)


def _safetensors(path: Path) -> None:
    from safetensors import SafetensorError

    from outercore.training.exported import is_of
    from outercore.training.model_files import _from_bytes

    assert not is_of(path.parent, path.parent)
    # As `load_model` does, which names the file.
    with suppress(ValueError, SafetensorError):
        _from_bytes(path.read_bytes())


TARGETS: dict[str, tuple[str, Callable[[bytes], bytes], Callable[[Path], None]]] = {
    "pt": ("file.pt", grammar.torch_file, _pt),
    "pt-bytes": ("file.pt", grammar.mutated_torch_file, _pt),
    "yaml": ("file.yaml", grammar.description, _yaml),
    "neo4j": ("user.csv", grammar.neo4j, _neo4j),
    "npy": ("file.npy", grammar.npy, _npy),
    "npz": ("file.npz", grammar.npz, _npz),
    "safetensors": ("model.safetensors", grammar.safetensors, _safetensors),
}


class _TooSlow(BaseException):
    """An input took too long; no target may catch it."""


def run_one(target: str, data: bytes, folder: Path) -> None:
    """Reads what the bytes describe; a finding is an exception."""
    name, build, read = TARGETS[target]
    path = folder / name
    path.write_bytes(build(data))
    signal.setitimer(signal.ITIMER_PROF, _SECONDS)
    try:
        read(path)
    except OutercoreError as error:
        text = str(error)
        assert "allow_pickle" not in text
        text.encode()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_slow(*_: Any) -> None:
    raise _TooSlow(f"more than {_SECONDS} s")


def limit_resources() -> None:
    """Bounds what this process may map from now on, and the time of each input."""
    signal.signal(signal.SIGPROF, _too_slow)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + _ADDRESSES,) * 2)


def corpus(target: str) -> list[Path]:
    """The kept inputs of a target."""
    return sorted((HERE / "corpus" / target).glob("*"))


def run_random(target: str, seconds: float, most: int, seed: int, folder: Path) -> int:
    """Kept inputs, then random ones; the number of those."""
    until, draw, count = time.monotonic() + seconds, random.Random(seed), 0
    inputs = [one.read_bytes() for one in corpus(target)]
    while time.monotonic() < until and count < most:
        kept = inputs[count] if count < len(inputs) else None
        data = draw.randbytes(draw.randrange(_LONGEST)) if kept is None else kept
        try:
            run_one(target, data, folder)
        except BaseException:
            print(f"{target}, seed {seed}, input {count}: {data.hex()}", file=sys.stderr)
            raise
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--most", type=int, default=sys.maxsize)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--guided", action="store_true")
    parser.add_argument("--file", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        folder = Path(scratch)
        # Imports libraries before their memory counts, and what they keep.
        run_one(given.target, b"", folder)
        limit_resources()
        if given.file is not None:
            run_one(given.target, given.file.read_bytes(), folder)
        elif given.guided:
            import guided

            guided.run(given.target, given.seconds, folder)
        else:
            count = run_random(given.target, given.seconds, given.most, given.seed, folder)
            print(f"{given.target}: {count:,} inputs, seed {given.seed}, no finding")


if __name__ == "__main__":
    main()
