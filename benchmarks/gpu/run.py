"""Check and measure Outercore on a GPU: correct results, speed, and the limits of the hardware.

    python benchmarks/gpu/run.py                  # with a GPU, at most 9 minutes
    python benchmarks/gpu/run.py --small          # tiny sizes; no GPU needed

Each part runs in a separate process with a time limit, so a part that fails or hangs does not stop
the others. The values that it measured before stay. `gpu.json` and `gpu.md` are rewritten after
each part.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Part:
    """A module with a function `run`, and the most seconds that it may take."""

    module: str
    limit_s: float
    function: str = "run"
    needs_gpu: bool = False


PARTS = {
    "transfer": Part("transfer", 75),
    "ways": Part("ways", 75),
    "training": Part("training", 170),
    "embedding": Part("embedding", 110),
    "batches": Part("batches", 40),
    "kernels": Part("kernels", 75),
    "models": Part("models", 75),
    "tests": Part("product_tests", 90, needs_gpu=True),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the parts; returns 0 if all ran to their end and all results were right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="tiny sizes, less than a minute")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=520.0, help="time limit of all parts")
    parser.add_argument("--out", type=Path, default=HERE.parent / "results", help="for results")
    parser.add_argument("--work", type=Path, help="for data sets, 5 GB; by default temporary")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        return _run_part(options)
    import torch

    if not options.small and not torch.cuda.is_available():
        parser.error("PyTorch finds no CUDA device; `--small` runs without one")
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        return _run_all(options, work)


def _run_all(options: argparse.Namespace, work: Path) -> int:
    from report import markdown

    started = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"machine": _machine(work), "small": options.small, "parts": {}}
    for name in options.only or PARTS:
        left = options.seconds - (time.monotonic() - started)
        result["parts"][name] = _in_a_process(name, options, work, left)
        result["seconds"] = time.monotonic() - started
        (options.out / "gpu.json").write_text(json.dumps(result, indent=1))
        (options.out / "gpu.md").write_text(markdown(result))
    print((options.out / "gpu.md").read_text())
    fine = all(part["status"] in ("done", "skipped") for part in result["parts"].values())
    return 0 if fine else 1


def _in_a_process(
    name: str, options: argparse.Namespace, work: Path, left: float
) -> dict[str, Any]:
    """Runs a part. Returns its status, seconds, values and checks."""
    import torch

    part, stored = PARTS[name], work / f"part-{name}.json"
    stored.unlink(missing_ok=True)
    if part.needs_gpu and not torch.cuda.is_available():
        return {"status": "skipped", "why": "needs a GPU"}
    if left < 10:
        return {"status": "not run", "why": "the time was used up"}
    command = [sys.executable, str(HERE / "run.py"), "--part", name, "--work", str(work)]
    command += ["--small"] if options.small else []
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
    if not torch.cuda.is_available():
        environment["TRITON_INTERPRET"] = "1"
    if options.small:
        # Threads that wait for each other cost more than they give at these sizes.
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    print(f"== {name}, {left:.0f} s left", file=sys.stderr, flush=True)
    started = time.monotonic()
    # A small run tries the script. It may share its cores with other programs.
    limit = left if options.small else min(part.limit_s, left)
    # In a new process group, so that the children of a part end with it.
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        code = process.wait(timeout=limit)
        status = "done" if code == 0 else f"failed with exit status {code}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        status = f"stopped after {limit:.0f} s"
    result = json.loads(stored.read_text()) if stored.exists() else {"values": {}, "checks": []}
    if status == "done" and not all(check["right"] for check in result["checks"]):
        status = "wrong"
    seconds = time.monotonic() - started
    print(f"   {status}, {seconds:.1f} s", file=sys.stderr, flush=True)
    return {"status": status, "seconds": seconds, **result}


def _run_part(options: argparse.Namespace) -> int:
    from bench import Bench

    part = PARTS[options.part]
    bench = Bench(options.work, options.work / f"part-{options.part}.json", options.small)
    try:
        getattr(importlib.import_module(part.module), part.function)(bench)
    except Exception:
        bench.keep("error", traceback.format_exc())
        traceback.print_exc()
        return 1
    return 0


def _machine(work: Path) -> dict[str, Any]:
    """Hardware and library versions, for the record."""
    import platform

    import torch

    machine: dict[str, Any] = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load_before": os.getloadavg()[0],
        "free_disk": os.statvfs(work).f_bavail * os.statvfs(work).f_frsize,
        "device": "cpu",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    try:
        import triton

        machine["triton"] = triton.__version__
    except ImportError:
        machine["triton"] = None
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        machine |= {
            "device": properties.name,
            "device_memory": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
            "link": _link(),
        }
    return machine


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"


def _link() -> str:
    """Generation and width of the PCIe link, and the driver."""
    query = "pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,driver_version"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}"
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
