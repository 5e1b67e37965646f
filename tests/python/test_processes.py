"""Graphs, loaders and samplers in other processes: after fork, spawned, pickled and copied."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import outercore as oc
from fakes import planted

OPTIONS = {"batch_size": 32, "shuffle": True, "seed": 3, "memory": "64MiB", "threads": 2}
PATIENCE = 240.0


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted(tmp_path_factory.mktemp("planted") / "graph", nodes=600, degree=8))


def made(graph: oc.Graph, kind: str) -> oc.NeighborLoader | oc.NeighborSampler:
    if kind == "NeighborLoader":
        return oc.NeighborLoader(graph, [4, 3], "train", **OPTIONS)
    return oc.NeighborSampler(graph, [4, 3], "train", features="x", labels="y", **OPTIONS)


def epoch(batches, number: int = 0) -> list[tuple[list[int], float]]:
    batches.set_epoch(number)
    found = []
    for batch in batches:
        x = np.asarray(batch.x)
        found.append((np.asarray(batch.n_id).tolist(), float(x.sum(dtype=np.float64))))
    return found


FORKED = """
import os, sys, itertools, warnings
warnings.simplefilter("ignore")
import numpy as np
import outercore as oc

path, kind, used = sys.argv[1:]
options = dict(batch_size=8, shuffle=True, seed=3, memory="64MiB", threads=2, features="x")
graph = oc.open(path)
batches = getattr(oc, kind)(graph, [4, 3], "train", **options)

def epoch():
    batches.set_epoch(0)
    return [np.asarray(batch.n_id).tolist() for batch in batches]

expected = epoch()
held = []
if used == "running":
    running = iter(batches)
    held += list(itertools.islice(running, 3))
elif used == "closed":
    batches.close()
child = os.fork()
if child == 0:
    # Arrays and iterators of the parent go, its loader is used, and the interpreter ends as ever.
    if used == "running":
        try:
            next(running)
        except oc.InvalidError as error:
            assert "it began in another process" in str(error), error
        else:
            raise AssertionError("an iterator of the parent went on")
        del running
    held.clear()
    if used == "closed":
        try:
            epoch()
        except oc.InvalidError as error:
            assert "closed" in str(error)
        sys.exit(0)
    assert epoch() == expected
    assert graph.array("x").shape == (graph.num_nodes, graph.num_features)
    batches.plan(), batches.counters(), len(batches)
    batches.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
if used == "running":
    rest = [np.asarray(batch.n_id).tolist() for batch in running]
    assert expected[3:] == rest or len(rest) == len(batches) - 3
if used != "closed":
    assert epoch() == expected
print("done")
"""


@pytest.mark.parametrize("used", ["finished", "running", "closed"])
@pytest.mark.parametrize("kind", ["NeighborLoader", "NeighborSampler"])
@pytest.mark.slow
def test_a_forked_child_opens_a_loader_that_its_parent_used_again(graph, kind, used) -> None:
    command = [sys.executable, "-c", FORKED, str(graph.root), kind, used]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr


def work(batches, answers) -> None:
    answers.put(epoch(batches))


@pytest.mark.parametrize("kind", ["NeighborLoader", "NeighborSampler"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.slow
def test_a_loader_is_sent_to_a_worker(graph: oc.Graph, method: str, kind: str) -> None:
    batches = made(graph, kind)
    expected = epoch(batches)
    context = multiprocessing.get_context(method)
    answers = context.Queue()
    worker = context.Process(target=work, args=(batches, answers))
    worker.start()
    assert answers.get(timeout=PATIENCE) == expected
    worker.join(PATIENCE)
    assert worker.exitcode == 0
    assert epoch(batches) == expected


class Rows(Dataset):
    """What a DataLoader's workers have: a graph, a loader and the stores as attributes."""

    def __init__(self, graph: oc.Graph) -> None:
        self.graph = graph
        self.loader = made(graph, "NeighborLoader")
        self.stores = graph.pyg()
        self.first = next(iter(self.loader)).n_id

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        self.loader.set_epoch(0)
        assert torch.equal(next(iter(self.loader)).n_id, self.first)
        row = self.stores[0].get_tensor(attr_name="x", index=torch.tensor([index]))
        assert np.array_equal(row, self.graph.rows("x", np.array([index])))
        return row


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.slow
def test_workers_of_a_data_loader_have_graphs_and_loaders(graph: oc.Graph, method: str) -> None:
    rows = Rows(graph)
    loader = DataLoader(
        rows, batch_size=1, num_workers=2, multiprocessing_context=method, timeout=PATIENCE
    )
    found = torch.cat([row[0] for row in loader])
    assert torch.equal(found, torch.from_numpy(graph.array("x")[:4]))


