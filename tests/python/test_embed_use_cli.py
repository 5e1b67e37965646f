"""`outercore embedding` on real runs, and going on from them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import outercore as oc
from embedded import Rows, embed, facts, plain, random_triples
from outercore import _core
from outercore import embedding as embeddings
from outercore.embedding.use.embedding import Embedding
from outercore.errors import InvalidError
from outercore.importing.build.triples import TripleOptions, import_triples

OPTIONS: dict[str, Any] = {
    "model": "complex",
    "dim": 8,
    "epochs": 3,
    "batch_size": 100,
    "negatives": 20,
    "reciprocal": True,
    "memory": "300MiB",
}


def held(rows: Rows, known: Rows) -> Rows:
    return [row for row in rows[:40] if row not in known]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set `facts` and a run `run` that embedded it."""
    root = tmp_path_factory.mktemp("use")
    train = random_triples(1)
    facts(root / "facts", train, held(random_triples(2), train))
    oc.embed(root / "facts", out=root / "run", **OPTIONS)
    return root


def test_a_run_opens_as_an_embedding(root: Path) -> None:
    embedding = Embedding.open(root / "run")
    assert embedding.num_entities == 60
    assert embedding.reciprocal
    assert len(embedding.relations) == 2 * embedding.num_relations == 8
    assert np.isfinite(embedding.entities).all()


def test_ranking_again_gives_the_figures_of_the_run(root: Path, outcome: Any) -> None:
    recorded = Embedding.open(root / "run").metrics
    code, out, _ = outcome("embedding", "evaluate", root / "run", "--part", "valid", "--json")
    assert code == 0
    assert json.loads(out) == [one for one in recorded if one["part"] == "valid"]
    code, out, _ = outcome("embedding", "evaluate", root / "run", "--part", "valid")
    assert "filtered and raw" in out
    assert f"MRR {recorded[0]['filtered']['mrr']:.4f}" in out


def test_other_candidates_come_with_their_protocol(root: Path, outcome: Any) -> None:
    arguments = ("--part", "valid", "--candidates", "uniform", "--count", "20", "--also", "degree")
    code, out, _ = outcome("embedding", "evaluate", root / "run", *arguments, "--raw", "--json")
    figures = json.loads(out)
    assert code == 0
    assert [one["candidates"] for one in figures] == ["uniform", "degree"]
    assert "20 entities drawn uniformly" in figures[0]["protocol"]
    assert "by degree" in figures[1]["protocol"]
    assert figures[0]["filtered"] is None


def test_a_part_that_is_not_there_is_named(root: Path, outcome: Any) -> None:
    code, _, err = outcome("embedding", "evaluate", root / "run")
    assert code == 1
    assert "no triples for `test`" in err
    assert "it has train, valid" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("evaluate", "--candidates", "some"), "--candidates (evaluation.candidates): expected on"),
        (("evaluate", "--also", "some"), "--also (evaluation.also): expected one of all, uniform"),
        (("evaluate", "--triples", "-1"), "--triples (evaluation.test_triples): expected at least"),
        (("evaluate", "--count", "0"), "--count (evaluation.count): expected a positive number"),
        (("compare", "run", "--candidates", "some"), "--candidates (evaluation.candidates): expec"),
        (("compare", "run", "--seed", "-1"), "--seed (run.seed): expected 0 to"),
        (("neighbours", "n1", "--recall", "2"), "--recall: expected 0 to 1, found 2.0"),
        (("predict", "--head", "n1", "--recall", "-1"), "--recall: expected 0 to 1, found -1.0"),
    ],
    ids=str,
)
def test_what_cannot_be_ranked_by_is_refused(
    root: Path, outcome: Any, options: tuple[str, ...], message: str
) -> None:
    verb, *others = options
    others = [root / "run" if one == "run" else one for one in others]
    code, _, err = outcome("embedding", verb, root / "run", *others)
    assert code == 1
    assert message in err


@pytest.mark.parametrize(
    "words", [("export",), ("neighbours", "n1"), ("predict", "--head", "n1", "--relation", "r1")]
)
def test_a_missing_directory_of_a_result_is_named(
    root: Path, outcome: Any, words: tuple[str, ...]
) -> None:
    verb, *others = words
    code, _, err = outcome("embedding", verb, root / "run", *others, "--out", "missing/x.tsv")
    assert code == 1
    assert err == (
        "error: `missing/x.tsv`: directory `missing` does not exist\nhint: make it first\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": "foo"}, "evaluation.candidates: expected one of auto"),
        ({"also": ["foo"]}, "foo"),
        ({"triples": -1}, "evaluation.test_triples: expected at least 0, found -1"),
    ],
)
def test_a_protocol_that_there_is_not_is_refused(
    root: Path, options: dict[str, Any], message: str
) -> None:
    embedding = Embedding.open(root / "run")
    with pytest.raises(InvalidError, match=message):
        embeddings.assess(embedding, **options)


