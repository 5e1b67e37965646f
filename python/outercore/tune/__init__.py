"""The offline table: what algorithms take by threads, far ratio, partition size, queue length.

**Source**: Fargraph+ 7, offline data collection.
"""

from __future__ import annotations

from outercore.tune.budgets import least_budget, local_budget
from outercore.tune.measuring import Tuned, tune
from outercore.tune.points import FAR_RATIOS, Point, TuneConfig, medium_of, points
from outercore.tune.runs import LIMIT_S, cores_for, run_child
from outercore.tune.shape import graph_shape
from outercore.tune.table_file import load_table, same_machine, table_path

__all__ = [
    "FAR_RATIOS",
    "LIMIT_S",
    "Point",
    "TuneConfig",
    "Tuned",
    "cores_for",
    "graph_shape",
    "least_budget",
    "load_table",
    "local_budget",
    "medium_of",
    "points",
    "run_child",
    "same_machine",
    "table_path",
    "tune",
]
