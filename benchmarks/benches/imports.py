"""Import of 64 M edges with 1 GiB: from `.npy` and from text."""

from __future__ import annotations

import shutil

from limits import drop_cached, run_limited
from measure import Result, Series, Settings, say
from product import import_command

from benches.inputs import workload

BUDGET = 1 << 30
ALLOWANCE = 64 << 20
WHAT = (
    "Edges a second from the start of `outercore import --memory 1GiB` to its end, checksums and "
    "durable writes included, input cold. Memory is the highest resident set of the process."
)


def run(settings: Settings) -> Result:
    """Measure both kinds of input."""
    result = Result("import", WHAT)
    work, folder = workload(settings, settings.dense, text=True)
    for kind, edges, least in (("npy", "edges.npy", 5e6), ("text", "edges.csv", 2e6)):
        speed = Series("Outercore", kind, "edges/s")
        memory = Series("Outercore", f"{kind} peak", "bytes resident")
        uses = []
        for _turn in range(settings.repeats):
            out = settings.work / "import-benchmark"
            shutil.rmtree(out, ignore_errors=True)
            drop_cached([folder / edges])
            command = import_command(folder, out, edges=edges, topology_only=True)
            outcome = run_limited(command)
            shutil.rmtree(out, ignore_errors=True)
            if outcome.returncode:
                speed.note = outcome.stderr[-400:]
                break
            say(f"{kind}: {outcome.wall_s:.1f} s, {outcome.peak_resident >> 20} MiB resident")
            speed.values.append(work.edges / outcome.wall_s)
            memory.values.append(float(outcome.peak_resident))
            uses.append({"read": outcome.bytes_read, "written": outcome.bytes_written})
        result.series += [speed, memory]
        result.details[kind] = uses
        goal = Series("goal", kind, "edges/s", [least])
        bound = Series("budget", f"{kind} peak", "bytes resident", [float(BUDGET + ALLOWANCE)])
        result.series += [goal, bound]
        result.compare(f"{kind}: speed over the goal", ("Outercore", kind), ("goal", kind), 1)
        result.compare(
            f"{kind}: budget over peak",
            ("budget", f"{kind} peak"),
            ("Outercore", f"{kind} peak"),
            1,
        )
    return result
