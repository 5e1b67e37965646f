"""Whole embedding runs: what they leave, how they stop and go on, what they refuse."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from embed_runs import (
    ENTITIES,
    IN_PARTITIONS,
    SMALL,
    STEPS,
    After,
    assert_same_bits,
    circle,
    interrupt,
    losses,
    small,
    tables,
    watch_pools,
)
from outercore import _core
from outercore.cli import run as run_cli
from outercore.data.triples import Triples
from outercore.embedding import resume
from outercore.embedding.config import EmbedConfig, configuration
from outercore.embedding.forecast import plan
from outercore.embedding.gradients.trainer import CoreBatches, Trainer
from outercore.embedding.randomness import Purpose, generator
from outercore.embedding.ranking import scoring
from outercore.embedding.ranking.scoring import AnswersByPart, Scoring, choose, distinct_places
from outercore.embedding.run_directory import EmbedDirectory
from outercore.errors import BudgetError, InterruptError, InvalidError, NoSpaceError, NotFoundError
from outercore.files.checked_json import checked_json_bytes, parse_checked_json
from outercore.files.npy import npy_header
from outercore.importing.build.graph import import_graph
from outercore.importing.build.triples import TripleOptions, import_triples
from outercore.importing.edges import from_edge_index
from outercore.importing.options import ImportOptions
from outercore.importing.source import GraphSource
from outercore.runs.progress import Observer


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return circle(tmp_path_factory.mktemp("facts"))


def test_a_run_leaves_tables_their_meaning_and_a_record(facts: Path, tmp_path: Path) -> None:
    result = oc.embed(
        facts, small(evaluation={"also": ["uniform"], "count": 30}), out=tmp_path / "run"
    )
    assert result.entities.shape == (ENTITIES, 16)
    assert result.entities.dtype == result.relations.dtype == np.float32
    assert result.relations.shape == (len(STEPS), 16)
    described = json.loads((tmp_path / "run/embedding.json").read_text())
    assert described["version"] == 2
    assert set(described["checksums"]) == {"entities.npy", "relations.npy"}
    assert (described["entities"], described["relations"]) == (ENTITIES, len(STEPS))
    assert (described["width"], described["model"]["kind"]) == (16, "complex")
    assert described["data_set"] == str(facts.resolve())
    assert [(one["part"], one["candidates"]) for one in described["metrics"]] == [
        ("valid", "all"),
        ("valid", "uniform"),
        ("test", "all"),
        ("test", "uniform"),
    ]
    assert "among all 60 entities" in described["metrics"][2]["protocol"]
    assert "among 30 entities drawn uniformly" in described["metrics"][3]["protocol"]
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert (record["job"], record["status"]) == ("embedding", "finished")
    assert [epoch["epoch"] for epoch in record["epochs"]] == [0, 1, 2, 3]
    assert record["epochs"][0]["triples"] == 216
    assert record["plan"]["partitions"] == 1
    assert sum(record["plan"]["parts"].values()) <= 256 << 20
    assert result.mrr == described["metrics"][2]["mrr"]
    assert any((tmp_path / "run/tensorboard").iterdir())
    assert result.embedding.num_entities == ENTITIES


def full_file(_: str) -> io.BufferedWriter:
    """As an opened file on a full device: written to, it has no space when it is flushed."""
    return io.BufferedWriter(io.FileIO("/dev/full", "w"))


def test_scalars_on_a_full_device_say_so_once_and_leave_a_checkpoint(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = small(run={"checkpoint_seconds": 0.0})
    with monkeypatch.context() as patched:
        patched.setattr("tensorboardX.record_writer.open_file", full_file)
        with pytest.raises(
            NoSpaceError, match=r"then resume with `outercore embed --resume .*/run`"
        ):
            oc.embed(facts, groups, out=tmp_path / "run")
    result = oc.resume(tmp_path / "run")
    assert len(result.record["epochs"]) == 4


def test_without_triples_for_validation_the_last_rows_are_kept_and_that_is_said(
    facts: Path, tmp_path: Path
) -> None:
    class Notes(Observer):
        def __init__(self) -> None:
            self.all: list[str] = []

        def note(self, message: str) -> None:
            self.all.append(message)

    import_triples(
        facts.parent / "train.tsv", tmp_path / "set", options=TripleOptions(memory="16MiB")
    )
    for root, expected in ((tmp_path / "set", 1), (facts, 0)):
        notes = Notes()
        result = oc.embed(root, SMALL, out=tmp_path / f"run-{expected}", observer=notes)
        assert len(notes.all) == expected
        if expected:
            assert "no triples as `valid`: nothing is validated" in notes.all[0]
            last = SMALL["optimiser"]["epochs"] - 1
            assert result.record["result"] == {"metrics": [], "best_epoch": last}


def test_the_figures_are_those_of_the_best_tables(facts: Path, tmp_path: Path) -> None:
    config = small(optimiser={"epochs": 30, "validate_every": 1, "patience": 2})
    watch = After()
    result = oc.embed(facts, config, out=tmp_path / "run", observer=watch)
    scores = [report.score for report in watch.reports]
    best = max(score for score in scores if score is not None)
    assert len(scores) < 30
    assert scores.index(best) == len(scores) - 3 == result.record["result"]["best_epoch"]
    assert result.metrics[0]["mrr"] == best


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
@pytest.mark.parametrize("batches", [1, 14, 33])
def test_an_interrupted_run_goes_on_to_the_same_bits(
    facts: Path, tmp_path: Path, budget: dict[str, int], batches: int
) -> None:
    config = small(budget=budget)
    oc.embed(facts, config, out=tmp_path / "whole")
    with pytest.raises(InterruptError, match="go on with `outercore embed --resume"):
        oc.embed(facts, config, out=tmp_path / "run", observer=After(batches, interrupt))
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["status"] == "interrupted"
    assert not (tmp_path / "run/embedding.json").exists()
    watch = After()
    result = oc.resume(tmp_path / "run", observer=watch)
    assert watch.resumed_at is not None
    assert result.record["status"] == "finished"
    assert_same_bits(tmp_path / "run", tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    triples = [epoch["triples"] for epoch in result.record["epochs"]]
    assert triples == [216] * 4


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_a_run_that_is_stopped_before_its_first_batch_lets_go_of_its_table(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, int]
) -> None:
    collect = Scoring.collect_known

    def stopped(self: Scoring, known: AnswersByPart, chunks: Any) -> None:
        self._stop.request()
        collect(self, known, chunks)

    config, out = small(budget=budget), tmp_path / "run"
    monkeypatch.setattr(Scoring, "collect_known", stopped)
    with pytest.raises(InterruptError) as caught:
        oc.embed(facts, config, out=out)
    monkeypatch.undo()
    # The exception is kept, as a notebook does it, and what its frames hold with it.
    begun = bool(budget)
    hint = f"go on with `outercore embed --resume {out}`" if begun else "run the same command again"
    assert str(caught.value) == f"stopped on request before the first batch\nhint: {hint}"
    result = oc.resume(out) if begun else oc.embed(facts, config, out=out)
    assert result.record["status"] == "finished"


class Progress(Observer):
    """Notes what comes before the first batch; asks to stop in the midst of `last`."""

    def __init__(self, last: str = "") -> None:
        self.last = last
        self.seen: list[tuple[str, str]] = []

    def preparing(self, what: str, done: int, total: int, unit: str) -> None:
        assert 0 <= done <= total
        if (what, unit) not in self.seen:
            self.seen.append((what, unit))
        if what == self.last:
            interrupt()


RANKED = ["read valid triples", "read test triples", "count true answers"]
IN_ORDER = ["count triples", "sort triples", "first rows"]
PREPARED: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "memory": ("facts", {}, [*RANKED, "read triples", "collect true answers"]),
    "partitions": (
        "facts",
        {
            "budget": IN_PARTITIONS,
            "negatives": {"degree_share": 0.5},
            "evaluation": {"also": ["degree"]},
        },
        [*RANKED, *IN_ORDER, "count degrees", "collect true answers"],
    ),
    "graph": (
        "graph",
        {"budget": IN_PARTITIONS},
        ["count links", *RANKED, *IN_ORDER, "collect true answers"],
    ),
    "weights": ("weighted", {}, ["count links", *RANKED, "read triples", "read weights"]),
    "held out": (
        "train alone",
        {"data": {"held_out_triples": 0.2}},
        ["hold out triples", *RANKED, "read triples"],
    ),
}


@pytest.fixture(scope="module")
def sets(facts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sets")
    ends = [(one, (one + step) % ENTITIES) for one in range(ENTITIES) for step in STEPS]
    edges = root / "edges.txt"
    edges.write_text("".join(f"{source} {target}\n" for source, target in ends))
    for name in ("graph", "weighted"):
        assert run_cli(["import", str(edges), "--out", str(root / name), "--undirected"]) == 0
    oc.open(root / "weighted").add_edge_array("weight", np.ones(len(ends), np.float32))
    triples = root / "train.tsv"
    triples.write_text("".join(f"e{source}\tr\te{target}\n" for source, target in ends))
    import_triples(triples, root / "train alone")
    return {"facts": facts, **{path.name: path for path in root.iterdir() if path.is_dir()}}


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("case", "last"), [(case, last) for case in PREPARED for last in ("", *PREPARED[case][2])]
)
def test_all_that_comes_before_the_first_batch_is_told_and_ends_on_request(
    sets: dict[str, Path], tmp_path: Path, case: str, last: str
) -> None:
    data_set, groups, expected = PREPARED[case]
    config, out, watch = small(**groups), tmp_path / "run", Progress(last)
    if not last:
        oc.embed(sets[data_set], config, out=out, observer=watch)
        assert [what for what, _ in watch.seen][: len(expected)] == expected
        assert {unit for what, unit in watch.seen} <= {"triples", "entities"}
        return
    # What comes before there is a run ends as any Python does.
    with pytest.raises((InterruptError, KeyboardInterrupt)) as caught:
        oc.embed(sets[data_set], config, out=out, observer=watch)
    assert watch.seen[-1][0] == last
    # From then on there is a table to go on with.
    begun = "budget" in groups and last in ("count degrees", "collect true answers")
    assert out.exists() == begun
    if caught.type is InterruptError:
        hint = f"go on with `outercore embed --resume {out}`" if begun else "run the same"
        assert f"before the first batch\nhint: {hint}" in str(caught.value)


def test_in_memory_a_run_stops_after_the_batch_under_way(facts: Path, tmp_path: Path) -> None:
    with pytest.raises(InterruptError, match="stopped in epoch 1 after 48 triples"):
        oc.embed(facts, small(), out=tmp_path / "run", observer=After(3, interrupt))
    watch = After()
    oc.resume(tmp_path / "run", observer=watch)
    assert watch.resumed_at == (0, 48)


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_how_often_checkpoints_are_taken_changes_no_bit(
    facts: Path, tmp_path: Path, budget: dict[str, int]
) -> None:
    for name, seconds in (("never", 1e9), ("epochs", 0.0), ("always", 1e-9)):
        config = small(budget=budget, run={"checkpoint_seconds": seconds})
        oc.embed(facts, config, out=tmp_path / name)
    for name in ("epochs", "always"):
        assert_same_bits(tmp_path / name, tmp_path / "never")
        assert losses(tmp_path / name) == losses(tmp_path / "never")


def test_a_finished_run_gives_its_result_again(facts: Path, tmp_path: Path) -> None:
    first = oc.embed(facts, small(), out=tmp_path / "run")
    before = tables(tmp_path / "run")
    again = oc.resume(tmp_path / "run")
    assert again.metrics == first.metrics
    for found, expected in zip(tables(tmp_path / "run"), before, strict=True):
        np.testing.assert_array_equal(found, expected)
    shutil.rmtree(tmp_path / "run/table")
    watch = After()
    assert oc.resume(tmp_path / "run", observer=watch).metrics == first.metrics
    assert not watch.reports


def test_partitions_learn_as_well_as_memory(facts: Path, tmp_path: Path) -> None:
    found = {}
    for name, budget in (("memory", {}), ("partitions", IN_PARTITIONS)):
        config = small(
            budget=budget,
            optimiser={"epochs": 30, "validate_every": 15},
            model={"dim": 32},
            regulariser={"kind": "n3", "weight": 1e-3},
        )
        found[name] = oc.embed(facts, config, out=tmp_path / name).mrr or 0.0
    assert min(found.values()) > 0.5


@pytest.mark.parametrize("group", [1, 2])
def test_the_record_of_a_run_in_partitions_has_its_order_and_bytes(
    facts: Path, tmp_path: Path, group: int
) -> None:
    budget = {**IN_PARTITIONS, "swap": "in-place", "sweeps": 2, "group": group}
    result = oc.embed(facts, small(budget=budget), out=tmp_path / "run")
    order = result.record["plan"]["order"]
    assert len(order["states"]) == order["swaps"] + 1
    assert all(len(state) == 3 for state in order["states"])
    assert set().union(*order["states"]) == set(range(6))
    config = json.loads((tmp_path / "run/config.json").read_text())["config"]["budget"]
    assert (config["partitions"], config["slots"], config["swap"]) == (6, 3, "in-place")
    assert config["sweeps"] == order["walks"]["sweeps"] == 2
    assert config["group"] == order["walks"]["group"] == group
    # An epoch between two others reads as many partitions as it swaps, part by part.
    counters = result.record["epochs"][2]["counters"]
    assert counters["loads"] == order["swaps"] * config["sweeps"] * group
    assert counters["bytes_read"] == order["bytes_between"]
    # `outercore plan embed` says so before, rows included that fill up pages.
    rates = {"triples_per_second": 1e6, "read_bandwidth": 1e9, "write_bandwidth": 1e9}
    resolved = EmbedConfig.from_dict(result.record["config"])
    planned = plan(facts, resolved, **rates)["orders"]
    [chosen] = [one for one in planned if one["chosen"]]
    assert chosen["bytes_between"] == counters["bytes_read"] == counters["bytes_written"]
    assert chosen["bytes_read"] == result.record["epochs"][0]["counters"]["bytes_read"]
    assert all(epoch["counters"]["triples_waited_s"] > 0 for epoch in result.record["epochs"])


def test_a_run_starts_from_the_rows_of_another(facts: Path, tmp_path: Path) -> None:
    first = oc.embed(facts, small(), out=tmp_path / "first")
    config = small(optimiser={"epochs": 1, "learning_rate": 1e-9, "validate_every": 1})
    second = oc.embed(facts, config, out=tmp_path / "second", start_from=tmp_path / "first")
    np.testing.assert_allclose(second.entities, first.entities, atol=1e-6)
    np.testing.assert_allclose(second.relations, first.relations, atol=1e-6)


def test_a_run_that_started_from_another_goes_on_without_it(facts: Path, tmp_path: Path) -> None:
    oc.embed(facts, small(), out=tmp_path / "first")
    oc.embed(facts, small(), out=tmp_path / "whole", start_from=tmp_path / "first")
    with pytest.raises(InterruptError):
        oc.embed(
            facts,
            small(),
            out=tmp_path / "run",
            start_from=tmp_path / "first",
            observer=After(5, interrupt),
        )
    (tmp_path / "first").rename(tmp_path / "elsewhere")
    oc.resume(tmp_path / "run")
    assert_same_bits(tmp_path / "run", tmp_path / "whole")


MEASURED = """
import json, sys
import outercore as oc

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

