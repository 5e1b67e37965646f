"""The outputs of a network for all nodes, layer by layer. Prints one JSON line.

    python benchmarks/workers/infer.py PROGRAM DATASET [--memory 512MiB] [--layers 2]
        [--hidden 64] [--model sage] [--seconds S] [--check FILE]

`outercore` uses the code of `outercore predict`, within `--memory`. `memory` has features and edges
in memory and runs each layer of the same network for all nodes at once. `memmap` gathers the
neighbours of 8,192 nodes at a time from `np.memmap` and runs the same layer over them. It writes
the states of a layer to a file and maps the file for the next layer. `before` does the same with
Outercore's loader, within `--memory`. `memmap` and `before` stop after `--seconds`, and print their
progress. `--check` writes the outputs of the first nodes.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import outercore as oc
from outercore.base.sizes import parse_size
from outercore.files.large_arrays import mapped
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest
from outercore.training.config import ModelConfig
from outercore.training.models import Hop, build_model
from outercore.training.streamed.exact import Exact
from outercore.training.streamed.network import Input, network_steps
from outercore.training.work import in_degrees

BATCH = 8192
LOADED = 256
"""Nodes per batch of the loader. Nodes of high degree have so many arcs that few more nodes fit."""
CHECKED = 1000


def network(options, graph):
    """A network with the same weights for every program."""
    torch.manual_seed(0)
    config = ModelConfig(kind=options.model, hidden=options.hidden, heads=2, dropout=0.0)
    model = build_model(config, options.layers, graph.num_features, graph.num_classes).eval()
    degrees = None
    if model.needs_degrees:
        degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
    return model, degrees


def checked(parts):
    """The outputs of the first nodes, for `--check`."""
    return np.concatenate(parts)[:CHECKED] if parts else np.empty((0, 0))


def outercore(options, graph, model, degrees):
    """Stream all nodes within a budget."""
    exact = Exact(
        graph, network_steps(model, Input(lambda x, _: x, "nodes/node/x"), degrees), None,
        device=torch.device("cpu"), observer=Observer(), stop=StopRequest(),
    )  # fmt: skip
    exact.plan(parse_size(options.memory))
    done, outputs = 0, []
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        for some, logits in exact.outputs(Path(scratch)):
            done += len(some)
            if done <= CHECKED + 4096:
                outputs.append(logits.numpy().copy())
    moved = vars(exact.moved)
    moved["in_memory"] = [plan.in_memory for plan in exact._plans]
    moved["parts"] = [len(plan.parts["node"]) for plan in exact._plans]
    return {"nodes": done, "moved": moved}, checked(outputs)


def memory(options, graph, model, degrees):
    """Compute each layer at once, with all data in memory."""
    entry = graph.arrays["nodes/node/x"]
    x = torch.from_numpy(np.fromfile(
        Path(graph.root) / entry["file"], np.float32, offset=entry["data_offset"]
    ).reshape(entry["shape"]))  # fmt: skip
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    sources = torch.from_numpy(graph.array("edges/edge/sources").astype(np.int64))
    targets = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), np.diff(offsets)))
    hop = Hop(
        torch.stack([sources, targets]), graph.num_nodes, torch.arange(graph.num_nodes), degrees
    )
    hop.arcs.incoming  # noqa: B018 - the matrix is built before the time counts
    begun, busy = time.perf_counter(), time.process_time()
    state = x
    for index in range(model.layers):
        state = model.layer(index, state, hop)
    took = {"compute_s": time.perf_counter() - begun, "compute_cpu_s": time.process_time() - busy}
    return {"nodes": graph.num_nodes, **took}, state[:CHECKED].numpy()


def memmap(options, graph, model, degrees):
    """Gather from mapped files."""
    offsets, sources, state = (
        mapped(graph.root, graph.arrays[key])
        for key in ("edges/edge/offsets", "edges/edge/sources", "nodes/node/x")
    )
    begun, done, read = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        for index in range(model.layers):
            path = Path(scratch) / f"layer-{index}"
            after = np.memmap(path, np.float32, "w+", shape=(len(state), model.width(index)))
            for first in range(0, len(state), BATCH):
                last = min(first + BATCH, len(state))
                bounds = offsets[first : last + 1].astype(np.int64)
                ids = sources[bounds[0] : bounds[-1]].astype(np.int64)
                distinct, places = np.unique(ids, return_inverse=True)
                own = np.arange(first, last)
                rows = torch.from_numpy(np.concatenate([state[own], state[distinct]]))
                read += rows.nbytes
                targets = np.repeat(own - first, np.diff(bounds))
                edges = np.stack([places + len(own), targets])
                nodes = torch.from_numpy(np.concatenate([own, distinct]))
                some = None if degrees is None else degrees[nodes]
                hop = Hop(torch.from_numpy(edges), len(own), nodes, some)
                after[first:last] = model.layer(index, rows, hop).numpy()
                done += len(own)
                if time.perf_counter() - begun > options.seconds:
                    return {"nodes": done / model.layers, "gathered": read}, checked([])
            state = after
        return {"nodes": done / model.layers, "gathered": read}, np.array(state[:CHECKED])


def before(options, graph, model, degrees):
    """Compute layer by layer with Outercore's loader, instead of streaming."""
    loader_options = {
        "batch_size": LOADED, "memory": options.memory, "labels": None, "arrays": (),
        "edge_ids": False, "hotness": "in_degree", "threads": options.threads,
    }  # fmt: skip
    begun, done, features = time.perf_counter(), 0, "x"
    reads = []
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        for index in range(model.layers):
            path = Path(scratch) / f"layer-{index}.npy"
            after = np.lib.format.open_memmap(
                path, "w+", np.float32, (graph.num_nodes, model.width(index))
            )
            first = 0
            with oc.NeighborLoader(graph, [-1], features=features, **loader_options) as loader:
                for batch in loader:
                    some = None if degrees is None else degrees[batch.n_id]
                    hop = Hop(batch.edge_index, batch.batch_size, batch.n_id, some)
                    state = model.layer(index, batch.x, hop).numpy()
                    after[first : first + len(state)] = state
                    first += len(state)
                    done += len(state)
                    if time.perf_counter() - begun > options.seconds:
                        break
                counters = loader.counters()["counters"]
            reads.append({"nodes": first, "bytes": counters["feature_reads"]["bytes"]})
            if time.perf_counter() - begun > options.seconds:
                break
            features = str(path)
        return {"nodes": done / model.layers, "reads": reads}, checked([])


PROGRAMS = {program.__name__: program for program in (outercore, memory, memmap, before)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", choices=PROGRAMS)
    parser.add_argument("dataset")
    parser.add_argument("--memory", default="1GiB")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--scratch", default=None)
    parser.add_argument("--check", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    graph = oc.open(options.dataset)
    model, degrees = network(options, graph)
    begun, busy = time.perf_counter(), time.process_time()
    with torch.no_grad():
        result, outputs = PROGRAMS[options.program](options, graph, model, degrees)
    result["seconds"] = time.perf_counter() - begun
    result["cpu_s"] = time.process_time() - busy
    if options.check is not None:
        np.save(options.check, outputs)
    print(json.dumps({"program": options.program, **result}))


if __name__ == "__main__":
    main()
