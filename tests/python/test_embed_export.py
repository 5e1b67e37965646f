"""Tables for other programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from embedded import ENTITIES, RELATIONS, WIDTH, embed, write_run
from outercore.embedding.config import ModelConfig
from outercore.embedding.use.embedding import Embedding
from outercore.embedding.use.export import export
from outercore.errors import InvalidError
from outercore.importing.build.triples import import_triples


def test_parquet_has_ids_names_and_rows(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.parquet"
    assert export(embedding, path) == ENTITIES
    table = pq.read_table(path)
    assert table.column_names == ["id", "name", "embedding"]
    assert table["id"].to_pylist() == list(range(ENTITIES))
    assert table["name"].to_pylist() == embedding.entity_names(np.arange(ENTITIES))
    rows = np.array(table["embedding"].to_pylist(), np.float32)
    assert np.array_equal(rows, embedding.entities)


def test_text_brings_every_number_back(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.tsv"
    export(embedding, path)
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    assert [line[0] for line in lines] == embedding.entity_names(np.arange(ENTITIES))
    numbers = np.array([line[1:] for line in lines], np.float32)
    assert np.array_equal(numbers, embedding.entities)


def test_npy_has_names_beside_it(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    export(embedding, path)
    assert np.array_equal(np.load(path), embedding.entities)
    names = (tmp_path / "vectors.names.txt").read_text().splitlines()
    assert names == embedding.entity_names(np.arange(ENTITIES))


def test_relations_of_dot_are_names_without_numbers(
    tmp_path: Path, embedded_graph: oc.Graph
) -> None:
    embedding = embed(tmp_path / "dot", embedded_graph, "dot")
    names = embedding.relation_names(np.arange(RELATIONS))
    for suffix in ("npy", "tsv", "parquet"):
        path = tmp_path / f"relations.{suffix}"
        assert export(embedding, path, what="relations") == RELATIONS
    assert np.load(tmp_path / "relations.npy").shape == (RELATIONS, 0)
    assert (tmp_path / "relations.tsv").read_text().splitlines() == names
    table = pq.read_table(tmp_path / "relations.parquet")
    assert table["name"].to_pylist() == names
    assert table["embedding"].to_pylist() == [[]] * RELATIONS


def test_an_export_in_blocks_is_the_export_at_once(
    embedding: Embedding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for suffix in ("npy", "tsv", "parquet"):
        export(embedding, tmp_path / f"whole.{suffix}")
    monkeypatch.setattr("outercore.embedding.use.embedding.BLOCK_BYTES", 5 * WIDTH * 4)
    for suffix in ("npy", "tsv", "parquet"):
        export(embedding, tmp_path / f"blocks.{suffix}")
    for suffix in ("npy", "tsv"):
        blocks = (tmp_path / f"blocks.{suffix}").read_bytes()
        assert blocks == (tmp_path / f"whole.{suffix}").read_bytes()
    assert pq.read_table(tmp_path / "blocks.parquet") == pq.read_table(tmp_path / "whole.parquet")


def anonymous_memory() -> int:
    """Bytes of this process that are no file's."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("suffix", ["npy", "parquet", "tsv"])
def test_an_export_holds_no_table_in_memory(
    tmp_path: Path, embedded_graph: oc.Graph, suffix: str
) -> None:
    rows = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float32, (600_000, 64))
    model = ModelConfig("dot", 64)
    nothing = np.empty((1, 0), np.float32)
    embedding = write_run(tmp_path / "run", embedded_graph.root, rows, nothing, model, 1)
    most = 0

    def watch(phase: str, done: int, total: int, unit: str) -> None:
        nonlocal most
        most = max(most, anonymous_memory())

    before = anonymous_memory()
    path = tmp_path / f"vectors.{suffix}"
    assert export(embedding, path, by_id=True, progress=watch) == 600_000
    # 146 MiB of rows.
    assert most - before < 80 << 20
    path.unlink()


def test_reverse_relations_are_named_as_such(tmp_path: Path, embedded_graph: oc.Graph) -> None:
    embedding = embed(tmp_path / "run", embedded_graph, reciprocal=True)
    export(embedding, tmp_path / "relations.parquet", what="relations")
    table = pq.read_table(tmp_path / "relations.parquet")
    names = [f"r{number}" for number in range(RELATIONS)]
    assert table["name"].to_pylist() == [*names, *(f"{name} (reverse)" for name in names)]
    rows = np.array(table["embedding"].to_pylist(), np.float32)
    assert np.array_equal(rows, embedding.relations)


def test_ids_stand_for_names_on_request(embedding: Embedding, tmp_path: Path) -> None:
    export(embedding, tmp_path / "a.tsv", by_id=True)
    firsts = [line.split("\t")[0] for line in (tmp_path / "a.tsv").read_text().splitlines()]
    assert firsts == [str(number) for number in range(ENTITIES)]
    export(embedding, tmp_path / "a.parquet", by_id=True)
    assert pq.read_table(tmp_path / "a.parquet").column_names == ["id", "embedding"]


def test_an_export_replaces_nothing_unasked(embedding: Embedding, tmp_path: Path) -> None:
    path = tmp_path / "vectors.tsv"
    path.write_text("mine")
    with pytest.raises(InvalidError, match="exists already"):
        export(embedding, path)
    assert path.read_text() == "mine"
    export(embedding, path, overwrite=True)
    assert path.read_text().startswith("n0\t")


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"h": ["a\tb", "c"], "r": ["r", "r"], "t": ["c", "d"]}
    pq.write_table(pa.table(columns), tmp_path / "train.parquet")
    import_triples(tmp_path / "train.parquet", tmp_path / "tabs")
    embedding = embed(tmp_path / "run", oc.open(tmp_path / "tabs"))
    with pytest.raises(InvalidError, match=r"'a\\tb' has a tab.*\n.*Parquet"):
        export(embedding, tmp_path / "vectors.tsv")
    assert not [file.name for file in tmp_path.iterdir() if "vectors" in file.name]
    assert export(embedding, tmp_path / "vectors.parquet") == 3


def test_a_name_without_a_format_is_refused(embedding: Embedding, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"ends in one of \.npy, \.parquet, \.csv, \.tsv"):
        export(embedding, tmp_path / "vectors.doc")