def test_ranks_one_by_one_make_the_figures(root: Path) -> None:
    embedding = Embedding.open(root / "run")
    recorded = next(one for one in embedding.metrics if one["part"] == "valid")
    found = embeddings.ranks(embedding, part="valid")
    heads, relations, tails = found.triples.T
    named = zip(
        embedding.entity_names(heads),
        embedding.relation_names(relations),
        embedding.entity_names(tails),
        strict=True,
    )
    assert list(named) == held(random_triples(2), random_triples(1))
    assert found.reciprocal.shape == (len(found.triples), 2)
    by_side = recorded["filtered_by_side"]
    expected = [by_side["tail"]["mrr"], by_side["head"]["mrr"]]
    assert found.reciprocal.mean(axis=0) == pytest.approx(expected)
    raw = embeddings.ranks(embedding, part="valid", filtered=False)
    assert raw.reciprocal.mean() == pytest.approx(recorded["raw"]["mrr"])


def test_two_runs_are_compared_triple_by_triple(root: Path, outcome: Any, tmp_path: Path) -> None:
    oc.embed(root / "facts", out=tmp_path / "other", **{**OPTIONS, "epochs": 1})
    one, other = Embedding.open(root / "run"), Embedding.open(tmp_path / "other")
    arguments = ("embedding", "compare", root / "run", tmp_path / "other", "--part", "valid")
    code, out, _ = outcome(*arguments, "--json")
    found = json.loads(out)
    assert code == 0
    gains = (
        embeddings.ranks(other, part="valid").reciprocal
        - embeddings.ranks(one, part="valid").reciprocal
    ).mean(axis=1)
    assert found["difference"] == pytest.approx(gains.mean())
    assert found["difference"] == pytest.approx(found["other_mrr"] - found["mrr"])
    assert found["error"] == pytest.approx(gains.std(ddof=1) / len(gains) ** 0.5)
    assert found["better"] == np.mean(gains > 0)
    assert found["worse"] == np.mean(gains < 0)
    assert found["within_noise"] == (abs(found["difference"]) <= 1.96 * found["error"])
    code, out, _ = outcome(*arguments)
    assert code == 0
    assert f"MRR {found['other_mrr']:.4f}" in out
    assert "than chance" in out
    assert f"  {tmp_path / 'other'} compared with {root / 'run'}: difference " in out
    assert f"; it ranks {found['better']:.1%} of the triples better, " in out

    code, out, _ = outcome(*arguments, "--triples", "1", "--json")
    assert code == 0
    assert "Infinity" not in out
    found = json.loads(out)
    assert (found["triples"], found["error"], found["within_noise"]) == (1, None, True)

    same = embeddings.compare(one, one, part="valid")
    assert (same.difference, same.error, same.better, same.worse) == (0, 0, 0, 0)
    assert same.within_noise


def test_runs_that_rank_something_else_are_not_compared(root: Path, tmp_path: Path) -> None:
    train = random_triples(1)
    facts(tmp_path / "facts", train, held(random_triples(3), train))
    oc.embed(tmp_path / "facts", out=tmp_path / "run", **OPTIONS)
    one, other = Embedding.open(root / "run"), Embedding.open(tmp_path / "run")
    with pytest.raises(InvalidError, match="other triples are held out"):
        embeddings.compare(one, other, part="valid")


def test_neighbours_are_shown_and_written(root: Path, outcome: Any) -> None:
    embedding = Embedding.open(root / "run")
    expected = embeddings.neighbours(embedding, "n3", 4)
    names = embedding.entity_names(expected.ids[0])
    code, out, _ = outcome("embedding", "neighbours", root / "run", "n3", "-k", "4", "--json")
    assert code == 0
    found = json.loads(out)
    assert {near["entity"] for near in found} == {"n3"}
    assert [near["neighbour"] for near in found] == names
    code, out, _ = outcome("embedding", "neighbours", root / "run", "n3", "-k", "4")
    assert [line.split()[2] for line in out.splitlines() if "n3 " in line] == names
    code, out, _ = outcome(
        "embedding", "neighbours", root / "run", "--all", "-k", "4", "--out", "near.parquet"
    )
    assert (code, out) == (0, "240 rows in near.parquet\n")
    table = pq.read_table("near.parquet").to_pylist()
    of = [row["neighbour"] for row in table if row["entity"] == "n3"]
    assert of == names
    assert [row["rank"] for row in table[:4]] == [1, 2, 3, 4]


