"""Names that the examples in docstrings can use without a definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def tiny_dataset(request: pytest.FixtureRequest) -> None:
    """`tiny_dataset`: the path of a data set of 200 nodes, 8 features and 4 classes."""
    if isinstance(request.node, pytest.DoctestItem):
        namespace: dict[str, Any] = request.getfixturevalue("doctest_namespace")
        namespace["tiny_dataset"] = str(request.getfixturevalue("tiny_dataset_path"))


@pytest.fixture(scope="session")
def tiny_dataset_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Created once per session, if an example uses it."""
    from outercore import _core

    path = tmp_path_factory.mktemp("doctest") / "tiny"
    shape = {"nodes": 200, "degree": 6, "features": 8, "classes": 4, "seed": 1}
    _core.generate_planted(path, shape, lambda *_: None)
    return path


@pytest.fixture(autouse=True)
def tiny_embedding(request: pytest.FixtureRequest) -> None:
    """`tiny_embedding`: the path of an embedding of `tiny_dataset` with 8 dimensions."""
    if isinstance(request.node, pytest.DoctestItem):
        namespace: dict[str, Any] = request.getfixturevalue("doctest_namespace")
        namespace["tiny_embedding"] = str(request.getfixturevalue("tiny_embedding_path"))
        namespace["tmp_path"] = request.getfixturevalue("tmp_path")


@pytest.fixture(scope="session")
def tiny_embedding_path(tmp_path_factory: pytest.TempPathFactory, tiny_dataset_path: Path) -> Path:
    """Created once per session, if an example uses it."""
    from outercore.files.checked_json import checked_json_bytes

    path = tmp_path_factory.mktemp("doctest") / "embedding"
    path.mkdir()
    rows = np.random.default_rng(1).standard_normal((200, 8), np.float32)
    np.save(path / "entities.npy", rows)
    np.save(path / "relations.npy", np.empty((1, 0), np.float32))
    described = {
        "version": 2,
        "model": {"kind": "dot", "dim": 8},
        "entities": 200,
        "relations": 1,
        "width": 8,
        "data_set": str(tiny_dataset_path),
        "metrics": [],
    }
    (path / "embedding.json").write_bytes(checked_json_bytes(described))
    return path
