"""Processes that share an epoch: disjoint seeds, equally many batches, nothing left out."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed, multiprocessing

import outercore as oc
import reference
from fakes import planted
from outercore.loading.ranks import require_one_process, share_of
from outercore.training import train

OPTIONS = {"seed": 3, "memory": "32MiB", "threads": 1}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted(tmp_path_factory.mktemp("planted") / "graph", nodes=600, degree=8))


def shares(kind, graph: oc.Graph, nodes, world_size: int, **options) -> list[list]:
    """All batches of an epoch, by rank."""
    return [
        list(kind(graph, [3, 2], nodes, rank=rank, world_size=world_size, **{**OPTIONS, **options}))
        for rank in range(world_size)
    ]


@pytest.mark.parametrize("kind", [oc.NeighborLoader, oc.NeighborSampler])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize(
    ("seeds", "batch_size", "world_size"),
    [(100, 10, 2), (101, 10, 2), (103, 10, 4), (7, 16, 3), (81, 20, 4), (3, 2, 3), (600, 7, 5)],
)
def test_ranks_take_every_seed_once(graph, kind, shuffle, seeds, batch_size, world_size) -> None:
    nodes = np.random.default_rng(0).permutation(graph.num_nodes)[:seeds]
    options = {"batch_size": batch_size, "shuffle": shuffle}
    alone = list(kind(graph, [3, 2], nodes, rank=0, world_size=1, **OPTIONS, **options))
    ranks = shares(kind, graph, nodes, world_size, **options)
    assert len({len(batches) for batches in ranks}) == 1
    for batches in zip(*ranks, strict=True):
        sizes = [batch.batch_size for batch in batches]
        assert 0 < min(sizes) <= max(sizes) <= min(batch_size, min(sizes) + 1)

    def places(batches) -> list[int]:
        return [int(place) for batch in batches for place in batch.input_id]

    if not shuffle:
        for rank, batches in enumerate(ranks):
            for number, batch in enumerate(batches):
                expected = reference.batch_places(
                    seeds, number, batch_size, rank=rank, world_size=world_size
                )
                assert batch.input_id.tolist() == expected
    together = [place for batches in ranks for place in places(batches)]
    assert sorted(together) == sorted(places(alone)) == list(range(seeds))
    for batches in ranks:
        for batch in batches:
            np.testing.assert_array_equal(nodes[batch.input_id], batch.n_id[: batch.batch_size])


def test_full_batches_are_those_of_one_process_in_turn(graph: oc.Graph) -> None:
    options = {"batch_size": 16, "shuffle": True, "drop_last": True}
    alone = list(oc.NeighborLoader(graph, [3, 2], rank=0, world_size=1, **OPTIONS, **options))
    ranks = shares(oc.NeighborLoader, graph, None, 3, **options)
    assert len(ranks[0]) == 600 // 16 // 3
    for rank, batches in enumerate(ranks):
        for number, batch in enumerate(batches):
            expected = alone[number * 3 + rank]
            assert torch.equal(batch.n_id, expected.n_id)
            assert torch.equal(batch.edge_index, expected.edge_index)
            assert torch.equal(batch.input_id, expected.input_id)


def test_a_rank_goes_on_in_the_middle_of_its_epoch(graph: oc.Graph) -> None:
    options = {"batch_size": 16, "shuffle": True, "rank": 1, "world_size": 2}
    loader = oc.NeighborLoader(graph, [3, 2], **OPTIONS, **options)
    whole = [batch.n_id.tolist() for batch in loader]
    loader.set_epoch(0)
    loader.seek(5)
    assert [batch.n_id.tolist() for batch in loader] == whole[5:]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rank": 1}, "rank=1, world_size=None: expected both or neither"),
        ({"world_size": 2}, "rank=None, world_size=2: expected both or neither"),
        ({"rank": 2, "world_size": 2}, "rank 2 of 2 processes, expected 0 to 1"),
        ({"rank": -1, "world_size": 2}, "rank -1 of 2 processes"),
        ({"rank": 0, "world_size": 7, "batch_size": 9}, "6 seeds for 7 ranks, .*at least one"),
        ({"rank": 0, "world_size": 4, "batch_size": 1}, "in batches of 1 leave 2 for 4 ranks"),
    ],
)
def test_shares_that_cannot_be_are_refused(graph: oc.Graph, options, text) -> None:
    for kind in (oc.NeighborLoader, oc.NeighborSampler):
        with pytest.raises(oc.InvalidError, match=text):
            kind(graph, [2], np.arange(6), **options)


def test_with_drop_last_too_few_seeds_are_no_batches(graph: oc.Graph) -> None:
    loader = oc.NeighborLoader(
        graph, [2], [3, 1], rank=3, world_size=4, batch_size=2, drop_last=True
    )
    assert len(loader) == 0
    assert list(loader) == []


def in_a_group(rank: int, world_size: int, place: str, path: str, out: str) -> None:
    before = oc.NeighborLoader(path, [3, 2], "train", batch_size=16, shuffle=True, **OPTIONS)
    frozen = len(before)
    distributed.init_process_group(
        "gloo", init_method=f"file://{place}", rank=rank, world_size=world_size
    )
    # Made before the group or after it: both take the share of the rank.
    after = oc.NeighborSampler(path, [3, 2], "train", batch_size=16, shuffle=True, **OPTIONS)
    assert len(before) == len(after) < frozen
    assert before.config["world_size"] == world_size
    seeds = [batch.n_id[: batch.batch_size].tolist() for batch in before]
    assert seeds == [batch.n_id[: batch.batch_size].tolist() for batch in after]
    with pytest.raises(oc.InvalidError, match=f"one of {world_size} processes"):
        train(path, out=out)
    gathered: list = [None] * world_size
    distributed.all_gather_object(gathered, seeds)
    np.save(f"{out}.{rank}.npy", np.concatenate([np.concatenate(one) for one in gathered]))
    # A worker of this process does not see the group: its copy keeps the share of the rank.
    copied = pickle.dumps(after)
    distributed.destroy_process_group()
    assert len(before) == frozen
    kept = pickle.loads(copied)
    assert [batch.n_id[: batch.batch_size].tolist() for batch in kept] != seeds
    kept.set_epoch(0)
    assert [batch.n_id[: batch.batch_size].tolist() for batch in kept] == seeds


@pytest.mark.slow
def test_a_process_group_of_pytorch_shares_an_epoch(graph: oc.Graph, tmp_path: Path) -> None:
    place, out = tmp_path / "group", tmp_path / "seeds"
    context = multiprocessing.spawn(
        in_a_group,
        args=(2, str(place), str(graph.root), str(out)),
        nprocs=2,
        join=False,
    )
    assert context is not None
    for _ in range(60):
        if context.join(timeout=1):
            break
    else:
        raise AssertionError("the processes do not end")
    for rank in range(2):
        found = np.load(f"{out}.{rank}.npy")
        assert sorted(found.tolist()) == sorted(graph.split("train").tolist())


def test_one_process_takes_all_seeds() -> None:
    assert share_of(None, None) == (0, 1)
    assert share_of(1, 3) == (1, 3)
    require_one_process("outercore train")


@pytest.mark.slow
def test_training_started_by_torchrun_is_refused(graph: oc.Graph, tmp_path: Path) -> None:
    environment = {**os.environ, "TORCHELASTIC_RUN_ID": "none", "WORLD_SIZE": "2", "RANK": "0"}
    command = [sys.executable, "-m", "outercore", "train", graph.root, "--out", tmp_path / "run"]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stderr
    assert "started as one of 2 processes" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "run").exists()


def test_the_sampler_asks_no_pytorch_that_is_not_there(graph: oc.Graph) -> None:
    program = (
        "import sys, outercore as oc\n"
        "sampler = oc.NeighborSampler(sys.argv[1], [2], 'train', batch_size=8, rank=0,"
        " world_size=2)\n"
        "print(len(list(sampler)), len(oc.NeighborSampler(sys.argv[1], [2], 'train')),"
        " 'torch' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(graph.root)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.endswith("False\n")