def test_candidates_come_from_a_file_of_names(root: Path, outcome: Any) -> None:
    Path("some.txt").write_text("n3\n\nn5\nn8\n")
    command = ("embedding", "neighbours", root / "run", "n3", "--json", "--candidates", "some.txt")
    code, out, err = outcome(*command)
    assert code == 0, err
    assert {near["neighbour"] for near in json.loads(out)} == {"n5", "n8"}
    question = ("embedding", "predict", root / "run", "--head", "n3", "--relation", "r1", "--json")
    code, out, err = outcome(*question, "--candidates", "some.txt")
    assert {answer["tail"] for answer in json.loads(out)} == {"n3", "n5", "n8"}
    Path("some.txt").write_text("n3\nnobody\n")
    code, out, err = outcome(*command)
    assert (code, out) == (1, "")
    assert "--candidates: `some.txt`: line 2: entity `nobody` is not in the data set" in err
    assert outcome(*command[:-1], "none.txt")[0] == 1


def test_entities_that_training_has_not_seen_are_marked(outcome: Any, tmp_path: Path) -> None:
    train = [row for row in random_triples(1) if "n7" not in (row[0], row[2])]
    (tmp_path / "train.tsv").write_text("".join("\t".join(row) + "\n" for row in train))
    (tmp_path / "valid.tsv").write_text("n7\tr0\tn3\n")
    keep = TripleOptions(unknown="keep")
    valid = tmp_path / "valid.tsv"
    import_triples(tmp_path / "train.tsv", tmp_path / "facts", valid=valid, options=keep)
    oc.embed(tmp_path / "facts", out=tmp_path / "run", **OPTIONS)
    command = ("embedding", "neighbours", tmp_path / "run", "n3", "-k", "100")
    code, out, err = outcome(*command, "--json")
    assert code == 0, err
    near = json.loads(out)
    assert [one["neighbour"] for one in near if not one["seen"]] == ["n7"]
    _, out, _ = outcome(*command)
    lines = [line.split() for line in out.splitlines()]
    assert [words[2] for words in lines if words[-1:] == ["no"]] == ["n7"]
    outcome(*command, "--out", "near.csv")
    rows = Path("near.csv").read_text().splitlines()
    assert rows[0] == "entity,rank,neighbour,score,seen"
    assert [row.split(",")[2] for row in rows[1:] if row.endswith("false")] == ["n7"]


def test_predictions_are_shown_and_written(root: Path, outcome: Any) -> None:
    embedding = Embedding.open(root / "run")
    expected = embeddings.predict(embedding, head="n3", relation="r1", k=3, leave_out_known=True)
    names = embedding.entity_names(expected.ids[0])
    question = ("--head", "n3", "--relation", "r1", "--leave-out-known", "-k", "3")
    code, out, _ = outcome("embedding", "predict", root / "run", *question)
    assert code == 0
    shown = [line.split()[:5] for line in out.splitlines() if "n3 " in line]
    assert shown == [["n3", "r1", name, "tail", str(rank + 1)] for rank, name in enumerate(names)]
    code, out, _ = outcome("embedding", "predict", root / "run", *question, "--json")
    assert [answer["tail"] for answer in json.loads(out)] == names


