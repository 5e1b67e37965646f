"""Partitions rank as everything in memory does, and say where they are expected not to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import outercore as oc
from outercore.embedding.config import EmbedConfig
from outercore.embedding.forecast import plan
from outercore.importing.build.triples import TripleOptions, import_triples
from outercore.runs.progress import Observer

ENTITIES, RELATIONS, TRIPLES = 1_600, 4, 24_000


class Notes(Observer):
    """Remembers what a run says."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Triples whose tails have the best planted ComplEx scores, a twentieth each held out."""
    root = tmp_path_factory.mktemp("planted")
    random = np.random.default_rng(7)

    def unit(count: int) -> NDArray[np.complex128]:
        return np.exp(2j * np.pi * random.random((count, 3)))

    entities, relations = unit(ENTITIES), unit(RELATIONS)
    heads = random.integers(ENTITIES, size=TRIPLES)
    kinds = random.integers(RELATIONS, size=TRIPLES)
    scores = ((entities[heads] * relations[kinds]) @ entities.conj().T).real
    scores += 0.2 * random.gumbel(size=scores.shape)
    rows = np.unique(np.stack([heads, kinds, scores.argmax(1)], axis=1), axis=0)
    rows = random.permutation(rows)
    ends = [len(rows) // 20, len(rows) // 10]
    files = {name: root / f"{name}.tsv" for name in ("valid", "test", "train")}
    for file, part in zip(files.values(), np.split(rows, ends), strict=True):
        np.savetxt(file, part, fmt="%d\t%d\t%d")
    options = TripleOptions(memory="16MiB", unknown="drop")
    held_out = {"valid": files["valid"], "test": files["test"]}
    import_triples(files["train"], root / "set", **held_out, options=options)
    return root / "set"


def options(**budget: Any) -> dict[str, Any]:
    return {
        "model": {"kind": "complex", "dim": 32},
        "negatives": {"count": 200},
        "optimiser": {"epochs": 8, "batch_size": 400, "chunk_size": 400, "validate_every": 8},
        "budget": {"threads": 1, "memory": "256MiB", **budget},
    }


def test_three_of_sixteen_partitions_rank_as_everything_in_memory(
    planted: Path, tmp_path: Path
) -> None:
    found = {
        partitions: oc.embed(
            planted,
            options(partitions=partitions, slots=3 if partitions > 1 else 0),
            out=tmp_path / f"run-{partitions}",
        ).mrr
        for partitions in (1, 16)
    }
    assert found[1] > 0.1
    assert found[16] > found[1] - 0.02, found


def test_a_run_warns_as_its_plan_does(planted: Path, tmp_path: Path) -> None:
    few = options(partitions=48, slots=3)
    few["optimiser"]["epochs"] = 1
    notes = Notes()
    oc.embed(planted, few, out=tmp_path / "run", observer=notes)
    warning = next(note for note in notes.notes if note.startswith("warning: "))
    rates: dict[str, Any] = {
        "triples_per_second": 1e6,
        "read_bandwidth": 1e9,
        "write_bandwidth": 1e9,
    }
    assert plan(planted, EmbedConfig.from_dict(few), **rates)["warning"] == warning
    assert "6.2% of the entities" in warning
