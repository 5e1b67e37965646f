"""How inputs become a data set: the options of every import."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from outercore.base.fields import one_of
from outercore.base.options import Option
from outercore.errors import InvalidError

FeatureType = Literal["float64", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class ArrayOptions:
    """How files become arrays of nodes."""

    task: Annotated[
        Literal["classification", "multi-label", "regression"] | None,
        Option(
            "Read the labels for `classification`, `multi-label` or `regression`. By default, "
            "their values decide."
        ),
    ] = None
    memory: Annotated[
        str | int,
        Option(
            "Memory budget for data: a size such as `8GiB`, `25%` of the machine's memory, or "
            "`auto` for half of the free memory.",
            size=True,
        ),
    ] = "1GiB"
    feature_dtype: Annotated[
        FeatureType | None,
        Option(
            "Store features as `float64`, `float32`, `float16` or `bfloat16`. The default is the "
            "type in the file."
        ),
    ] = None
    in_place: Annotated[bool, Option("Register a `.npy` of features without copying it.")] = False
    allow_nan: bool = False
    """Whether missing values stay missing, as NaN; otherwise they are refused."""

    def __post_init__(self) -> None:
        if self.task is not None:
            one_of("task", self.task, ("classification", "multi-label", "regression"))
        if self.feature_dtype is not None:
            one_of("feature_dtype", self.feature_dtype, get_args(FeatureType))


@dataclass(frozen=True)
class ImportOptions(ArrayOptions):
    """How the inputs become a graph."""

    undirected: Annotated[
        bool | None, Option("Store every edge in both directions.", off="--directed")
    ] = None
    self_loops: Annotated[
        Literal["keep", "drop", "add"],
        Option(
            "Keep self-loops (`keep`), drop them (`drop`), or add one to every node without one "
            "(`add`)."
        ),
    ] = "keep"
    duplicates: Annotated[
        Literal["keep", "drop"],
        Option("Keep repeated edges or triples (`keep`), or only the first one (`drop`)."),
    ] = "keep"
    overwrite: Annotated[bool, Option("Replace an existing data set.")] = False
    outside_files: Annotated[
        bool,
        Option(
            "Also read files outside the imported folder, if its description or its links name "
            "them."
        ),
    ] = False
    command: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("self_loops", self.self_loops, ("keep", "drop", "add"))
        one_of("duplicates", self.duplicates, ("keep", "drop"))


def require_once(option: str, names: list[str]) -> None:
    """Errors: `InvalidError` for a name that occurs twice; `option` is for the message."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InvalidError(f"{option}: `{name}` is given {count} times, expected once")