options = json.loads(sys.argv[3])
oc.embed(sys.argv[1], options, memory="64MiB", out="warm")
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
result = oc.embed(sys.argv[2], options, memory=sys.argv[4], out="measured")
print(json.dumps({"peak": status("VmHWM") - before, "plan": result.record["plan"]}))
"""


def test_a_run_stays_within_its_budget(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc")
    for name, nodes in (("tiny", 500), ("large", 200_000)):
        shape = {"nodes": nodes, "degree": 4, "features": 1, "classes": 4, "seed": 1}
        _core.generate_planted(tmp_path / name, {**shape, "memory": 64 << 20}, lambda *_: None)
    options = {
        "model": {"kind": "dot", "dim": 64},
        "negatives": {"count": 50},
        "optimiser": {"batch_size": 2000, "epochs": 1, "validate_every": 1},
        "evaluation": {"candidates": "uniform", "valid_triples": 2000, "test_triples": 2000},
        "budget": {"threads": 1},
    }
    # Embeddings and state take 98 MiB.
    memory = 72 << 20
    found = measured(tmp_path, options, memory)
    assert found["plan"]["partitions"] > 1
    # Beside the budget: stacks, and freed memory that the allocator keeps.
    assert found["peak"] < memory + (48 << 20)


def measured(root: Path, options: dict[str, Any], memory: int) -> dict[str, Any]:
    """Peak memory beside the process, and the plan, of a run on the data set `large`."""
    words = [str(root / "tiny"), str(root / "large"), json.dumps(options), str(memory)]
    child = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, cwd=root)
    assert child.returncode == 0, child.stderr.decode()
    found: dict[str, Any] = json.loads(child.stdout)
    return found


def test_ranking_on_a_graph_with_hubs_stays_within_its_budget(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc")
    # Held-out links are a hub's as often as links are, so nearly all others answer some of them.
    random, unique = np.random.default_rng(1), ImportOptions(duplicates="drop")
    for name, nodes, links in (("tiny", 500, 3_000), ("large", 100_000, 2_000_000)):
        ends = [nodes ** random.random(links), random.uniform(1, nodes, links)]
        edges = random.permuted(np.stack(ends).astype(np.int64) - 1, axis=0)
        import_graph(
            GraphSource([from_edge_index(name, edges)], [], nodes), tmp_path / name, unique
        )
    options = {
        "model": {"kind": "dot", "dim": 16},
        "negatives": {"count": 50},
        "optimiser": {"batch_size": 2000, "epochs": 1, "validate_every": 1},
        "evaluation": {"candidates": "uniform", "valid_triples": 20_000, "test_triples": 20_000},
        "budget": {"threads": 1, "partitions": 4},
    }
    memory = 136 << 20
    found = measured(tmp_path, options, memory)
    assert found["peak"] < memory + (48 << 20)


def test_too_small_a_budget_is_refused_with_the_least_and_leaves_nothing(
    facts: Path, tmp_path: Path
) -> None:
    with pytest.raises(BudgetError, match="needs at least") as caught:
        oc.embed(facts, small(), memory="1MiB", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    least = int(str(caught.value).partition("which is ")[2].split()[0])
    assert oc.embed(facts, small(), memory=least, out=tmp_path / "run").mrr is not None


@pytest.fixture(scope="module")
def skewed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Most triples are between two entities, so one bucket has nearly all."""
    root = tmp_path_factory.mktemp("skewed")
    others = [f"e{i}\tr\te{(i + 1) % ENTITIES}\n" for i in range(ENTITIES)]
    (root / "train.tsv").write_text("".join(others) + "e3\tr\te4\n" * 400_000)
    import_triples(root / "train.tsv", root / "set", options=TripleOptions(memory="16MiB"))
    return root / "set"


