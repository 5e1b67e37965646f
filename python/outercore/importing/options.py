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
            "What the labels are: `classification`, `multi-label` or `regression`; by their values "
            "by default."
        ),
    ] = None
    memory: Annotated[
        str | int, Option("Memory budget: `8GiB`, `25%` of the machine, or `auto`.", size=True)
    ] = "1GiB"
    feature_dtype: Annotated[
        FeatureType | None,
        Option("`float64`, `float32`, `float16` or `bfloat16`; the file's by default."),
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
    self_loops: Annotated[Literal["keep", "drop", "add"], Option("`keep`, `drop` or `add`.")] = (
        "keep"
    )
    duplicates: Annotated[Literal["keep", "drop"], Option("`keep` or `drop`.")] = "keep"
    overwrite: Annotated[bool, Option("Replace a data set that is there already.")] = False
    outside_files: Annotated[
        bool, Option("Read files outside of a folder that its description or links name.")
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
