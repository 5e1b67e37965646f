"""The effect of partitions on quality: the same training in memory, and in 4, 16, 48 partitions.

    python benchmarks/benches/embed_partitions.py [--sets CASE ...] [--partitions 1 4 16 48]
        [--seed N] [--threads N] [--data DIR] [--work DIR] [--json]

Three partitions are in memory at a time; the program chooses swaps, walks and groups. `planted` is
a graph of the size of CoDEx-M, drawn from a model with a fixed random seed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from adapters import data_root
from limits import run_limited
from measure import HERE, REPOSITORY, Result, Series, Settings, Target, markdown, say, write_results
from product import command

from benches.embed_quality import data_set

WHAT = (
    "Filtered mean reciprocal rank on the test part among all entities, one run each. Partitions: "
    "3 of them in memory; the loss is against the same training in memory, .01 is allowed."
)
SLOTS = 3
ALLOWED = 0.01

CASES = {
    "planted": "--epochs 6 --set optimiser.validate_every=6",
    "codex-s": "--recipe complex-codex-s --dim 200",
    "fb15k-237": "--recipe complex-fb15k-237 --dim 200 --negatives 500 --epochs 10",
    "wn18": "--recipe complex-wn18 --dim 200 --negatives 500",
}
"""Options of `outercore embed` by data set. Rows are smaller than in the recipes, so that runs take
minutes."""


@dataclass(frozen=True)
class Planted:
    """A graph with types of entities, entities of high degree, and triples by ComplEx scores."""

    entities: int = 17_050
    relations: int = 51
    triples: int = 206_205
    """Triples of all parts; as in CoDEx-M, a twentieth each is for validation and test."""
    rank: int = 8
    types: int = 60
    among: int = 48
    """Number of entities from which the tail of a head is chosen."""
    sharpness: float = 4.0
    """Weight of the score in this choice, relative to chance."""
    seed: int = 0

    def draw(self) -> NDArray[np.int64]:
        """Distinct triples in random order, int64 [triples, 3]."""
        random = np.random.default_rng(self.seed)
        sizes = 1.0 / np.arange(1, self.types + 1) ** 1.2
        kinds = random.choice(self.types, size=self.entities, p=sizes / sizes.sum())
        members = [np.flatnonzero(kinds == kind) for kind in range(self.types)]
        entities, relations = (
            np.exp(2j * np.pi * random.random((count, self.rank), np.float32))
            for count in (self.entities, self.relations)
        )
        activity = random.pareto(2.0, self.entities) + 0.3
        fame = random.pareto(0.7, self.entities) + 0.3
        share = 1.0 / np.arange(4, self.relations + 4)
        large = np.sqrt([len(some) for some in members])
        large /= large.sum()
        drawn = []
        for relation in range(self.relations):
            count = int(share[relation] / share.sum() * self.triples * 2.5)
            heads = np.concatenate(
                [members[kind] for kind in random.choice(self.types, 3, replace=False, p=large)]
            )
            # Most tails are of a small type, like countries or languages.
            tails = members[random.choice(self.types, p=large if relation % 4 == 3 else None)]
            chosen = random.choice(heads, count, p=activity[heads] / activity[heads].sum())
            weights = fame[tails] / fame[tails].sum()
            places = random.choice(len(tails), (count, self.among), p=weights)
            queries = entities[chosen] * relations[relation]
            scores = np.concatenate(
                [
                    np.einsum("nd,ncd->nc", some, entities[tails[among]].conj()).real
                    for some, among in _pieces(queries, places)
                ]
            )
            scores = self.sharpness * scores / np.sqrt(self.rank / 2)
            best = (scores + random.gumbel(size=scores.shape)).argmax(1)
            answers = tails[places[np.arange(count), best]]
            triples = np.stack([chosen, np.full(count, relation), answers], axis=1)
            drawn.append(np.unique(triples, axis=0))
        every = np.concatenate(drawn)
        return every[random.permutation(len(every))][: self.triples]


def _pieces(
    queries: NDArray[np.complex128], places: NDArray[np.int64], step: int = 4096
) -> list[tuple[NDArray[np.complex128], NDArray[np.int64]]]:
    starts = range(0, len(queries), step)
    return [(queries[first : first + step], places[first : first + step]) for first in starts]


def planted(work: Path) -> Path:
    """The data set of the planted graph, created once."""
    out = work / "embed" / "planted.outercore"
    if (out / "graph.json").exists():
        return out
    say("drawing planted")
    files = work / "embed" / "planted"
    files.mkdir(parents=True, exist_ok=True)
    triples = Planted().draw()
    held_out = len(triples) // 20
    parts = np.split(triples, [held_out, 2 * held_out])
    for name, part in zip(("valid", "test", "train"), parts, strict=True):
        np.savetxt(files / f"{name}.tsv", part, fmt="%d\t%d\t%d")
    arguments: list[object] = [files / "train.tsv", "--triples", "--unknown", "drop"]
    arguments += ["--valid", files / "valid.tsv", "--test", files / "test.tsv"]
    run_limited(command("import", *arguments, "--out", out)).check()
    shutil.rmtree(files)
    return out


@dataclass(frozen=True)
class Options:
    """The runs, and their directories."""

    cases: Sequence[str]
    partitions: Sequence[int]
    seed: int
    work: Path
    data: Path
    threads: int


def run(settings: Settings) -> Result:
    """Run every case; with `--quick`, only the smallest case with 16 partitions."""
    return measured(
        Options(
            cases=["codex-s"] if settings.quick else list(CASES),
            partitions=[1, 16] if settings.quick else [1, 4, 16, 48],
            seed=0,
            work=settings.work,
            data=data_root(),
            threads=settings.threads,
        )
    )


def measured(options: Options) -> Result:
    """Trains every case in memory and in partitions."""
    result = Result("embed-partitions", WHAT)
    for name in options.cases:
        in_memory = None
        for partitions in options.partitions:
            score, how = train(name, partitions, options)
            where = "in memory" if partitions == 1 else f"{partitions} partitions"
            result.series.append(Series(where, name, "MRR", [score], note=how))
            if partitions == 1:
                in_memory = score
            elif in_memory is not None:
                label = f"{name}, {where}: {score:.4f}, in memory {in_memory:.4f}"
                result.targets.append(Target(label, score, in_memory - ALLOWED))
    return result


def train(name: str, partitions: int, options: Options) -> tuple[float, str]:
    """A run in a separate process: its score, and a description of its walks over partitions."""
    work = options.work
    graph = planted(work) if name == "planted" else data_set(name, work, options.data)
    out = work / "runs" / f"{name}-{partitions}"
    shutil.rmtree(out, ignore_errors=True)
    arguments: list[object] = ["--memory", "1GiB", "--seed", options.seed]
    arguments += ["--set", f"budget.threads={options.threads}"]
    arguments += ["--set", f"budget.partitions={partitions}"]
    if partitions > 1:
        arguments += ["--set", f"budget.slots={SLOTS}"]
    outcome = run_limited(
        command("embed", graph, *CASES[name].split(), *arguments, "--out", out),
        env={"OMP_NUM_THREADS": str(options.threads)},
    ).check()
    figures = json.loads((out / "embedding.json").read_text())["metrics"]
    budget = json.loads((out / "record.json").read_text())["config"]["budget"]
    shutil.rmtree(out)
    score = next(figure for figure in figures if figure["part"] == "test")["filtered"]["mrr"]
    how = f"{outcome.wall_s:.0f} s"
    if partitions > 1:
        how += f", {budget['swap']}, {budget['sweeps']} walks, {budget['group']} parts"
    say(f"{name}, {partitions} partitions: MRR {score:.4f}, {how}")
    return score, how


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 if partitions lose more quality than allowed."""
    cache = Path(os.environ.get("OUTERCORE_BENCH_DIR", REPOSITORY / ".cache" / "bench"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--partitions", nargs="+", type=int, default=[1, 4, 16, 48])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--work", type=Path, default=cache)
    parser.add_argument("--data", help="the data library")
    parser.add_argument("--json", action="store_true")
    parsed = parser.parse_args(arguments)
    result = measured(
        Options(
            cases=parsed.sets,
            partitions=parsed.partitions,
            seed=parsed.seed,
            work=parsed.work.resolve(),
            data=data_root(parsed.data),
            threads=parsed.threads,
        )
    )
    path = write_results([result], HERE / "results")
    print(path.read_text() if parsed.json else markdown([result]))
    say(f"written: {path}")
    return 1 if any(target.met is False for target in result.targets) else 0


if __name__ == "__main__":
    sys.exit(main())
