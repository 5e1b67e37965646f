"""The definition of sampling against published vectors and against frozen results.

``python tests/python/test_reference.py`` writes the frozen results again; the Rust sampler is
compared with the same file. They are never to change: a seed keeps its meaning.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reference import (
    ReferenceBatch,
    batch_seeds,
    below,
    permutation_at,
    philox,
    pick,
    sample_batch,
    stream_key,
    uniform,
)

FROZEN = Path(__file__).parent.parent / "data" / "sampling.json"


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_vectors_that_random123_publishes(
    counter: list[int], key: list[int], expected: list[int]
) -> None:
    assert philox(counter, key) == expected


@pytest.mark.parametrize("length", [1, 2, 3, 17, 64, 300])
def test_a_permutation_visits_every_element_once(length: int) -> None:
    order = [permutation_at(index, length, 11, 1) for index in range(length)]
    assert sorted(order) == list(range(length))


def test_shuffled_batches_cover_the_input_in_another_order_each_epoch() -> None:
    nodes = np.arange(100, 150)
    epochs = [
        np.concatenate(
            [batch_seeds(nodes, b, 16, shuffle=True, seed=3, epoch=epoch) for b in range(4)]
        )
        for epoch in range(2)
    ]
    for order in epochs:
        assert sorted(order) == nodes.tolist()
    assert (epochs[0] != epochs[1]).any()


def test_batches_in_order_are_slices_and_the_last_one_is_smaller() -> None:
    nodes = np.array([5, 3, 9, 9, 1])
    batches = [batch_seeds(nodes, b, 2, shuffle=False, seed=0, epoch=0) for b in range(3)]
    assert [batch.tolist() for batch in batches] == [[5, 3], [9, 9], [1]]


def test_picks_are_even_over_the_places_of_a_column() -> None:
    counts: Counter[int] = Counter()
    for node in range(4000):
        counts.update(pick(uniform((1, 2), 0, 0, node), 10, 4, replace=False))
    assert all(abs(counts[place] - 1600) < 200 for place in range(10)), counts


def test_a_path_is_walked_one_node_a_hop() -> None:
    batch = sample_batch(
        np.array([0, 0, 1, 2, 3]),
        np.array([0, 1, 2]),
        np.array([7, 8, 9]),
        np.array([3, 1]),
        [1, -1],
        replace=False,
        seed=0,
        epoch=0,
        batch=0,
    )
    assert batch.n_id.tolist() == [3, 1, 2, 0]
    assert (batch.row.tolist(), batch.col.tolist()) == ([2, 3, 1], [0, 1, 2])
    assert batch.e_id.tolist() == [9, 7, 8]
    assert batch.num_sampled_nodes == [2, 2, 0]
    assert batch.num_sampled_edges == [2, 1]


def test_the_frozen_results_are_those_of_today() -> None:
    assert json.loads(FROZEN.read_text()) == frozen()


def frozen() -> dict[str, Any]:
    """Draws, permutations and batches of a small graph with hubs, loops and isolated nodes."""
    words = {}
    for seed, epoch, batch, hop, node in [
        (0, 0, 0, 0, 0),
        (7, 3, 5, 1, 42),
        (2**64 - 1, 2**40, 2**32 + 1, 300, 2**33 + 5),
    ]:
        draws = uniform(stream_key(seed, epoch), batch, hop, node)
        words[f"{seed} {epoch} {batch} {hop} {node}"] = [f"{next(draws):016x}" for _ in range(5)]
    permutations = {
        f"{length} {seed} {epoch}": [
            permutation_at(i, length, seed, epoch) for i in range(min(length, 12))
        ]
        for length, seed, epoch in [(1, 0, 0), (12, 5, 1), (1000, 2**63, 2), (2**40, 9, 0)]
    }
    draws = uniform(stream_key(1, 1), 0, 0, 0)
    edges = sorted(
        (below(next(draws), 6) * below(next(draws), 9), below(next(draws), 48), edge)
        for edge in range(300)
    )
    offsets = np.searchsorted([target for target, _, _ in edges], np.arange(49)).tolist()
    sources = [source for _, source, _ in edges]
    ids = [edge for _, _, edge in edges]
    cases = []
    for case in [
        {"fan_outs": [], "replace": False, "seed": 1, "epoch": 0, "batch": 0, "seeds": [4, 4]},
        {"fan_outs": [-1], "replace": True, "seed": 2, "epoch": 0, "batch": 1, "seeds": [8, 0, 8]},
        {"fan_outs": [3, 2], "replace": False, "seed": 3, "epoch": 1, "batch": 2, "seeds": [0, 6]},
        {"fan_outs": [2, 5, 1], "replace": True, "seed": 4, "epoch": 2, "batch": 3, "seeds": [9]},
        {"fan_outs": [20], "replace": False, "seed": 5, "epoch": 3, "batch": 9, "seeds": [0]},
        {"fan_outs": [0, 4], "replace": False, "seed": 6, "epoch": 0, "batch": 0, "seeds": [2]},
        {
            "fan_outs": [4, -1, 3],
            "replace": False,
            "seed": 2**64 - 1,
            "epoch": 4,
            "batch": 2**32 - 1,
            "seeds": [47, 12, 30, 0],
        },
    ]:
        batch = sample_batch(
            np.array(offsets),
            np.array(sources),
            np.array(ids),
            np.array(case["seeds"]),
            case["fan_outs"],  # type: ignore[arg-type]
            **{name: case[name] for name in ("replace", "seed", "epoch", "batch")},  # type: ignore[arg-type]
        )
        cases.append({**case, "expected": as_lists(batch)})
    return {
        "words": words,
        "permutations": permutations,
        "graph": {"offsets": offsets, "sources": sources, "ids": ids},
        "batches": cases,
    }


def as_lists(batch: ReferenceBatch) -> dict[str, list[int]]:
    return {name: [int(value) for value in values] for name, values in vars(batch).items()}


if __name__ == "__main__":
    FROZEN.write_text(json.dumps(frozen(), indent=None, separators=(",", ":")) + "\n")
