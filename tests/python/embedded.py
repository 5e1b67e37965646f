"""Finished embeddings for tests, written without training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import outercore as oc
from outercore.base.native import Importer
from outercore.embedding.config import ModelConfig, ModelName
from outercore.embedding.use.embedding import Embedding
from outercore.files.checked_json import checked_json_bytes
from outercore.importing.build.triples import TripleOptions, import_triples

Rows = list[tuple[str, str, str]]
ENTITIES, RELATIONS, WIDTH = 60, 4, 8


def random_triples(seed: int, entities: int = ENTITIES, count: int = 300) -> Rows:
    """Random triples that contain every entity and every relation."""
    draws = np.random.default_rng(seed)
    ids = draws.integers(0, entities, (count, 2))
    ids[:entities, 0] = np.arange(entities)
    relations = draws.integers(0, RELATIONS, count)
    relations[:RELATIONS] = np.arange(RELATIONS)
    return [(f"n{h}", f"r{r}", f"n{t}") for (h, t), r in zip(ids, relations, strict=True)]


def facts(path: Path, train: Rows, valid: Rows | None = None) -> oc.Graph:
    files = {}
    for part, rows in (("train", train), ("valid", valid)):
        if rows:
            files[part] = path.with_name(f"{path.name}-{part}.tsv")
            files[part].write_text("".join("\t".join(row) + "\n" for row in rows))
    import_triples(files["train"], path, valid=files.get("valid"), options=TripleOptions())
    return oc.open(path)


def write_run(
    path: Path,
    data_set: Path,
    entities: NDArray[np.float32],
    relations: NDArray[np.float32],
    model: ModelConfig,
    relation_count: int,
) -> Embedding:
    """A run directory like one of `outercore embed`."""
    path.mkdir(parents=True, exist_ok=True)
    np.save(path / "entities.npy", entities)
    np.save(path / "relations.npy", relations)
    described = {
        "version": 2,
        "model": dataclasses.asdict(model),
        "entities": len(entities),
        "relations": relation_count,
        "width": entities.shape[1],
        "data_set": str(data_set),
        "fingerprint": "",
        "metrics": [],
    }
    (path / "embedding.json").write_bytes(checked_json_bytes(described))
    return Embedding.open(path)


def embed(
    path: Path,
    graph: oc.Graph,
    kind: ModelName = "complex",
    *,
    reciprocal: bool = False,
    seed: int = 5,
    norm: Any = 1,
) -> Embedding:
    """A run with random tables."""
    draws = np.random.default_rng(seed)
    model = ModelConfig(kind, WIDTH, norm, reciprocal)
    rows = len(graph.relations) * (2 if reciprocal else 1)
    entities = draws.standard_normal((graph.num_nodes, WIDTH), np.float32)
    width = model.relation_width
    relations = draws.standard_normal((rows, width), np.float32)
    return write_run(path, graph.root, entities, relations, model, len(graph.relations))


def plain(path: Path, edges: list[tuple[int, int]], *, undirected: bool = False) -> oc.Graph:
    """A data set of a plain graph."""
    options = {"memory": 1 << 26, "undirected": undirected}
    importer = Importer(path, options, lambda *_: None)
    ids = np.array(edges, np.int64)
    importer.push_edges(ids[:, 0], ids[:, 1])
    importer.finish()
    return oc.open(path)


def clustered(path: Path, graph: oc.Graph, kind: ModelName, count: int = 3000) -> Embedding:
    draws = np.random.default_rng(7)
    centres = draws.standard_normal((30, 16), np.float32)
    rows = centres[draws.integers(0, 30, count)] + 0.4 * draws.standard_normal((count, 16))
    width = ModelConfig(kind, 16).relation_width
    relations = draws.standard_normal((1, width), np.float32)
    return write_run(path, graph.root, rows.astype(np.float32), relations, ModelConfig(kind, 16), 1)