@pytest.mark.parametrize("kind", ["NeighborLoader", "NeighborSampler"])
def test_a_copy_has_the_arguments_and_the_next_epoch(graph: oc.Graph, kind: str) -> None:
    batches = made(graph, kind)
    expected = [epoch(batches, number) for number in range(2)]
    batches.set_epoch(1)
    for copied in (
        copy.copy(batches),
        copy.deepcopy(batches),
        pickle.loads(pickle.dumps(batches)),
    ):
        assert type(copied) is type(batches)
        assert copied.config == batches.config
        assert [np.asarray(batch.n_id).tolist() for batch in copied] == [
            nodes for nodes, _ in expected[1]
        ]
        copied.close()
    assert epoch(batches) == expected[0]


def test_a_copy_of_a_loader_over_a_mask_or_ids_has_the_same_seeds(graph: oc.Graph) -> None:
    mask = np.arange(graph.num_nodes) % 7 == 0
    for nodes in (mask, np.flatnonzero(mask)[::-1], None):
        batches = oc.NeighborLoader(graph, [2], nodes, batch_size=16)
        for batch, other in zip(batches, pickle.loads(pickle.dumps(batches)), strict=True):
            assert torch.equal(batch.n_id, other.n_id)
            assert torch.equal(batch.input_id, other.input_id)
            assert torch.equal(batch.y, other.y)


def test_a_graph_is_copied_by_its_place(
    graph: oc.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(graph.root.parent)
    relative = oc.open("graph")
    np.save("layer.npy", np.ones((graph.num_nodes, 3), np.float32))
    loader = oc.NeighborLoader(relative, [2], batch_size=16, features="layer.npy")
    copies = [copy.copy(relative), copy.deepcopy(relative), pickle.loads(pickle.dumps(relative))]
    frozen = pickle.dumps(loader)
    monkeypatch.chdir(tmp_path)
    for copied in copies:
        assert copied.num_nodes == graph.num_nodes
        assert np.array_equal(copied.split("train"), graph.split("train"))
        copied.reload()
    assert len(pickle.loads(frozen)) == len(loader)
    assert next(iter(pickle.loads(frozen))).x.shape[1] == 3


def test_a_copy_whose_data_set_is_gone_says_so_when_it_is_used(tmp_path: Path) -> None:
    root = planted(tmp_path / "graph", nodes=50, degree=3)
    frozen = pickle.dumps(oc.NeighborLoader(root, [2]))
    root.rename(tmp_path / "moved")
    copied = pickle.loads(frozen)
    with pytest.raises(oc.NotFoundError, match="no such directory"):
        len(copied)


FAR = """
import os, sys, tempfile, warnings
warnings.simplefilter("ignore")
import outercore as oc
from outercore.data import far

token = far.new_token(tempfile.mkdtemp() + "/far.token")
server = far.MemoryServer("64MiB", token, listen=["127.0.0.1:0"])
options = far.FarOptions(server.addresses[0], token_file=token)
sampler = oc.NeighborSampler(sys.argv[1], [4, 3], "train", batch_size=8, features="x", far=options)

def epoch():
    sampler.set_epoch(0)
    return [batch.n_id.tolist() for batch in sampler]

expected = epoch()
child = os.fork()
if child == 0:
    # The server runs in the parent. Here its handle and the parent's connection are only memory.
    assert epoch() == expected
    del server
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert epoch() == expected
server.stop()
print("done")
"""


@pytest.mark.slow
def test_a_forked_child_connects_to_far_memory_on_its_own(graph: oc.Graph) -> None:
    command = [sys.executable, "-c", FAR, str(graph.root)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (found.returncode, found.stdout) == (0, "done\n"), found.stderr
