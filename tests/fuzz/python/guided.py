"""The same inputs, guided by the coverage of the readers: needs `atheris`."""

from __future__ import annotations

import sys
from pathlib import Path

import atheris
import fuzz


def run(target: str, seconds: float, folder: Path) -> None:
    """Fuzzes for some seconds; libFuzzer ends the process with what it found."""
    for name, module in list(sys.modules.items()):
        if name.startswith("outercore.importing"):
            for function in vars(module).values():
                if getattr(function, "__module__", None) == name and hasattr(function, "__code__"):
                    atheris.instrument_func(function)
                elif isinstance(function, type) and function.__module__ == name:
                    for member in vars(function).values():
                        if hasattr(member, "__code__"):
                            atheris.instrument_func(member)
    kept = [str(fuzz.HERE / "corpus" / target)] if fuzz.corpus(target) else []
    arguments = [
        f"-max_total_time={int(seconds)}",
        "-max_len=400",
        "-rss_limit_mb=4096",
        "-len_control=0",
    ]
    found = folder.parent / f"outercore-fuzz-{target}"
    found.mkdir(exist_ok=True)
    # New inputs go into the first folder.
    argv = [sys.argv[0], *arguments, "-timeout=20", f"-artifact_prefix={found}/", str(found), *kept]
    atheris.Setup(argv, lambda data: fuzz.run_one(target, data, folder))
    atheris.Fuzz()
