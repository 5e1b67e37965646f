"""Run the test files that use a GPU if there is one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from bench import Bench

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = ("test_embed_triton.py", "test_embed_device.py")


def run(bench: Bench) -> None:
    """Run them with compiled kernels, without Triton's interpreter."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
    if find_spec("xdist") is not None:
        # Compiling kernels takes most of the time.
        command += ["--numprocesses", "8"]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [*command, *(f"tests/python/{name}" for name in FILES)],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (\w+)", done.stdout[-400:])}
    bench.keep("counts", counts)
    bench.keep("output", done.stdout[-6000:])
    bench.check(f"tests: {', '.join(FILES)}", done.returncode == 0, counts)