PLAIN_WALKS = {"sweeps": 1, "spread": False, "rename": False, "group": 1}


@pytest.mark.parametrize("walks", [{"sweeps": 1}, PLAIN_WALKS])
def test_pools_of_a_skewed_graph_are_within_the_budget_or_refused(
    skewed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, walks: dict[str, Any]
) -> None:
    budget = {**IN_PARTITIONS, "swap": "in-place", "threads": 1, **walks}
    optimiser = {"epochs": 1, "batch_size": 4000, "chunk_size": 4000}
    config = small(budget=budget, negatives={"count": 2}, optimiser=optimiser)
    sizes = watch_pools(monkeypatch)

    def refused(memory: int) -> int:
        with pytest.raises(BudgetError) as caught:
            oc.embed(skewed, config, memory=memory, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return int(str(caught.value).partition("which is ")[2].split()[0])

    least = refused(1 << 20)
    enough = refused(least)
    assert enough > least
    assert refused(enough - 1) == enough
    result = oc.embed(skewed, config, memory=enough, out=tmp_path / "run")
    plan = result.record["plan"]
    assert sum(plan["parts"].values()) <= enough
    assert 0 < 32 * max(sizes) <= plan["parts"]["triples in training"]
    with pytest.raises(BudgetError):
        resume(tmp_path / "run", memory=least)
    assert (tmp_path / "run/entities.npy").exists()


@pytest.mark.parametrize("name", ["entities.npy", "record.json", "table"])
def test_a_run_replaces_nothing_that_is_there(facts: Path, tmp_path: Path, name: str) -> None:
    own = tmp_path / "run" / name
    if own.suffix:
        own.parent.mkdir()
        own.write_text("mine")
    else:
        own.mkdir(parents=True)
        (own / "mine").touch()
    with pytest.raises(InvalidError, match=f"`{name}` is there already"):
        oc.embed(facts, small(), out=tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [name]


def test_a_run_is_not_made_twice_nor_gone_on_with_after_a_change(
    facts: Path, tmp_path: Path
) -> None:
    with pytest.raises(InterruptError):
        oc.embed(facts, small(), out=tmp_path / "run", observer=After(5, interrupt))
    with pytest.raises(InvalidError, match="exists already"):
        oc.embed(facts, small(), out=tmp_path / "run")
    config = tmp_path / "run/config.json"
    described = parse_checked_json(config.read_bytes(), "config")
    config.write_bytes(checked_json_bytes({**described, "fingerprint": "other"}))
    with pytest.raises(InvalidError, match="changed since the run began"):
        oc.resume(tmp_path / "run")


def test_a_failed_start_takes_away_only_what_it_made(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise InvalidError("no")

    for name in ("table", "tensorboard"):
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "notes").write_text("mine")
    monkeypatch.setattr("outercore.embedding.run.choose_device", fails)
    for out in ("mine", "new"):
        with pytest.raises(InvalidError, match="no"):
            oc.embed(facts, small(), out=tmp_path / out)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "mine/config.json").exists()
    for name in ("table", "tensorboard"):
        assert (tmp_path / "mine" / name / "notes").read_text() == "mine"


def test_arrays_that_an_embedding_does_not_read_may_come_meanwhile(
    facts: Path, tmp_path: Path
) -> None:
    shutil.copytree(facts, tmp_path / "facts")
    with pytest.raises(InterruptError):
        oc.embed(tmp_path / "facts", small(), out=tmp_path / "run", observer=After(5, interrupt))
    oc.open(tmp_path / "facts").add_node_array("rank", np.arange(ENTITIES))
    oc.resume(tmp_path / "run")
    oc.embed(facts, small(), out=tmp_path / "whole")
    assert_same_bits(tmp_path / "run", tmp_path / "whole")


def test_of_a_plain_graph_only_the_topology_and_names_tell_it_from_another(tmp_path: Path) -> None:
    def generated(name: str, seed: int) -> oc.Graph:
        shape = {"nodes": 100, "degree": 4, "features": 1, "classes": 4, "seed": seed}
        _core.generate_planted(tmp_path / name, {**shape, "memory": 64 << 20}, lambda *_: None)
        return oc.open(tmp_path / name)

    graph = generated("graph", 1)
    before = EmbedDirectory.identity_of(graph)
    graph.add_node_array("rank", np.arange(100))
    graph.add_edge_array("cost", np.ones(graph.num_edge_rows))
    assert EmbedDirectory.identity_of(oc.open(graph.root)) == before
    assert EmbedDirectory.identity_of(generated("same", 1)) == before
    assert EmbedDirectory.identity_of(generated("other", 2)) != before


def test_only_one_process_trains_a_run(facts: Path, tmp_path: Path) -> None:
    def resume_meanwhile() -> None:
        with pytest.raises(InvalidError, match="another `outercore embed` writes it"):
            oc.resume(tmp_path / "run")
        found.append(True)

    found: list[bool] = []
    oc.embed(facts, small(), out=tmp_path / "run", observer=After(5, resume_meanwhile))
    assert found == [True]


def test_a_directory_without_a_run_or_a_data_set_is_said(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no `config\.json` there"):
        oc.resume(tmp_path)
    with pytest.raises(NotFoundError):
        oc.embed(tmp_path / "nowhere", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_some_of_the_held_out_triples_are_ranked_and_said(facts: Path, tmp_path: Path) -> None:
    config = small(evaluation={"test_triples": 5, "valid_triples": 4})
    result = oc.embed(facts, config, out=tmp_path / "run")
    found = {one["part"]: one["protocol"].partition(" triples")[0] for one in result.metrics}
    assert found == {"valid": "4 of 12", "test": "5 of 12"}


def test_chosen_triples_are_collected_a_chunk_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(1).integers(0, 1000, (1000, 3))
    np.save(tmp_path / "rows.npy", rows)
    triples = Triples(tmp_path / "rows.npy", counted=len(rows), key="triples/valid")
    np.testing.assert_array_equal(choose("valid", triples, 0, 7).triples.numpy(), rows)
    np.testing.assert_array_equal(choose("valid", triples, 1000, 7).triples.numpy(), rows)
    chunks = Triples.chunks
    monkeypatch.setattr(Triples, "chunks", lambda self: chunks(self, 64))
    monkeypatch.setattr(Triples, "read", None)
    for most in (1, 63, 250, 400, 999):
        random = generator(7, Purpose.CANDIDATES, 1)
        places = torch.randperm(1000, generator=random)[:most].sort().values
        found = choose("valid", triples, most, 7)
        np.testing.assert_array_equal(found.triples.numpy(), rows[places.numpy()])
        assert found.of == 1000


@pytest.mark.parametrize(("count", "most"), [(5, 1), (40, 12), (49, 12), (1000, 200), (12, 11)])
def test_places_that_are_drawn_are_distinct_and_as_likely_as_others(
    count: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "_FEW", 0)
    random, seen, rounds = torch.Generator().manual_seed(3), torch.zeros(count), 400
    for _ in range(rounds):
        places = distinct_places(count, most, random)
        assert len(places) == most
        assert bool((places[1:] > places[:-1]).all())
        seen[places] += 1
    share = most / count
    deviation = (rounds * share * (1 - share)) ** 0.5
    assert float((seen - rounds * share).abs().max()) < 5 * deviation


def test_drawing_places_takes_no_more_memory_of_many() -> None:
    def draw(count: int) -> torch.Tensor:
        return distinct_places(count, 1000, torch.Generator().manual_seed(1))

    # A number for each would be 8 PB.
    found = draw(10**15)
    assert (len(found), int(found.max()) < 10**15) == (1000, True)
    assert torch.equal(found, draw(10**15))


@pytest.mark.parametrize(
    ("dtype", "rows", "found"),
    [("float64", 216, r"float64 \[216\]"), ("float32", 215, r"float32 \[215\]")],
)
@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS])
def test_weights_of_another_type_or_number_are_refused(
    facts: Path, tmp_path: Path, dtype: str, rows: int, found: str, budget: dict[str, int]
) -> None:
    weighted = tmp_path / "weighted"
    shutil.copytree(facts, weighted)
    (manifest,) = weighted.glob("*.json")
    saved = json.loads(manifest.read_text())
    saved.pop("checksum")
    name, file = "triples/train.weight", "triples/train.weight.npy"
    header = npy_header(np.dtype(dtype).str, (rows,))
    (weighted / file).write_bytes(header + np.ones(rows, dtype).tobytes())
    of_triples = saved["arrays"]["triples/train"]
    place = {"file": file, "dtype": dtype, "shape": [rows], "data_offset": len(header)}
    saved["arrays"][name] = {**of_triples, **place}
    manifest.write_text(json.dumps(saved))
    with pytest.raises(InvalidError, match=rf"{name}`: expected float32 \[216\], found {found}"):
        oc.embed(weighted, small(budget=budget), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_neighbours_in_an_undirected_graph_are_known_from_both_ends(
    budget: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A star whose centre is neither the first node nor the last, and a circle around it.
    around = [node for node in range(30) if node != 15]
    links = [(15, node) for node in around] + list(pairwise(around))
    (tmp_path / "links.txt").write_text("".join(f"{one} {other}\n" for one, other in links))
    command = ["import", str(tmp_path / "links.txt"), "--undirected", "--out", str(tmp_path / "g")]
    assert run_cli(command) == 0
    config = small(
        model={"kind": "dot"},
        negatives={"filter": "known"},
        optimiser={"epochs": 1},
        data={"held_out": 0.0},
        budget=budget,
    )
    oc.embed(tmp_path / "g", config, out=tmp_path / "core")

    # PyTorch's batches, as on a GPU, are compared pair by pair; the core's by their outcome.
    asked: set[str] = set()
    among = Trainer._known_among

    def compared(self, context, side, triples, candidates):  # type: ignore[no-untyped-def]
        found = among(self, context, side, triples, candidates)
        ends = context.pool.triples[:, [0, 2]].tolist()
        known = {(one, other) for pair in ends for one, other in (pair, pair[::-1])}
        expected = {
            (row, column)
            for row, anchor in enumerate(triples[:, 0 if side == "tail" else 2].tolist())
            for column, candidate in enumerate(candidates.tolist())
            if (anchor, candidate) in known
        }
        assert {(row, column) for row, column in found.nonzero().tolist()} == expected
        if expected:
            asked.add(side)
        return found

    monkeypatch.setattr(CoreBatches, "for_run", lambda *_: None)
    monkeypatch.setattr(Trainer, "_known_among", compared)
    oc.embed(tmp_path / "g", config, out=tmp_path / "torch")
    assert asked == {"head", "tail"}
    core, other = (np.load(tmp_path / name / "entities.npy") for name in ("core", "torch"))
    np.testing.assert_allclose(core, other, rtol=1e-4, atol=1e-5)


def test_options_are_laid_on_a_file_and_the_file_on_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"optimiser": {"epochs": 7, "batch_size": 64}}))
    config = configuration(file, recipe="complex-fb15k-237", epochs=3, memory="1GiB")
    assert config.model.reciprocal
    assert (config.optimiser.batch_size, config.optimiser.epochs) == (64, 3)
    assert config.budget.memory == "1GiB"
    assert configuration(plain_graph=True).model.kind == "dot"
    assert configuration(plain_graph=True, model="distmult").model.kind == "distmult"
    with pytest.raises(InvalidError, match="unknown option `epoch`\nhint: did you mean `epochs`"):
        configuration(epoch=3)
    with pytest.raises(InvalidError, match="unknown option `backend`"):
        configuration(backend="uring")
    with pytest.raises(InvalidError, match=r"unknown key `model\.dims`"):
        configuration({"model": {"dims": 3}})
    with pytest.raises(NotFoundError, match=r"nowhere\.json"):
        configuration(tmp_path / "nowhere.json")


def test_the_configuration_of_a_run_starts_another(facts: Path, tmp_path: Path) -> None:
    oc.embed(facts, small(), out=tmp_path / "run")
    oc.embed(facts, tmp_path / "run/config.json", out=tmp_path / "again")
    assert_same_bits(tmp_path / "again", tmp_path / "run")
