"""Train on a graph whose features are nine times larger than the budget, and serve predictions.

    python examples/demo.py [--small] [--directory demo-data]

Generates a graph with planted communities and trains two models: a network on the features only,
and GraphSAGE on features and graph. Then it serves GraphSAGE within the same budget, requests
predictions, adds a node with edges and requests a prediction for it. Prints time, reads and memory.

All steps use the public command line. Run the demo again to resume: finished steps are skipped.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUTERCORE = Path(sys.executable).with_name("outercore")
GIB = 1 << 30
MIB = 1 << 20


@dataclass(frozen=True)
class Scale:
    """The size of the graph, and the memory budgets."""

    name: str
    nodes: int
    features: int
    splits: str
    batch_size: int
    memory_mib: int
    serve_mib: int
    """Budget of the server; updates need memory in addition to predictions."""
    epochs: int

    @property
    def feature_bytes(self) -> int:
        """Size of the features on disk."""
        return self.nodes * self.features * 4


FULL = Scale(
    "full", 300_000, 1024, "0.1,0.02,0.02", batch_size=256, memory_mib=128, serve_mib=128, epochs=5
)
SMALL = Scale(
    "small", 30_000, 1024, "0.1,0.02,0.02", batch_size=32, memory_mib=14, serve_mib=16, epochs=3
)

MOST_SHOWN = 160
"""Most characters of a request to print."""

MODELS = {"mlp": "features alone", "sage": "GraphSAGE"}


def main() -> None:
    """Generate the graph, train both models, report, and serve."""
    arguments = _arguments()
    scale = SMALL if arguments.small else FULL
    home = arguments.directory / scale.name
    started = time.monotonic()

    generate(scale, home / "graph")
    for model in MODELS:
        train(scale, home / "graph", home / model, model)
    report = home / "report.html"
    outercore("report", *(home / model for model in MODELS), "--out", report)

    summarise(scale, {model: _record(home / model) for model in MODELS})
    serve(scale, home / "graph", home / "sage")
    print(f"\nreport: {report}")
    print(f"that took {time.monotonic() - started:.0f} s; `rm -r {home}` frees the space")


def generate(scale: Scale, graph: Path) -> None:
    """Generate the graph, unless it exists."""
    if (graph / "graph.json").exists():
        print(f"{graph} is there already")
        return
    # Without a manifest, the directory is the rest of an interrupted run.
    shutil.rmtree(graph, ignore_errors=True)
    outercore(
        *("generate", "planted", "--out", graph),
        *("--nodes", scale.nodes, "--degree", 12, "--classes", 16),
        *("--features", scale.features, "--splits", scale.splits, "--seed", 1),
    )


def train(scale: Scale, graph: Path, run: Path, model: str) -> None:
    """Train a model, or resume an interrupted run."""
    if _record(run).get("status") == "finished":
        print(f"{run} is finished already")
        return
    if (run / "config.json").exists():
        outercore("train", "--resume", run)
        return
    outercore(
        *("train", graph, "--model", model, "--out", run),
        *("--fanout", "5,3", "--batch-size", scale.batch_size, "--hidden", 64),
        *("--epochs", scale.epochs, "--set", "run.validation=sampled"),
        *("--memory", f"{scale.memory_mib}MiB"),
    )


def summarise(scale: Scale, records: dict[str, dict[str, Any]]) -> None:
    """Print accuracy, reads and memory of both runs."""
    times = scale.feature_bytes / (scale.memory_mib * MIB)
    print(
        f"\n{scale.nodes:,} nodes, {scale.feature_bytes / GIB:.2f} GiB of features; "
        f"budget {scale.memory_mib} MiB, {times:.1f} times less"
    )
    print(f"PyTorch alone, without any data, takes {_idle_memory() / MIB:,.0f} MiB\n")
    print(f"{'':<16}{'accuracy':>10}{'read per epoch':>20}{'hits':>8}{'peak memory':>14}")
    for model, title in MODELS.items():
        record = records[model]
        accuracy = record["result"]["scores"]["test"]
        print(
            f"{title:<16}{accuracy:>10.1%}{_read_per_epoch(record):>20}"
            f"{_hit_ratio(record):>8.0%}{record['peak_memory_bytes'] / MIB:>10,.0f} MiB"
        )


def serve(scale: Scale, graph: Path, run: Path) -> None:
    """Serve a trained model, request predictions and change the graph."""
    memory = f"{scale.serve_mib}MiB"
    words = ["serve", str(graph), "--model", str(run), "--memory", memory, "--updates"]
    words += ["--most-nodes", str(scale.batch_size), "--port", "0", "--json"]
    print(f"\n$ outercore {' '.join(words)}", flush=True)
    with subprocess.Popen([OUTERCORE, *words], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline() or "{}")
            if "url" not in ready:
                sys.exit(server.wait() or 1)
            started = time.monotonic()
            client = Client(ready["url"], ready["model"])
            client.ask([7, 9])
            took = time.monotonic() - started
            print(f"answered in {took * 1000:.1f} ms, within {memory}")
            change(scale, client)
        finally:
            server.terminate()


def change(scale: Scale, client: Client) -> None:
    """Add a node with edges and predict it, then replace its edges and predict it again."""
    nodes = list(range(min(scale.batch_size, 256)))
    by_class: dict[int, list[int]] = {}
    for node, predicted in zip(nodes, client.ask(nodes, quiet=True), strict=True):
        by_class.setdefault(predicted, []).append(node)
    first, second = sorted(by_class.values(), key=len, reverse=True)[:2]

    print(f"\nadd a node whose neighbours are predicted as class {_class(by_class, first)}")
    new: object = {"new": 0}
    add = {"op": "add_node", "values": {"x": [0.0] * scale.features}}
    answer = client.update(
        [add, *({"op": "add_edge", "source": node, "target": new} for node in first)]
    )
    added = answer["results"][0]["node"]
    client.ask([added], min_lsn=answer["lsn"])

    print(f"\ngive it neighbours of class {_class(by_class, second)} instead")
    remove = [{"op": "remove_edge", "source": node, "target": added} for node in first]
    edges = [{"op": "add_edge", "source": node, "target": added} for node in second]
    answer = client.update([*remove, *edges])
    client.ask([added], min_lsn=answer["lsn"])


def _class(by_class: dict[int, list[int]], nodes: list[int]) -> int:
    return next(known for known, members in by_class.items() if members is nodes)


@dataclass(frozen=True)
class Client:
    """Sends requests of the Open Inference Protocol, and updates."""

    url: str
    model: str

    def ask(self, nodes: list[int], *, quiet: bool = False, **parameters: int) -> list[int]:
        """The predicted classes."""
        ids = {"name": "node_ids", "datatype": "INT64", "shape": [len(nodes)], "data": nodes}
        body = {"inputs": [ids], "parameters": parameters}
        answer = self._post(f"/v2/models/{self.model}/infer", body, quiet=quiet)
        outputs = {output["name"]: output for output in answer["outputs"]}
        classes: list[int] = outputs["prediction"]["data"]
        chances = outputs["probability"]
        columns = chances["shape"][1]
        for place, (node, predicted) in enumerate(zip(nodes, classes, strict=True)):
            chance = chances["data"][place * columns + predicted]
            if not quiet:
                lsn = answer["parameters"]["lsn"]
                print(f"node {node}: class {predicted}, probability {chance:.2f}, at update {lsn}")
        return classes

    def update(self, updates: list[dict[str, Any]]) -> dict[str, Any]:
        """Change the graph atomically; the change is durable when the call returns."""
        return self._post("/graph/updates", {"updates": updates})

    def _post(self, path: str, body: dict[str, Any], *, quiet: bool = False) -> dict[str, Any]:
        text = json.dumps(body)
        if not quiet:
            printed = text if len(text) < MOST_SHOWN else f"{text[:MOST_SHOWN]}..."
            print(f"$ curl -s {self.url}{path} --json '{printed}'", flush=True)
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, text.encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: dict[str, Any] = json.load(answer)
        return content


def outercore(*arguments: object) -> None:
    """Run the command line and print its output."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ outercore {' '.join(words)}", flush=True)
    finished = subprocess.run([OUTERCORE, *words], check=False)
    if finished.returncode:
        sys.exit(finished.returncode)