def test_questions_in_a_file_are_answered_in_their_order(
    root: Path, outcome: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["outercore.cli.embedding"], "_GROUP", 2)
    lines = ["n1\tr0\t?", "n2\tr1\t?", "n3\tr0\t?", "", "?\tr2\tn4", "n5\t?\tn6", "n7\tr3\t?"]
    (tmp_path / "open.tsv").write_text("\n".join(lines) + "\n")
    code, out, _ = outcome(
        "embedding", "predict", root / "run", "--questions", "open.tsv", "-k", "2",
        "--out", "found.tsv",
    )  # fmt: skip
    assert (code, out) == (0, "12 rows in found.tsv\n")
    header, *rows = [line.split("\t") for line in Path("found.tsv").read_text().splitlines()]
    assert header == ["head", "relation", "tail", "asked", "rank", "score", "seen"]
    embedding = Embedding.open(root / "run")
    asked = [line.split("\t") for line in lines if line]
    for number, question in enumerate(asked):
        place = question.index("?")
        part = ("head", "relation", "tail")[place]
        given = {
            name: value
            for name, value in zip(("head", "relation", "tail"), question, strict=True)
            if value != "?"
        }
        found = embeddings.predict(embedding, k=2, **given)
        name = embedding.relation_names if part == "relation" else embedding.entity_names
        for rank in range(2):
            row = rows[2 * number + rank]
            expected = list(question)
            expected[place] = name(found.ids[0])[rank]
            assert row[:5] == [*expected, part, str(rank + 1)]
            assert np.float32(row[5]) == pytest.approx(found.scores[0, rank], rel=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n1\tr0\tn2\n", "line 1: expected head, relation and tail"),
        ("n1\tr0\t?\n?\tr0\t?\n", "line 2: expected head, relation and tail"),
        ("n1 r0 ?\n", "line 1: expected head, relation and tail"),
        ("\n", "expected at least one, found none"),
        ("n1\tr0\t?\nn2\tr0\t?\n\nn1\tr9\t?\n", "line 4: relation `r9` is not in the data set"),
        ("n1\tr0\t?\n?\tr0\tnobody\n", "line 2: entity `nobody` is not in the data set"),
    ],
)
def test_a_line_that_is_no_question_is_named(
    root: Path, outcome: Any, tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "open.tsv").write_text(text)
    code, _, err = outcome(
        "embedding", "predict", root / "run", "--questions", "open.tsv", "--out", "found.tsv"
    )
    assert code == 1
    assert message in err
    assert not [file for file in tmp_path.iterdir() if "found" in file.name]


def test_questions_are_text_with_or_without_a_byte_order_mark(
    root: Path, outcome: Any, tmp_path: Path
) -> None:
    command = (
        "embedding",
        "predict",
        root / "run",
        "--questions",
        "open.tsv",
        "--out",
        "found.tsv",
    )
    (tmp_path / "open.tsv").write_bytes(b"n1\tr0\t?\n\xff\tr0\t?\n")
    code, _, err = outcome(*command)
    assert code == 1
    assert "questions `open.tsv`: 'utf-8' codec can't decode" in err
    (tmp_path / "open.tsv").write_text("n1\tr0\t?\n", encoding="utf-8-sig")
    assert outcome(*command)[0] == 0


def test_an_export_says_how_much_it_wrote(root: Path, outcome: Any) -> None:
    code, out, _ = outcome("embedding", "export", root / "run", "--out", "vectors.tsv")
    assert (code, out) == (0, "60 rows in vectors.tsv\n")
    code, _, err = outcome("embedding", "export", root / "run", "--out", "vectors.tsv")
    assert code == 1
    assert "exists already" in err
    code, out, _ = outcome(
        "embedding", "export", root / "run", "--relations", "--out", "relations.parquet", "--json"
    )
    assert json.loads(out) == {"rows": 8, "file": "relations.parquet"}


def test_without_pytorch_rows_are_written_and_scores_say_what_to_install(
    root: Path, tmp_path: Path
) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from outercore.cli import run\n"
        "print([run(['embedding', *words.split()]) for words in sys.argv[1:]])"
    )
    commands = [
        f"export {root / 'run'} --out {tmp_path / 'vectors.tsv'}",
        f"neighbours {root / 'run'} n1",
        f"predict {root / 'run'} --head n1 --relation r1",
        f"evaluate {root / 'run'}",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *commands],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout.splitlines()[-1] == "[0, 1, 1, 1]"
    assert done.stderr.count("embedding needs the package `torch`") == 3
    assert 'pip install "outercore[torch]"' in done.stderr


def test_a_directory_that_is_no_run_is_an_error(outcome: Any, tmp_path: Path) -> None:
    code, _, err = outcome("embedding", "neighbours", tmp_path, "n1")
    assert code == 1
    assert "no `embedding.json` there" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("neighbours",), "expected entities, or `--all`"),
        (("neighbours", "--all"), "`--all` needs `--out FILE`"),
        (("predict",), "expected two of `--head`"),
        (("neighbours", "n1", "--approximate"), "outercore embedding index"),
        (("neighbours", "n1", "--out", "near.txt"), "ends in one of .parquet, .csv, .tsv"),
    ],
)
def test_a_wrong_command_says_what_is_expected(
    root: Path, outcome: Any, arguments: tuple[str, ...], message: str
) -> None:
    code, _, err = outcome("embedding", arguments[0], root / "run", *arguments[1:])
    assert code == 1
    assert message in err


