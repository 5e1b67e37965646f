"""Limits of the hardware: copies over the bus, and gathers over the bus and in device memory.

This uses no code of Outercore. A device tier cannot be faster than these rates.
"""

from __future__ import annotations

import mmap
import tempfile
from typing import Any

import numpy as np
import torch
from bench import Bench
from gather import gather, register, unregister
from torch import Tensor

ROW_BYTES = (64, 128, 256, 400, 512, 1024, 4096, 16384)
PROGRAMS = (2, 4, 8, 16, 32, 64, 132, 264)
"""Thread blocks of 256 threads. Up to the number of multiprocessors, each runs on another one."""


def run(bench: Bench) -> None:
    """Measure all rates. They count the bytes of the rows, in one direction."""
    size = bench.pick(4 << 30, 1 << 20)
    words = torch.arange(size // 4, dtype=torch.int32)
    locked = bench.seconds(lambda: _relock(bench, words), repeats=1)
    bench.keep("register_and_unregister_s_per_gib", locked / (size / (1 << 30)))
    if bench.device == "cuda":
        register(words)
    _copies(bench, words)
    on_device = words.to(bench.device)
    _gathers(bench, words, on_device)
    _by_programs(bench, words)
    _by_pages(bench, words)
    if bench.device == "cuda":
        unregister(words)
        bench.keep("register_read_only_mapping", _read_only(bench))


def _relock(bench: Bench, words: Tensor) -> None:
    if bench.device == "cuda":
        register(words)
        unregister(words)


def _copies(bench: Bench, locked: Tensor) -> None:
    """Measure copies; `locked` is page-locked in place if there is a device."""
    device, rates = bench.device, {}
    for size in bench.pick((64 << 10, 1 << 20, 16 << 20, 256 << 20), (64 << 10,)):
        count = size // 4
        there = torch.empty(count, dtype=torch.int32, device=device)
        pageable = torch.arange(count, dtype=torch.int32)
        pinned = torch.empty(count, dtype=torch.int32, pin_memory=device == "cuda")
        ways = {
            "pageable to device": lambda a=pageable, b=there: b.copy_(a),
            "pinned to device": lambda a=pinned, b=there: b.copy_(a, non_blocking=True),
            "locked in place to device": lambda a=locked[:count], b=there: b.copy_(
                a, non_blocking=True
            ),
            "device to pinned": lambda a=pinned, b=there: a.copy_(b, non_blocking=True),
        }
        rates[size] = {name: size / bench.seconds(work) for name, work in ways.items()}
        right = torch.equal(there.cpu(), locked[:count])
        bench.check(f"copy of {size:,} bytes from memory locked in place", right)
        bench.keep("copy", rates)
    size = bench.pick(2 << 30, 1 << 20)
    source, copy = (torch.empty(size // 4, dtype=torch.int32, device=device) for _ in range(2))
    moved = 2 * size / bench.seconds(lambda: copy.copy_(source))
    bench.keep("device_copy_read_and_written", moved)
    bench.keep("host_copy_read_and_written", _host_copy(bench, locked))


def _host_copy(bench: Bench, words: Tensor) -> float:
    source = words[: len(words) // 4]
    copy = torch.empty_like(source)
    return 2 * source.numel() * 4 / bench.seconds(lambda: copy.copy_(source), repeats=3)


def _gathers(bench: Bench, words: Tensor, on_device: Tensor) -> None:
    """Gather random rows, by location of the table and by method."""
    device, rates_by_size = bench.device, {}
    for row_bytes in bench.pick(ROW_BYTES, (64, 400)):
        table, there, ids, out = _case(bench, words, on_device, row_bytes)
        ids_there, rows = ids.to(device), len(ids)
        size, wide = rows * row_bytes, table.size(1)
        staged = torch.empty(rows, wide, dtype=torch.int32, pin_memory=device == "cuda")

        def by_cpu(table: Tensor = table, ids: Tensor = ids, out: Tensor = out) -> None:
            out.copy_(table[ids])

        def by_cpu_pinned(
            table: Tensor = table, ids: Tensor = ids, out: Tensor = out, staged: Tensor = staged
        ) -> None:
            torch.index_select(table, 0, ids, out=staged)
            out.copy_(staged, non_blocking=True)

        ways: dict[str, Any] = {
            "CPU gather, pageable copy": by_cpu,
            "CPU gather into pinned, copy": by_cpu_pinned,
            "CPU gather alone": lambda t=table, i=ids, s=staged: torch.index_select(t, 0, i, out=s),
            "pinned copy alone": lambda s=staged, o=out: o.copy_(s, non_blocking=True),
            "zero copy": lambda t=table, i=ids_there, o=out: gather(t, i, o, bench.pick(264, 2)),
            "device memory, kernel": lambda t=there, i=ids_there, o=out: gather(
                t, i, o, bench.pick(132 * 8, 2)
            ),
            "device memory, index_select": lambda t=there, i=ids_there, o=out: torch.index_select(
                t, 0, i, out=o
            ),
        }
        expected, rates = there[ids_there], {}
        for name, work in ways.items():
            if name != "CPU gather alone":
                out.fill_(-1)
            rates[name] = size / bench.seconds(work, repeats=3)
            if name not in ("CPU gather alone", "pinned copy alone"):
                bench.check(f"rows of {row_bytes} bytes, {name}", torch.equal(out, expected))
        rates_by_size[row_bytes] = {"rows": rows, **rates}
        bench.keep("gather", rates_by_size)


def _by_programs(bench: Bench, words: Tensor) -> None:
    """Zero copy by the number of programs."""
    rates_by_size: dict[int, dict[int, float]] = {}
    for row_bytes in bench.pick((512, 4096), (64,)):
        table, _, ids, out = _case(bench, words, words, row_bytes)
        ids, rates = ids.to(bench.device), {}
        for programs in bench.pick(PROGRAMS, (1, 2)):
            seconds = bench.seconds(
                lambda t=table, i=ids, o=out, p=programs: gather(t, i, o, p), repeats=3
            )
            rates[programs] = len(ids) * row_bytes / seconds
        rates_by_size[row_bytes] = rates
        bench.keep("zero_copy_by_programs", rates_by_size)


def _by_pages(bench: Bench, words: Tensor) -> None:
    """Zero copy by kind of page: each random row may need an address translation."""
    tables = {"locked in place": words}
    if bench.device == "cuda":
        tables["allocated by CUDA"] = torch.empty_like(words, pin_memory=True).copy_(words)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory = mmap.mmap(-1, words.numel() * 4)
        memory.madvise(mmap.MADV_HUGEPAGE)
        huge = torch.frombuffer(memory, dtype=torch.int32).copy_(words)
        if bench.device == "cuda":
            register(huge)
        tables["locked in place, huge pages"] = huge
    rates_by_kind: dict[str, dict[int, float]] = {}
    for name, some in tables.items():
        rates_by_kind[name] = {}
        for row_bytes in bench.pick((128, 512, 4096), (64,)):
            table, _, ids, out = _case(bench, some, some, row_bytes)
            ids = ids.to(bench.device)
            seconds = bench.seconds(
                lambda t=table, i=ids, o=out: gather(t, i, o, bench.pick(32, 2)), repeats=3
            )
            rates_by_kind[name][row_bytes] = len(ids) * row_bytes / seconds
            right = torch.equal(out.cpu(), table[ids.cpu()])
            bench.check(f"rows of {row_bytes} bytes, {name}", right)
            bench.keep("zero_copy_by_pages", rates_by_kind)
    if bench.device == "cuda" and "locked in place, huge pages" in tables:
        unregister(tables["locked in place, huge pages"])


def _case(
    bench: Bench, words: Tensor, on_device: Tensor, row_bytes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The table with rows of this size on host and device, random ids, and the output."""
    wide = row_bytes // 4
    whole = len(words) // wide * wide
    table, there = words[:whole].view(-1, wide), on_device[:whole].view(-1, wide)
    rows = bench.pick(256 << 20, 16 << 10) // row_bytes
    ids = torch.from_numpy(np.random.default_rng(row_bytes).integers(0, len(table), rows))
    return table, there, ids, torch.empty(rows, wide, dtype=torch.int32, device=bench.device)


def _read_only(bench: Bench) -> str:
    """Whether a read-only mapping can be locked, by `cudaHostRegisterReadOnly`."""
    with tempfile.NamedTemporaryFile(dir=bench.work) as file:
        file.write(bytes(1 << 20))
        file.flush()
        mapped = np.memmap(file.name, np.uint8, "r")
        codes = {}
        for name, flags in (("default", 0), ("read only", 8)):
            code = int(torch.cuda.cudart().cudaHostRegister(mapped.ctypes.data, 1 << 20, flags))
            codes[name] = code
            if not code:
                torch.cuda.cudart().cudaHostUnregister(mapped.ctypes.data)
        return ", ".join(f"{name}: CUDA error {code}" for name, code in codes.items())
