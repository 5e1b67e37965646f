"""Run the side-by-side benchmarks and write their tables.

    python benchmarks/run.py [loading] [sampling] [fetch] [import] [epoch] [accumulator] [plan]
        [analytics] [far] [far_swap] [embed-quality] [embed-partitions]
        [embed_speed] [embed_disk] [embed_scale] [updates] [kills] [serving]
        [scheduling] [exchanges] [layouts] [int8] [policies] [inference]
        [--quick] [--json] [--repeats N] [--work DIR] [--scale N] [--rounds N]
        [--dgl-python PATH] [--peers-python PATH] [--kge-python PATH]
        [--stores-python PATH] [--fastapi DIR] [--load PROGRAM] [--replay PROGRAM]

Without names, all benchmarks run. Results are written to `benchmarks/results/` as JSON and
Markdown. The Markdown, or with `--json` the JSON, is also printed. `--quick` uses a small graph and
one run: it tests the scripts, and its numbers are not meaningful.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from measure import HERE, REPOSITORY, Settings, markdown, say, write_results

BENCHES = {
    "loading": "benches.loading",
    "sampling": "benches.sampling",
    "typed": "benches.typed",
    "fetch": "benches.fetch",
    "import": "benches.imports",
    "epoch": "benches.epoch",
    "accumulator": "benches.accumulator",
    "plan": "benches.plan",
    "device": "benches.device",
    "analytics": "benches.analytics",
    "far": "benches.far",
    "far_swap": "benches.far_swap",
    "embed-quality": "benches.embed_quality",
    "embed-partitions": "benches.embed_partitions",
    "embed_speed": "benches.embed_speed",
    "embed_disk": "benches.embed_disk",
    "embed_scale": "benches.embed_scale",
    "updates": "benches.updates",
    "kills": "benches.kills",
    "serving": "benches.serving",
    "scheduling": "benches.scheduling",
    "exchanges": "benches.exchanges",
    "layouts": "benches.layouts",
    "policies": "benches.policies",
    "int8": "benches.int8",
    "inference": "benches.inference",
}


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns 1 if a benchmark could not run."""
    cache = Path(os.environ.get("OUTERCORE_BENCH_DIR", REPOSITORY / ".cache" / "bench"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--quick", action="store_true", help="small graph, one run")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="bound for slow programs")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--work", type=Path, default=cache, help="inputs and data sets")
    parser.add_argument(
        "--dgl-python",
        type=Path,
        default=Path(
            os.environ.get("OUTERCORE_DGL_PYTHON", REPOSITORY / ".cache" / "dgl/bin/python")
        ),
    )
    parser.add_argument(
        "--peers-python",
        type=Path,
        default=Path(
            os.environ.get("OUTERCORE_PEERS_PYTHON", REPOSITORY / ".cache" / "peers/bin/python")
        ),
    )
    parser.add_argument(
        "--kge-python",
        type=Path,
        default=Path(
            os.environ.get("OUTERCORE_KGE_PYTHON", REPOSITORY / ".cache" / "kge/bin/python")
        ),
    )
    parser.add_argument(
        "--stores-python",
        type=Path,
        default=Path(
            os.environ.get("OUTERCORE_STORES_PYTHON", REPOSITORY / ".cache" / "stores/bin/python")
        ),
    )
    parser.add_argument(
        "--fastapi",
        type=Path,
        default=Path(os.environ.get("OUTERCORE_FASTAPI", REPOSITORY / ".cache" / "fastapi")),
    )
    parser.add_argument(
        "--load",
        type=Path,
        default=Path(os.environ.get("OUTERCORE_LOAD", REPOSITORY / "target/release/examples/load")),
        help="load generator of `updates`, `serving` and `scheduling`",
    )
    parser.add_argument(
        "--replay",
        type=Path,
        default=Path(
            os.environ.get("OUTERCORE_REPLAY", REPOSITORY / "target/release/examples/replay")
        ),
        help="reads made again, for `accumulator`: example `replay` of `outercore-pipeline`",
    )
    parser.add_argument("--scale", type=int, default=22, help="2^N nodes of the served graph")
    parser.add_argument("--rounds", type=int, default=20, help="kills of each store")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(BENCHES)
    if unknown:
        parser.error(f"unknown benchmark {', '.join(sorted(unknown))}; known: {', '.join(BENCHES)}")
    settings = Settings(
        work=options.work.resolve(),
        dgl_python=options.dgl_python,
        peers_python=options.peers_python,
        kge_python=options.kge_python,
        stores_python=options.stores_python,
        fastapi=options.fastapi,
        load=options.load,
        replay=options.replay,
        scale=options.scale,
        rounds=3 if options.quick else options.rounds,
        repeats=1 if options.quick else options.repeats,
        quick=options.quick,
        threads=options.threads,
        seconds=10.0 if options.quick else options.seconds,
    )
    settings.work.mkdir(parents=True, exist_ok=True)

    results, failures = [], 0
    for name in options.names or BENCHES:
        say(f"== {name}")
        try:
            results.append(importlib.import_module(BENCHES[name]).run(settings))
        except Exception as failure:
            # A peer that cannot be set up must not lose the results of the others.
            failures += 1
            say(f"{name} did not run: {failure!r}")
    if results:
        path = write_results(results, HERE / "results")
        print(path.read_text() if options.json else markdown(results))
        say(f"written: {path}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
