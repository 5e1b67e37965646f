"""What the examples in docstrings may use without saying where it comes from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def tiny_dataset(request: pytest.FixtureRequest) -> None:
    """`tiny_dataset`: the path of a data set of 200 nodes, 8 features and 4 classes."""
    if isinstance(request.node, pytest.DoctestItem):
        namespace: dict[str, Any] = request.getfixturevalue("doctest_namespace")
        namespace["tiny_dataset"] = str(request.getfixturevalue("tiny_dataset_path"))


@pytest.fixture(scope="session")
def tiny_dataset_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once, and only for those who ask."""
    from outercore import _core

    path = tmp_path_factory.mktemp("doctest") / "tiny"
    shape = {"nodes": 200, "degree": 6, "features": 8, "classes": 4, "seed": 1}
    _core.generate_planted(str(path), json.dumps(shape), lambda *_: None)
    return path
