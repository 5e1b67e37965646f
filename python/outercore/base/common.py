"""Options that several jobs have, each with one help text."""

from __future__ import annotations

from typing import Annotated, Literal

from outercore.base.options import Option

Backend = Literal["auto", "uring", "threads", "mmap"]
Topology = Literal["auto", "resident", "paged"]
Policy = Literal["window", "lru"]
Precision = Literal["exact", "int8"]

MemoryOption = Annotated[
    str, Option("Memory budget: `8GiB`, `25%` of the machine, or `auto`.", size=True, common=True)
]
SeedOption = Annotated[
    int, Option("Seed of all random numbers; one seed gives one result.", common=True)
]
DeviceOption = Annotated[Literal["auto", "cpu", "cuda"], Option("`auto`, `cpu` or `cuda`.")]
BackendOption = Annotated[
    Backend, Option("How files are read: `auto`, `uring`, `threads` or `mmap`.")
]
