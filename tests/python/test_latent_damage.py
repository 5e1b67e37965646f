"""A bit of an array flips on disk, and then a command makes arrays of it.

The command refuses, or a check still finds the damage. The same for the functions of the core, and
more bits, is `crates/outercore-live/tests/damage.rs`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import outercore as oc
from embedded import embed, facts, random_triples
from outercore import _core
from outercore.cli import app
from outercore.embedding import add_features
from outercore.errors import CorruptError
from outercore.serving.server import Server
from test_live import CONFIG, X, random_model, trained, update
from test_serve import ask


def command(*words: object) -> tuple[int, str]:
    run = CliRunner().invoke(app, [str(word) for word in words])
    assert "internal error" not in run.output, run.output
    return run.exit_code, f"{run.output}{run.exception or ''}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with layouts and a grid, a model of it, triples, and arrays to add."""
    home = tmp_path_factory.mktemp("damage")
    graph = random_model(5, undirected=False).write(home / "graph")
    graph.add_edge_array("weight", np.arange(graph.num_edge_rows, dtype=np.float32) + 1)
    trained(graph, "sage", home / "sage")
    for words in (["--order", "degree"], ["--precision", "int8", "--order", "none"]):
        assert command("layout", home / "graph", *words)[0] == 0
    assert command("grid", home / "graph")[0] == 0
    np.save(home / "age.npy", np.arange(graph.num_nodes))
    facts(home / "facts", random_triples(1))
    return home


def flipped(root: Path, key: str, bit: int) -> None:
    """Flips a bit of the data of an array, counted from its end where `bit` is negative."""
    # Opening it would have a server write its updates into the arrays.
    entry = json.loads(manifest(root))["arrays"][key]
    with (root / entry["file"]).open("r+b") as file:
        bits = 8 * (file.seek(0, 2) - entry["data_offset"])
        at = entry["data_offset"] + bit % bits // 8
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit % 8]))


def is_sound(root: Path) -> bool:
    return bool(_core.check(root, None)["sound"])


def manifest(root: Path) -> bytes:
    return (root / "graph.json").read_bytes()


