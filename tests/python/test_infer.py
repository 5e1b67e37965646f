"""The core's inference against the networks as PyTorch computes them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from infer_cases import BINARY, answers, cases, write

# By hand, until the core has a binding:
#   cargo build -p outercore-infer --example forward
#   OUTERCORE_FORWARD=target/debug/examples/forward pytest tests/python/test_infer.py
pytestmark = pytest.mark.skipif(BINARY not in os.environ, reason=f"{BINARY} names no binary")


def test_logits_are_those_of_the_network_for_every_kind(tmp_path: Path) -> None:
    every = list(cases())
    directories = [tmp_path / str(number) for number in range(len(every))]
    for case, directory in zip(every, directories, strict=True):
        write(case, directory)
    for case, found in zip(every, answers(directories), strict=True):
        # Of logits around 1 some are sums of far larger terms.
        scale = max(1.0, float(np.abs(case.expected).max()))
        error = float(np.abs(found - case.expected).max()) / scale
        assert error < 1e-5, f"{case.name}: {error}"
