"""Sampled edges a second, all in memory: DGL 2.1's two samplers and Outercore."""

from __future__ import annotations

from measure import Result, Series, Settings, python, repeated

from benches.inputs import dgl_set, product_set

WHAT = (
    "Sampled edges a second on the R-MAT graph, fan-out 15,10 without replacement, batches of "
    "1,024 seeds, sampled nodes made unique and numbered, topology in memory, the same number "
    "of threads; the best epoch of three in each run."
)
EPOCHS = 3
# OpenMP's threads spin while they wait for each other. Where anything else wants a core, DGL loses
# nine tenths of its speed to that; told to wait passively it does not, so both are measured.
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
PEERS = (
    ("DGL 2.1 GraphBolt", "peers/dgl_ondisk.py", {}),
    ("DGL 2.1 GraphBolt, passive waiting", "peers/dgl_ondisk.py", PASSIVE),
    ("DGL 2.1 classic", "peers/dgl_classic.py", {}),
    ("DGL 2.1 classic, passive waiting", "peers/dgl_classic.py", PASSIVE),
)


def run(settings: Settings) -> Result:
    """Measure both samplers of DGL, and Outercore."""
    result = Result("sampling", WHAT)
    options = ("--epochs", EPOCHS, "--threads", settings.threads)
    prepared = dgl_set(settings, settings.dense)
    for name, script, env in PEERS:
        series = Series(name, "sampling", "edges/s")
        if prepared is not None:
            command = python(script, prepared, *options, interpreter=settings.dgl_python)
            repeated(series, settings, command, _edges, env=env)
        result.series.append(series)
    ours = product_set(settings, settings.dense)
    series = Series("Outercore", "sampling", "edges/s")
    command = python(
        "workers/load_outercore.py", ours, "--no-features", "--memory", "4GiB",
        "--topology", "resident", *options,
    )  # fmt: skip
    result.details["outercore"] = repeated(series, settings, command, _edges)
    result.series.append(series)
    for peer, _, _ in PEERS:
        result.compare(f"Outercore / {peer}", ("Outercore", "sampling"), (peer, "sampling"), 10)
    return result


def _edges(printed: dict) -> float:
    return max(one["edges"] / one["seconds"] for one in printed["epochs"])