def test_an_index_says_what_it_finds(root: Path, outcome: Any) -> None:
    pytest.importorskip("faiss")
    code, out, _ = outcome("embedding", "index", root / "run", "--metric", "cosine", "--json")
    assert code == 0
    built = json.loads(out)
    assert built["metric"] == "cosine"
    assert built["recalls"][-1]["recall"] > 0.99
    arguments = ("n3", "--metric", "cosine", "-k", "3", "--json")
    _, exact, _ = outcome("embedding", "neighbours", root / "run", *arguments)
    code, found, _ = outcome(
        "embedding", "neighbours", root / "run", *arguments, "--approximate", "--recall", "1"
    )
    assert code == 0
    assert json.loads(found) == json.loads(exact)


def test_a_network_learns_from_an_embedding(outcome: Any, tmp_path: Path) -> None:
    shape = {"nodes": 300, "degree": 6, "features": 4, "classes": 3, "seed": 1}
    _core.generate_planted(tmp_path / "planted", shape, lambda *_: None)
    graph = oc.open(tmp_path / "planted")
    # The nodes of the graph as entities, by their numbers as names.
    labels = graph.array("y")
    rows = [(str(node), "is", f"class {labels[node]}") for node in range(300)]
    facts(tmp_path / "labels", rows)
    options = {**OPTIONS, "epochs": 20, "init_scale": 0.3, "negative_kind": "all"}
    run = oc.embed(tmp_path / "labels", out=tmp_path / "run", **options).run
    embedding = Embedding.open(run)
    np.save("map.npy", embedding.entity_ids([str(node) for node in range(300)]))
    code, out, err = outcome(
        "embedding", "features", run, "planted", "--name", "place", "--map", "map.npy"
    )
    assert code == 0, err
    assert out.startswith("300 nodes, 8 numbers each, as `place`")
    assert "--features place" in err
    assert np.array_equal(oc.open("planted").array("place"), embedding.rows(np.load("map.npy")))
    code, out, err = outcome(
        "train", "planted", "--features", "place", "--model", "mlp", "--fanout", "1",
        "--epochs", "10", "--batch-size", "64", "--lr", "0.02",
        "--memory", "256MiB", "--out", "trained", "--json",
    )  # fmt: skip
    assert code == 0, err
    # The embedding has seen the labels: a network without any edge reads them from it.
    assert json.loads(out)["result"]["scores"]["test"] > 0.9


def test_another_run_goes_on_from_this_one(root: Path, tmp_path: Path) -> None:
    """Without training to speak of, old rows are those of the old run."""
    train = [*random_triples(4, entities=50), ("newcomer", "r9", "n1")]
    new = facts(tmp_path / "new", train)
    options = {**OPTIONS, "epochs": 1, "learning_rate": 1e-12}
    run = oc.embed(tmp_path / "new", out=tmp_path / "next", start_from=root / "run", **options)
    old, found = Embedding.open(root / "run"), Embedding.open(run.run)
    names = [name for name in new.entity_names() if name != "newcomer"]
    assert len(names) == 50
    before, after = old.rows(old.entity_ids(names)), found.rows(found.entity_ids(names))
    assert after == pytest.approx(before, abs=1e-9)
    fresh = found.rows(found.entity_ids("newcomer"))
    assert 0 < np.abs(fresh).max() < 0.01
    for half in range(2):
        for name in new.relation_names():
            row = found.relations[half * found.num_relations + new.relation_id(name)]
            if name != "r9":
                place = half * old.num_relations + int(old.relation_ids(name)[0])
                assert row == pytest.approx(old.relations[place], abs=1e-9)


def test_another_run_goes_on_although_its_data_set_was_moved(tmp_path: Path, outcome: Any) -> None:
    facts(tmp_path / "old", random_triples(4, entities=40))
    facts(tmp_path / "new", random_triples(4, entities=50))
    run = oc.embed(tmp_path / "old", out=tmp_path / "run", **OPTIONS).run
    (tmp_path / "old").rename(tmp_path / "moved")
    again = ("embed", "new", "--model", "complex", "--dim", "8", "--out", "next", "--epochs", "1")
    code, _, err = outcome(*again, "--from", run)
    assert code == 1
    assert "`--from-data`) where it is now" in err
    code, _, err = outcome(*again, "--from-data", "moved")
    assert code == 1
    assert "expected with start_from (`--from`)" in err
    code, _, err = outcome(*again, "--from", run, "--from-data", "moved")
    assert code == 0, err


