"""Workloads and prepared data sets, created once."""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from adapters import data_root
from limits import drop_cached, run_limited
from measure import Settings, python, say
from product import command, imported
from workloads import WORKLOADS, Workload, make, write_text


def workload(settings: Settings, name: str, *, text: bool = False) -> tuple[Workload, Path]:
    """A synthetic workload and its folder."""
    work, folder = WORKLOADS[name], settings.work / name
    if not (folder / "workload.json").exists():
        say(f"making {name}")
    make(work, folder)
    if text:
        write_text(folder / "edges.npy", folder / "edges.csv")
    return work, folder


def product_set(settings: Settings, name: str) -> Path:
    """The workload as an Outercore data set, with its features in place, as for DGL."""
    _, folder = workload(settings, name)
    return imported(folder, settings.work / f"{name}.outercore", in_place=True)


def dgl_set(settings: Settings, name: str) -> Path | None:
    """The workload as a GraphBolt data set; None if DGL is not installed."""
    if not settings.dgl_python.exists():
        say(f"no DGL at {settings.dgl_python}; see benchmarks/peers/requirements.txt")
        return None
    _, folder = workload(settings, name)
    out = settings.work / f"{name}.dgl"
    if not (out / "ready").exists():
        say(f"preparing {name} for DGL")
        command = python("peers/dgl_prepare.py", folder, out, interpreter=settings.dgl_python)
        subprocess.run(command, check=True, capture_output=True)
    return out


def batches_of(settings: Settings, name: str, count: int) -> Path:
    """The node ids of the first `count` batches of an epoch."""
    _, folder = workload(settings, name)
    out = settings.work / f"{name}.batches-{count}.npz"
    if not out.exists():
        say(f"sampling the batches of {name}")
        command = python("workers/batches.py", folder, out, "--batches", count)
        subprocess.run(command, check=True, capture_output=True)
    return out


def knowledge_set(settings: Settings, name: str) -> Path:
    """A knowledge graph of the data library as an Outercore data set."""
    out = settings.work / f"{name}.outercore"
    if not (out / "graph.json").exists():
        say(f"importing {name}")
        files = {}
        for part in ("train", "valid", "test"):
            files[part] = settings.work / f"{name}.{part}.tsv"
            packed = data_root() / name / f"{part}.txt.xz"
            with lzma.open(packed) as source, files[part].open("wb") as target:
                shutil.copyfileobj(source, target)
        run_limited(
            command(
                "import", files["train"], "--triples", "--valid", files["valid"],
                "--test", files["test"], "--unknown", "keep", "--out", out,
            )
        ).check()  # fmt: skip
    return out


def numbered_triples(settings: Settings, name: str) -> Path:
    """The training triples of a knowledge graph as numbers, for programs that take arrays."""
    out = settings.work / f"{name}.npz"
    if not out.exists():
        folder = knowledge_set(settings, name)
        train = np.load(folder / "triples/train.npy")
        counts = {
            what: len(np.load(folder / f"names/{what}.offsets.npy")) - 1
            for what in ("entity", "relation")
        }
        np.savez(out, train=train, entities=counts["entity"], relations=counts["relation"])
    return out


def beside(epochs: int, threads: int) -> dict[str, object]:
    """Options of a timed embedding: few rankings, and only a checkpoint at the end."""
    return {
        "optimiser.validate_every": epochs,
        "run.checkpoint_seconds": 0,
        "evaluation.valid_triples": 200,
        "evaluation.test_triples": 200,
        "budget.threads": threads,
    }


def share_of(work: Workload, share: float) -> int:
    """Bytes of a share of a workload's data."""
    return int(work.data_bytes * share)


def interpreter_bytes(settings: Settings) -> int:
    """Memory of Python, PyTorch and PyG before any data is read, in bytes; measured once.

    Afterwards their files are in the page cache, so that measured programs are not charged for
    them.
    """
    measured = settings.work / "interpreter-warm.json"
    program = "import torch, torch_geometric.data, torch_geometric.nn.models"
    if not measured.exists():
        measured.write_text(json.dumps(import_bytes(sys.executable, program)))
    else:
        _cache_files(sys.executable, program)
    return int(json.loads(measured.read_text()))


def import_bytes(interpreter: str | Path, program: str, *, files: bool = False) -> int:
    """Memory of an interpreter and libraries before any data is read, in bytes.

    With `files`, the page cache is dropped before, and reads of their files count. This is much
    more than they need (1.6 GB for PyTorch and PyG), because the kernel reads far ahead. Without
    it, the files are already in the page cache, charged to another process.
    """
    if files:
        drop_cached([Path(interpreter).parent.parent])
    else:
        _cache_files(interpreter, program)
    outcome = run_limited(_import(interpreter, program)).check()
    return outcome.peak or outcome.peak_resident


def _cache_files(interpreter: str | Path, program: str) -> None:
    subprocess.run(_import(interpreter, program), check=True, capture_output=True)


def _import(interpreter: str | Path, program: str) -> list[str]:
    return [str(interpreter), "-W", "ignore", "-c", program]
