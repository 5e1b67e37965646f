"""Several graph algorithms at once: which start when, on which cores, with how much memory.

The controller decides (`outercore.controller`); this package looks at the machine, starts and ends
the processes, and keeps a record of all.

**Source**: Fargraph+ 7, online resource allocation.
"""

from __future__ import annotations

from outercore.jobs.estimates import Estimate, estimate
from outercore.jobs.machines import Machine, ThisMachine
from outercore.jobs.request import Request
from outercore.jobs.running import PATIENCE_S, Observer, run_jobs
from outercore.jobs.states import STATE, JobState, Status, load_states

__all__ = [
    "PATIENCE_S",
    "STATE",
    "Estimate",
    "JobState",
    "Machine",
    "Observer",
    "Request",
    "Status",
    "ThisMachine",
    "estimate",
    "load_states",
    "run_jobs",
]
