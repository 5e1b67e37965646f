"""Effect of reorganisation, scheduling, grouping and caching on serving (GLIST figure 10c)."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import plotly.graph_objects as go
from limits import drop_cached, run_limited
from measure import HERE, Result, Series, Settings, python, say
from product import command
from prometheus_client.parser import text_string_to_metric_families

from benches.inputs import import_bytes
from benches.servers import Running, load, load_command, started
from benches.serving import Inputs, inputs_of

REQUESTS = 10_000
CLIENTS = 256
"""Number of clients, equal to the waiting requests that a server allows by default."""
ROOM = 64 << 20
WHAT = (
    f"{REQUESTS:,} requests about one random node each, from {CLIENTS} clients, right after the "
    "start, files not cached. N: one request after the other, rows in the order of nodes. R: rows "
    "in GLIST's order (algorithm 2). S: requests whose neighbourhoods overlap come one after the "
    "other. G: rows of all requests that wait are read together. C: an eighth of the memory keeps "
    "states after the first layer. GraphSAGE, two layers, hidden 256, fan-out 15,10, 128 float32 "
    "features a node. The memory for data is an eighth of the features."
)


@dataclass(frozen=True)
class Setting:
    """The techniques that are switched on."""

    reorganised: bool = False
    reorder: bool = False
    group: bool = False
    cache: bool = False

    def config(self, memory: int, threads: int) -> dict[str, object]:
        """Fields for `ServerConfig`."""
        return {
            "port": 0, "memory": memory, "threads": threads, "queue": 2 * CLIENTS,
            "deadline_ms": 600_000, "reorder": self.reorder, "group": 0 if self.group else 1,
            "states": memory // 8 if self.cache else 0,
        }  # fmt: skip


SETTINGS = {
    "N": Setting(),
    "R": Setting(reorganised=True),
    "RS": Setting(reorganised=True, reorder=True),
    "CG": Setting(group=True, cache=True),
    "CRS": Setting(reorganised=True, reorder=True, cache=True),
    "CGRS": Setting(reorganised=True, reorder=True, group=True, cache=True),
}


def run(settings: Settings) -> Result:
    """Measure every setting by turns."""
    inputs = inputs_of(settings)
    result = Result(
        "scheduling", f"{WHAT} {inputs.work.nodes:,} nodes, {inputs.work.edges:,} edges."
    )
    # Fails now if the load generator is missing, before a server starts.
    load_command(settings, "", "", 1, 1, 1)
    reorganised = _reorganised(settings, inputs)
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in SETTINGS}
    for turn in range(settings.repeats):
        for name, setting in SETTINGS.items():
            graph = reorganised if setting.reorganised else inputs.graph
            measured[name].append(_measure(settings, inputs, graph, setting))
            say(f"{name} turn {turn + 1}: {measured[name][-1]}")
    for name, turns in measured.items():
        for unit in turns[0]:
            result.series.append(Series(name, unit, unit, [turn[unit] for turn in turns]))
    for name in SETTINGS:
        result.compare(f"{name} over N", (name, "requests/s"), ("N", "requests/s"))
    _plot(result, HERE / "results" / "scheduling.html")
    return result


def _reorganised(settings: Settings, inputs: Inputs) -> Path:
    """The data set with a copy of its features in GLIST's order."""
    out = settings.work / f"{inputs.work.name}.glist.outercore"
    if not (out / "done").exists():
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(inputs.graph, out)
        run_limited(command("layout", out, "--order", "glist")).check()
        (out / "done").touch()
    return out


def _measure(settings: Settings, inputs: Inputs, graph: Path, setting: Setting) -> dict[str, float]:
    """Measurements of a server that is started and loaded once, by unit."""
    config = setting.config(inputs.budget, settings.threads)
    call = python("workers/serve_with.py", graph, inputs.run, json.dumps(config))
    libraries = import_bytes(sys.executable, "import outercore.serving.server")
    drop_cached([inputs.folder / "x.npy", graph])
    with started(call, inputs.budget + libraries + ROOM) as running:
        before, cpu = _counts(running), running.service.cpu_s()
        seen = load(settings, running, running.model, CLIENTS, f"{REQUESTS}x", inputs.asked)
        used, after = running.service.cpu_s() - cpu, _counts(running)
    if seen.statuses != {"200": REQUESTS}:
        raise RuntimeError(f"not every request was answered: {seen.statuses}")
    moved = {name: after[name] - before.get(name, 0.0) for name in after}
    needed = moved["outercore_rows_total"]
    return {
        "requests/s": seen.per_second,
        "CPU-ms/request": used / REQUESTS * 1e3,
        "reads/request": moved["outercore_reads_total{features}"] / REQUESTS,
        "KiB/request": moved["outercore_read_bytes_total{features}"] / REQUESTS / 1024,
        "rows/request": needed / REQUESTS,
        "rows in memory, share": moved["outercore_rows_in_memory_total"] / max(1.0, needed),
        "states kept, share": moved["outercore_states_in_memory_total"]
        / max(1.0, moved["outercore_states_total"]),
        "p99, ms": seen.p99_ms,
    }


def _counts(running: Running) -> dict[str, float]:
    """Counters of the server; counters of an array have its name in braces."""
    with urlopen(f"http://{running.address}/metrics") as answer:
        text = answer.read().decode()
    counters = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            array = sample.labels.get("array")
            counters[sample.name + (f"{{{array}}}" if array else "")] = sample.value
    counters.setdefault("outercore_reads_total{features}", 0.0)
    counters.setdefault("outercore_read_bytes_total{features}", 0.0)
    return counters


def _plot(result: Result, path: Path) -> None:
    """Plots the throughput of every setting relative to N, on a separate page."""
    base = result.median("N", "requests/s")
    ratios = [(result.median(name, "requests/s") or 0.0) / base for name in SETTINGS]
    figure = go.Figure(
        go.Bar(x=list(SETTINGS), y=ratios, text=[f"{ratio:.2f}" for ratio in ratios])
    )
    figure.update_layout(title="Requests a second over N", yaxis_title="ratio")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(path)
    say(f"plot: {path}")
