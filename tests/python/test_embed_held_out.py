"""Triples of a knowledge graph without parts of its own, some of which are held out."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import outercore as oc
from outercore import _core
from outercore import embedding as embeddings
from outercore.data.triples import PARTS, HeldOut, Triples
from outercore.embedding.config import DataConfig, EmbedConfig, configuration
from outercore.embedding.data.parts import EmbedData, knowledge_graph
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.partitions import PartitionStore, sorting
from outercore.errors import InterruptError, InvalidError
from outercore.importing.build.triples import TripleOptions, import_triples
from outercore.runs.progress import Observer

ENTITIES, RELATIONS = 70, 4
SMALL: dict[str, Any] = {
    "model": "distmult",
    "dim": 8,
    "negatives": 10,
    "batch_size": 64,
    "epochs": 3,
    "validate_every": 1,
    "threads": 1,
    "memory": "256MiB",
}
IN_PARTITIONS = {"partitions": 6, "slots": 3}


def rows(weights: bool) -> list[str]:
    """Triples, each with a weight that its ids say, and some twice."""
    random = np.random.default_rng(3)
    found = random.integers((ENTITIES, RELATIONS, ENTITIES), size=(900, 3)).tolist()
    return [
        f"{head}\t{relation}\t{tail}"
        + (f"\t{weight_of(head, relation, tail)}\n" if weights else "\n")
        for head, relation, tail in found + found[:50]
    ]


def weight_of(head: int, relation: int, tail: int) -> float:
    return 1 + head + 100 * relation + tail / 128


@pytest.fixture(scope="module", params=["plain", "weighted"])
def facts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of one file of triples."""
    root = tmp_path_factory.mktemp(request.param)
    weighted = request.param == "weighted"
    (root / "all.tsv").write_text("".join(rows(weighted)))
    columns = "hrtw" if weighted else "hrt"
    options = TripleOptions(memory="16MiB", columns=columns)
    import_triples(root / "all.tsv", root / "set", options=options)
    return root / "set"


def data_of(facts: Path, share: float, seed: int = 0) -> EmbedData:
    return knowledge_graph(oc.open(facts), DataConfig(held_out_triples=share), seed)


def test_parts_are_disjoint_and_together_all_triples_with_their_weights(facts: Path) -> None:
    data, whole = data_of(facts, 0.4), data_of(facts, 0.0)
    assert list(data.parts) == list(PARTS)
    assert list(whole.parts) == ["train"]
    assert data.relations == whole.relations == RELATIONS
    parts = [data.parts[part] for part in PARTS]
    tables = [part.read() for part in parts]
    assert [len(table) for table in tables] == [part.count for part in parts]
    assert sorted(np.concatenate(tables).tolist()) == sorted(whole.train.read().tolist())
    sets = [set(map(tuple, table.tolist())) for table in tables]
    assert sum(map(len, sets)) == len(set.union(*sets))
    for table in tables[1:]:
        assert 0.15 < len(table) / whole.triples < 0.25
    for part, table in zip(parts, tables, strict=True):
        weights = part.read_weights()
        assert (weights is not None) == data.weighted == whole.weighted
        if weights is not None:
            expected = [weight_of(*triple) for triple in table.tolist()]
            assert weights.tolist() == np.float32(expected).tolist()
        assert np.array_equal(np.concatenate(list(part.chunks(7))), table)
    assert sum(len(chunk) for chunk in data.answers("test")) == whole.triples
    assert data.degrees().sum() == 2 * data.triples


def parts_of(triples: NDArray[np.int64], held_out: HeldOut) -> NDArray[np.uint8]:
    """The definition: the place in `PARTS` of each triple's part. `triples` int64 [m, 3]."""
    words = np.full(len(triples), held_out.seed ^ int.from_bytes(b"held out", "big"), np.uint64)
    for column in triples.T:
        words = mixed(words) ^ column.astype(np.uint64)
    # As many bits as a float64 holds: 0 or more, less than 1.
    draws = (mixed(words) >> np.uint64(11)) * 2.0**-53
    parts = np.full(len(triples), PARTS.index("train"), np.uint8)
    parts[draws < held_out.test + held_out.valid] = PARTS.index("valid")
    parts[draws < held_out.test] = PARTS.index("test")
    return parts


def mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection in which every bit depends on all."""
    words = words + np.uint64(0x9E37_79B9_7F4A_7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return words ^ (words >> np.uint64(31))


def test_what_is_held_out_depends_on_the_triple_and_the_seed_alone(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    triples = random.integers((1000, 5, 1000), size=(5000, 3))
    held_out = HeldOut(0.1, 0.2, seed=7)
    found, order = parts_of(triples, held_out), random.permutation(len(triples))
    assert np.array_equal(parts_of(triples[order], held_out), found[order])
    assert not np.array_equal(parts_of(triples, HeldOut(0.1, 0.2, seed=8)), found)
    shares = np.bincount(found) / len(found)
    assert np.allclose(shares, [0.7, 0.1, 0.2], atol=0.02)
    # Numbers are part of every result: keep them.
    first = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
    assert parts_of(np.arange(60).reshape(20, 3), held_out).tolist() == first
    # The core divides them in the same way.
    np.save(tmp_path / "triples.npy", triples)
    divided = Triples(tmp_path / "triples.npy", key="train").divided(held_out)
    assert list(divided) == list(PARTS)
    for number, part in enumerate(PARTS):
        expected = triples[found == number]
        assert divided[part].count == len(expected)
        assert np.array_equal(divided[part].read(), expected)


def test_partitions_have_the_triples_of_their_part(facts: Path, tmp_path: Path) -> None:
    data, whole = data_of(facts, 0.4), data_of(facts, 0.0)
    identities = {one.train.to_core("some")["identity"] for one in (data, whole)}
    identities.add(data_of(facts, 0.4, seed=1).train.to_core("some")["identity"])
    assert len(identities) == 3
    how: dict[str, Any] = {"entity_count": data.entities, "relation_count": data.relations}
    how |= {"partitions": 2, "memory": 1 << 20, "seed": 0}
    trained = {}
    for part in PARTS:
        counts = _core.sort_triples(
            tmp_path, sorting(data.parts[part].to_core("some"), **how), None
        )
        assert np.sum(counts["counted"]) == data.parts[part].count
        trained[part] = (tmp_path / "buckets.bin").read_bytes()
    # Those of a file in which there are no others.
    for part in PARTS:
        np.save(tmp_path / "own.npy", data.parts[part].read())
        weights = data.parts[part].read_weights()
        if weights is not None:
            np.save(tmp_path / "weights.npy", weights)
        path = None if weights is None else tmp_path / "weights.npy"
        own = Triples(tmp_path / "own.npy", path, key="train").to_core()
        # The file says whose the triples are.
        own["identity"] = data.parts[part].to_core("some")["identity"]
        _core.sort_triples(tmp_path, sorting(own, **how), None)
        assert (tmp_path / "buckets.bin").read_bytes() == trained[part]


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_held_out_triples_are_ranked_and_not_trained_on(
    budget: dict[str, int], facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, trained = data_of(facts, 0.3), []
    create = PartitionStore.create

    def watched(*given: Any, **options: Any) -> PartitionStore:
        trained.append(_core.TripleSource(given[1]).reader().next(1 << 20))
        return create(*given, **options)

    monkeypatch.setattr(PartitionStore, "create", watched)
    result = oc.embed(facts, held_out=0.3, patience=1, out=tmp_path / "run", **SMALL, **budget)
    assert [len(table) for table in trained] == ([data.triples] if budget else [])
    counts = result.record["data_set"]
    assert [counts[f"{part} triples"] for part in PARTS] == [data.parts[one].count for one in PARTS]
    assert {epoch["triples"] for epoch in result.record["epochs"]} == {data.triples}
    assert [one["part"] for one in result.metrics] == ["valid", "test"]
    assert result.metrics == embeddings.assess(result.embedding, parts=["valid", "test"])
    ranked = embeddings.ranks(result.embedding, part="test").triples
    assert np.array_equal(ranked, data.parts["test"].read())


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_an_interrupted_run_with_held_out_triples_goes_on_to_the_same_bits(
    budget: dict[str, int], facts: Path, tmp_path: Path
) -> None:
    class Stop(Observer):
        def epoch_done(self, report: Any) -> None:
            if report.epoch == 0:
                os.kill(os.getpid(), signal.SIGINT)

    options = {"held_out": 0.3, **SMALL, **budget}
    whole = oc.embed(facts, out=tmp_path / "whole", **options)
    with pytest.raises(InterruptError, match="--resume"):
        oc.embed(facts, out=tmp_path / "run", observer=Stop(), **options)
    result = oc.resume(tmp_path / "run")
    assert result.metrics == whole.metrics
    assert np.array_equal(result.entities, whole.entities)


def test_triples_are_held_out_only_if_asked_for(facts: Path, tmp_path: Path) -> None:
    assert configuration().data == DataConfig()
    assert configuration(held_out=0.2).data == DataConfig(held_out=0.2, held_out_triples=0.2)
    result = oc.embed(facts, out=tmp_path / "run", **SMALL)
    assert result.metrics == []
    # The configuration of a run that knew no share of triples.
    values = EmbedDirectory.open(tmp_path / "run").config().to_dict()
    assert values["data"].pop("held_out_triples") == 0.0
    values["data"]["held_out"] = 0.2
    assert list(data_of(facts, EmbedConfig.from_dict(values).data.held_out_triples).parts) == [
        "train"
    ]


def test_a_share_that_leaves_nothing_to_train_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one.tsv").write_text("a\tr\tb\n")
    import_triples(tmp_path / "one.tsv", tmp_path / "set", options=TripleOptions(memory="16MiB"))
    # Whether the one triple is held out is the seed's matter.
    assert data_of(tmp_path / "set", 0.9, seed=34).triples == 1
    with pytest.raises(
        InvalidError, match=r"share 0\.9: none of the 1 triples .* is left"
    ) as found:
        data_of(tmp_path / "set", 0.9, seed=0)
    assert "hint: hold out fewer" in str(found.value)


def test_entities_of_held_out_triples_alone_are_not_seen(tmp_path: Path) -> None:
    (tmp_path / "all.tsv").write_text("".join(f"a{one}\tr\tb{one}\n" for one in range(200)))
    import_triples(tmp_path / "all.tsv", tmp_path / "set", options=TripleOptions(memory="16MiB"))
    found = oc.embed(tmp_path / "set", held_out=0.5, out=tmp_path / "run", **SMALL).embedding
    trained = data_of(tmp_path / "set", 0.5).train.read()
    assert found.seen is not None
    assert np.flatnonzero(found.seen).tolist() == np.unique(trained[:, [0, 2]]).tolist()
    assert 50 < found.seen.sum() < 350


def test_entities_of_the_triples_that_were_trained_on_are_seen(tmp_path: Path) -> None:
    for part, rows in (("train", "a\tr\tb\nc\tr\td\n"), ("valid", "a\tr\tc\n")):
        (tmp_path / f"{part}.tsv").write_text(rows)
    valid, memory = tmp_path / "valid.tsv", TripleOptions(memory="16MiB")
    import_triples(tmp_path / "train.tsv", tmp_path / "set", valid=valid, options=memory)
    found = oc.embed(tmp_path / "set", train_part="valid", out=tmp_path / "run", **SMALL).embedding
    assert found.seen is not None
    names = found.graph.entities.names(np.flatnonzero(found.seen))
    assert sorted(names) == ["a", "c"]
