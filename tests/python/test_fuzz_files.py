"""A moment of fuzzing of every reader of foreign files, in a process with bounded memory; see
`tests/fuzz/python`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[1] / "fuzz/python/fuzz.py"
TARGETS = ("pt", "pt-bytes", "yaml", "neo4j", "npy", "npz", "safetensors")
SECONDS = os.environ.get("OUTERCORE_FUZZ_SECONDS", "2")


@pytest.mark.slow
@pytest.mark.timeout(120 + 10 * float(SECONDS))
@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_make_a_reader_fail_hang_or_fill_the_memory(target: str) -> None:
    if target == "safetensors":
        pytest.importorskip("safetensors")
    seed = os.environ.get("OUTERCORE_FUZZ_SEED", "7")
    command = [sys.executable, str(FUZZ), target, "--seconds", SECONDS, "--seed", seed]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, f"{target}, seed {seed}:\n{found.stderr[-4000:]}"
    assert "no finding" in found.stdout