def test_partitions_go_on_from_the_same_rows_as_memory(root: Path, tmp_path: Path) -> None:
    train = [*random_triples(4, entities=50), ("newcomer", "r9", "n1")]
    facts(tmp_path / "new", train)
    options = {**OPTIONS, "epochs": 1, "learning_rate": 1e-12}
    tables = []
    for partitions in (1, 4):
        run = oc.embed(
            tmp_path / "new",
            out=tmp_path / f"run-{partitions}",
            start_from=root / "run",
            partitions=partitions,
            **options,
        )
        tables.append(np.array(run.entities))
    assert tables[1] == pytest.approx(tables[0], abs=1e-9)


def test_going_on_begins_where_the_other_run_was(root: Path, tmp_path: Path) -> None:
    """A data set that grows: the old rows are worth their epochs."""
    train = [(f"n{i}", f"r{j}", f"n{(i * (j + 2) + j) % 40}") for i in range(40) for j in range(4)]
    grown = [*train, *((f"m{i}", "r0", f"n{2 * i % 40}") for i in range(10))]
    facts(tmp_path / "small", train)
    facts(tmp_path / "grown", grown, held(random_triples(2, entities=40), grown))
    options = {**OPTIONS, "negative_kind": "all", "batch_size": 40}
    options["learning_rate"] = 0.1
    oc.embed(tmp_path / "small", out=tmp_path / "first", **{**options, "epochs": 20})
    losses = []
    for start_from in (None, tmp_path / "first"):
        run = oc.embed(
            tmp_path / "grown",
            out=tmp_path / f"then-{start_from is not None}",
            start_from=start_from,
            **{**options, "epochs": 2},
        )
        losses.append([epoch["loss"] for epoch in run.record["epochs"]])
    cold, warm = losses
    assert warm[0] < cold[0]
    assert warm[1] < cold[1]


def test_another_dimension_does_not_go_on_and_leaves_nothing(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"model\.dim is 8, that of the new run 10"):
        oc.embed(
            root / "facts", out=tmp_path / "next", start_from=root / "run", **{**OPTIONS, "dim": 10}
        )
    assert not (tmp_path / "next").exists()


def test_dot_is_asked_without_a_relation(root: Path, tmp_path: Path, outcome: Any) -> None:
    embedding = embed(tmp_path / "dot", oc.open(root / "facts"), "dot")
    question = ("embedding", "predict", tmp_path / "dot", "--head", "n3", "-k", "2")
    code, out, err = outcome(*question, "--json")
    assert code == 0, err
    found = json.loads(out)
    assert {(answer["head"], answer["relation"]) for answer in found} == {("n3", None)}
    ids = [int(answer["tail"].removeprefix("n")) for answer in found]
    assert ids == embeddings.predict(embedding, head="n3", k=2).ids[0].tolist()
    code, _, err = outcome(*question, "--out", "found.tsv")
    assert code == 0, err
    rows = [line.split("\t") for line in Path("found.tsv").read_text().splitlines()]
    assert [row[:3] for row in rows[1:]] == [["n3", "", f"n{entity}"] for entity in ids]


def test_of_a_plain_graph_nodes_are_asked_by_number(tmp_path: Path, outcome: Any) -> None:
    edges = [(i, (i + step) % 50) for i in range(50) for step in (1, 2, 5)]
    plain(tmp_path / "plain", edges, undirected=True)
    oc.embed(
        tmp_path / "plain", out=tmp_path / "run", model="dot", dim=8, epochs=3, memory="300MiB"
    )
    code, out, err = outcome(
        "embedding", "predict", "run", "--head", "7", "--leave-out-known", "-k", "50", "--json"
    )
    assert code == 0, err
    linked = {(7 + step) % 50 for step in (1, 2, 5, -1, -2, -5)}
    assert {answer["tail"] for answer in json.loads(out)} == set(range(50)) - linked - {7}
    code, out, err = outcome("embedding", "evaluate", "run", "--json")
    assert code == 0, err
    recorded = [one for one in Embedding.open("run").metrics if one["part"] == "test"]
    assert json.loads(out) == recorded
    code, _, err = outcome("embedding", "features", "run", "--name", "place")
    assert code == 0, err
    assert oc.open("plain").array("place").shape == (50, 8)