def _record(run: Path) -> dict[str, Any]:
    path = run / "record.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return record


def _read_per_epoch(record: dict[str, Any]) -> str:
    reads = [_reads(epoch) for epoch in record["epochs"]]
    requests = sum(read["requests"] for read in reads) / len(reads)
    size = sum(read["bytes"] for read in reads) / len(reads)
    return f"{size / MIB:,.0f} MiB, {requests / 1000:,.0f} k"


def _reads(epoch: dict[str, Any]) -> dict[str, int]:
    counters = epoch["counters"]
    kinds = (counters["feature_reads"], counters["topology_reads"])
    return {name: sum(kind[name] for kind in kinds) for name in ("requests", "bytes")}


def _hit_ratio(record: dict[str, Any]) -> float:
    caches = [epoch["counters"]["cache"] for epoch in record["epochs"]]
    accesses = sum(cache["accesses"] for cache in caches)
    return 1 - sum(cache["misses"] for cache in caches) / accesses if accesses else 1.0


def _idle_memory() -> int:
    """Peak memory of a process that only imports the packages for training, in bytes."""
    code = (
        "import resource, torch, torch_geometric.nn\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    finished = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    return int(finished.stdout)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train on a graph larger than its memory budget.")
    parser.add_argument("--small", action="store_true", help="a graph for a minute, not for ten")
    parser.add_argument("--directory", type=Path, default=Path("demo-data"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
