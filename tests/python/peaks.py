"""Peak memory of commands and loaders, each in a separate process with all modules imported.

A server process imports all modules and forks for each piece of work. The child first does tiny
work, so that one-time allocations are not counted. Then it does the measured work.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MODULES = (
    *("outercore.cli", "outercore.training.run", "outercore.embedding.run", "outercore.analytics"),
    *(
        "outercore.loading.loader",
        "outercore.loading.link_loader",
        "outercore.loading.sampler",
    ),
    *("torch_geometric.nn", "torch._dynamo", "tensorboardX", "pyarrow.parquet", "pyarrow.csv"),
)


def available() -> bool:
    """Whether the kernel reports the peak memory of a process and can reset it."""
    return Path("/proc/self/clear_refs").exists()


class Peaks:
    """Measures work in forked processes."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        here = str(Path(__file__).parent)
        paths = os.pathsep.join([here, *(path for path in sys.path if path)])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._server = subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, "PYTHONPATH": paths, "COLUMNS": "200", **threads},
        )
        theirs.close()
        self._socket = ours
        self._answers = ours.makefile()

    def of(self, work: dict[str, Any], tiny: dict[str, Any], where: Path) -> dict[str, Any]:
        """The `peak` of `work` in bytes, after `tiny`; each in a separate directory below `where`.

        Raises:
            AssertionError: the work failed, with its output.
        """
        request = {"work": work, "tiny": tiny, "where": str(where)}
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._answers.readline())
        assert "peak" in answer, (work, answer)
        return answer

    def close(self) -> None:
        """Ends the server process."""
        self._answers.close()
        self._socket.close()
        self._server.wait()


@contextmanager
def peaks() -> Iterator[Peaks]:
    """`Peaks` within the block."""
    started = Peaks()
    try:
        yield started
    finally:
        started.close()


def _do(work: dict[str, Any]) -> dict[str, Any]:
    """Runs a command, or some batches of a loader."""
    if "command" in work:
        from outercore.cli import run

        code = run([str(argument) for argument in work["command"]])
        if code != 0:
            raise RuntimeError(f"exit code {code}")
        return {}
    import numpy as np

    import outercore as oc

    options = dict(work["options"])
    for name, file in work.get("arrays", {}).items():
        options[name] = np.load(file)
    # The caller's arrays are not part of the peak.
    held = sum(array.nbytes for array in options.values() if isinstance(array, np.ndarray))
    data_set, batches = options.pop("data_set"), work.get("batches", 30)
    with getattr(oc, work["loader"])(oc.open(data_set), **options) as loader:
        plan = loader.plan()
        taken = sum(1 for _ in itertools.islice(loader, batches))
    return {"batches": taken, "plan": plan, "held": held}


def _status(field: str) -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))


def _measured(request: dict[str, Any]) -> dict[str, Any]:
    where = Path(request["where"])
    for name in ("tiny", "work"):
        (where / name).mkdir()
    os.chdir(where / "tiny")
    _do(request["tiny"])
    os.chdir(where / "work")
    # Memory that the allocator keeps from the tiny work would hide allocations of the work.
    ctypes.CDLL(None).malloc_trim(0)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    result = _do(request["work"])
    return {**result, "peak": _status("VmHWM") - before - result.get("held", 0)}


def _serve(connection: socket.socket) -> None:
    for module in MODULES:
        importlib.import_module(module)
    for line in connection.makefile():
        with tempfile.TemporaryFile("w+") as said:
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                _obey(json.loads(line), said.fileno(), writing)
            os.close(writing)
            with open(reading) as answer:
                result = answer.read()
            os.waitpid(child, 0)
            said.seek(0)
            reply = result or json.dumps({"said": said.read()[-4000:]})
        connection.sendall(reply.encode() + b"\n")


def _obey(request: dict[str, Any], said: int, answer: int) -> None:
    code = 1
    try:
        for descriptor in (1, 2):
            os.dup2(said, descriptor)
        os.write(answer, json.dumps(_measured(request)).encode())
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