VERBS: dict[str, Callable[[Path, Path], tuple[int, str]]] = {
    "convert": lambda graph, _: command("convert", graph, "--to", "float16"),
    "layout": lambda graph, _: command("layout", graph, "--order", "rcm"),
    "int8": lambda graph, _: command("layout", graph, "--precision", "int8"),
    "grid": lambda graph, _: command("grid", graph, "--weights", "weight", "--overwrite"),
    "add": lambda graph, home: command("add", graph, "--array", f"age={home / 'age.npy'}"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("key", ["nodes/node/x", "edges/edge/sources", "edges/edge/weight"])
@pytest.mark.parametrize("bit", [1, -2])
def test_no_command_hides_a_bit_that_had_flipped(
    home: Path, tmp_path: Path, verb: str, key: str, bit: int
) -> None:
    root = Path(shutil.copytree(home / "graph", tmp_path / "graph"))
    flipped(root, key, bit)
    before = manifest(root)
    status, text = VERBS[verb](root, home)
    if status != 0:
        # A value that cannot be is told before the checksum is known.
        assert f"array `{key}`" in text, text
        assert manifest(root) == before
    assert not is_sound(root)


def test_a_command_refuses_the_arrays_that_it_copies(home: Path, tmp_path: Path) -> None:
    made_of = {
        "convert": ["nodes/node/x"],
        "layout": ["nodes/node/x"],
        "int8": ["nodes/node/x"],
        "grid": ["edges/edge/sources", "edges/edge/offsets", "edges/edge/weight"],
    }
    for verb, keys in made_of.items():
        for number, key in enumerate(keys):
            root = Path(shutil.copytree(home / "graph", tmp_path / f"{verb}-{number}"))
            flipped(root, key, 0)
            status, text = VERBS[verb](root, home)
            assert status != 0, (verb, key)
            assert key in text, (verb, key)


@pytest.mark.parametrize("key", ["nodes/node/x", "nodes/node/y", "edges/edge/weight"])
@pytest.mark.parametrize("bit", [1, -2])
def test_a_served_graph_does_not_fold_damage_into_its_arrays(
    home: Path, tmp_path: Path, key: str, bit: int
) -> None:
    root = Path(shutil.copytree(home / "graph", tmp_path / "graph"))
    changes = [
        {"op": "add_node", "values": {"x": X, "y": 1}},
        {"op": "update_node", "node": 3, "values": {"x": X, "y": 1}},
        {"op": "add_edge", "source": 3, "target": {"new": 0}, "values": {"weight": 5}},
    ]
    with Server(root, home / "sage", CONFIG) as server:
        assert update(server, *changes)[0] == 200
        flipped(root, key, bit)
        status, answer = ask(server, "/graph/compact", {})
        assert status >= 500, answer
        flipped(root, key, bit)
        assert ask(server, "/graph/compact", {})[0] == 200, "the copy was put back"
    assert is_sound(root)


def test_an_import_of_a_data_set_refuses_what_it_would_copy(home: Path, tmp_path: Path) -> None:
    keys = [key for key in oc.open(home / "facts").arrays if key.startswith(("triples", "names"))]
    for number, key in enumerate(keys):
        root = Path(shutil.copytree(home / "facts", tmp_path / f"facts-{number}"))
        flipped(root, key, 0)
        out = tmp_path / f"graph-{number}"
        status, text = command("import", root, "--out", out)
        assert status != 0, key
        assert f"array `{key}`: checksum" in text
        assert not (out / "graph.json").exists()


def test_an_array_in_place_is_compared_before_others_are_made_of_it(
    home: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(home / "graph", tmp_path / "graph"))
    wide = tmp_path / "wide.npy"
    nodes = oc.open(root).num_nodes
    np.save(wide, np.random.default_rng(1).normal(size=(nodes, 3)).astype(np.float32))
    status, text = command("add", root, "--features", wide, "--in-place", "--overwrite")
    assert status == 0, text
    flipped(root, "nodes/node/x", 40)
    status, text = command("convert", root, "--to", "float16")
    assert status != 0
    assert "array `nodes/node/x`: checksum" in text
    assert not is_sound(root)


def test_features_beside_an_embedding_are_compared_first(tmp_path: Path) -> None:
    graph = facts(tmp_path / "facts", random_triples(2))
    embedding = embed(tmp_path / "run", graph)
    graph.add_node_array("mark", np.zeros((graph.num_nodes, 2), np.float32))
    flipped(Path(graph.root), "nodes/node/mark", 5)
    with pytest.raises(CorruptError, match="array `nodes/node/mark`: checksum"):
        add_features(embedding, oc.open(graph.root), "both", beside="mark")


def test_no_command_makes_anything_of_a_damaged_embedding(tmp_path: Path) -> None:
    data_set = tmp_path / "facts"
    facts(data_set, random_triples(3))
    options: dict[str, Any] = {"dim": 4, "epochs": 1, "threads": 1}
    oc.embed(data_set, out=tmp_path / "run", **options)
    uses: dict[str, list[object]] = {
        "features": ["embedding", "features", tmp_path / "run"],
        "export": ["embedding", "export", tmp_path / "run", "--out", tmp_path / "rows.csv"],
        "neighbours": ["embedding", "neighbours", tmp_path / "run", "n3"],
        "predict": ["embedding", "predict", tmp_path / "run", "--head", "n3", "--relation", "r1"],
        "evaluate": ["embedding", "evaluate", tmp_path / "run", "--part", "train"],
        "embed": ["embed", data_set, "--from", tmp_path / "run", "--out", tmp_path / "next"],
    }
    uses["embed"] += ["--dim", 4, "--epochs", 1]
    before, again = manifest(data_set), re.compile(r"`outercore embed --resume \S+run`")
    for file in ("entities.npy", "relations.npy", "embedding.json"):
        path = tmp_path / "run" / file
        whole = path.read_bytes()
        path.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
        for name, words in uses.items():
            if file == "relations.npy" and name in ("features", "export", "neighbours"):
                continue
            status, text = command(*words)
            assert status != 0, (name, file)
            assert re.search(rf"{file}`: found checksum", text), (name, text)
            assert again.search(text), (name, text)
        assert manifest(data_set) == before
        assert not (tmp_path / "rows.csv").exists()
        assert command("embed", "--resume", tmp_path / "run")[0] == 0
        assert path.read_bytes() == whole, file


def test_reading_a_whole_array_compares_its_checksum(home: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(home / "graph", tmp_path / "graph"))
    flipped(root, "nodes/node/y", 3)
    with pytest.raises(CorruptError, match="array `nodes/node/y`: checksum"):
        oc.open(root).array("y")
