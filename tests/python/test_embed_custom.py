"""Score functions of one's own: trained, resumed and used, and never taken from a run."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from outercore import embedding as embeddings
from outercore.embedding.gradients.custom import load_score
from outercore.errors import InterruptError, InvalidError, NotFoundError
from outercore.runs.progress import Observer

SCORES = """
import torch

def product(heads, relations, tails):
    return (heads * relations * tails).sum(-1)

def shifted(heads, relations, tails):
    return -(heads + relations[..., :1] - tails).abs().sum(-1)

number = 7
"""
SMALL = {"dim": 8, "epochs": 2, "negatives": 12, "batch_size": 32, "threads": 1, "memory": "256MiB"}


def product(heads: torch.Tensor, relations: torch.Tensor, tails: torch.Tensor) -> torch.Tensor:
    return (heads * relations * tails).sum(-1)


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    path = tmp_path / "my_scores.py"
    path.write_text(SCORES)
    return path


class StopAfter(Observer):
    def __init__(self, batches: int) -> None:
        self.batches = batches

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        self.batches -= 1
        if self.batches == 0:
            raise InterruptError("stopped")


@pytest.mark.parametrize("placement", [{}, {"partitions": 4, "slots": 2}])
def test_a_function_learns_what_the_built_in_model_learns(
    tmp_path: Path, embedded_graph: oc.Graph, placement: dict[str, Any]
) -> None:
    options = {**SMALL, **placement, "init_scale": 0.1}
    own = oc.embed(embedded_graph.root, score=product, out=tmp_path / "own", **options)
    built_in = oc.embed(embedded_graph.root, model="distmult", out=tmp_path / "other", **options)
    np.testing.assert_allclose(own.entities, built_in.entities, rtol=1e-3, atol=1e-5)
    assert own.mrr == pytest.approx(built_in.mrr, rel=1e-3)


def test_a_relation_has_as_many_numbers_as_one_says(
    tmp_path: Path, embedded_graph: oc.Graph, scores: Path
) -> None:
    result = oc.embed(
        embedded_graph.root,
        score=f"{scores}:shifted",
        relation_dim=1,
        out=tmp_path / "own",
        **SMALL,
    )
    assert result.relations.shape == (len(embedded_graph.relations), 1)
    assert result.entities.shape == (embedded_graph.num_nodes, 8)


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda h, r, t: (h * r * t).sum(-1, keepdim=True), r"expected a tensor \[2, 3\]"),
        (lambda h, r, t: h * r * t, r"expected a tensor \[2, 3\], found Tensor \[2, 3, 8\]"),
        (lambda h, r, t: (h * r * t).sum(), r"expected a tensor \[2, 3\], found Tensor \[\]"),
        (lambda h, r, t: h.view(-1, 1000), "fails for heads"),
        (lambda h, r, t: (h * r * t).sum(-1).detach(), "does not depend on the rows"),
        (lambda h, r, t: 1.0, "found float"),
    ],
)
def test_a_function_of_another_shape_is_refused_before_anything_is_written(
    tmp_path: Path, embedded_graph: oc.Graph, score: Any, message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        oc.embed(embedded_graph.root, score=score, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


def test_a_run_that_diverged_at_once_can_be_started_again(
    tmp_path: Path, embedded_graph: oc.Graph
) -> None:
    def broken(heads: Any, relations: Any, tails: Any) -> Any:
        return product(heads, relations, tails) * torch.nan

    with pytest.raises(InvalidError, match="expected a finite loss"):
        oc.embed(embedded_graph.root, score=broken, out=tmp_path / "run", **SMALL)
    assert oc.embed(embedded_graph.root, score=product, out=tmp_path / "run", **SMALL).metrics


def test_a_run_goes_on_with_the_function_given_again(
    tmp_path: Path, embedded_graph: oc.Graph, scores: Path
) -> None:
    score = f"{scores}:product"
    whole = oc.embed(embedded_graph.root, score=score, out=tmp_path / "whole", **SMALL)
    with pytest.raises(InterruptError):
        oc.embed(
            embedded_graph.root, score=score, out=tmp_path / "run", observer=StopAfter(12),
            checkpoint_seconds=1e-9, **SMALL,
        )  # fmt: skip
    with pytest.raises(InvalidError, match=r"made with `.*my_scores.py:product`"):
        oc.resume(tmp_path / "run")
    scores.write_text(SCORES.replace("(heads * relations", "(heads * 2 * relations"))
    with pytest.raises(InvalidError, match="has another text"):
        oc.resume(tmp_path / "run", score=score)
    scores.write_text("# Moved by a line.\n" + SCORES)
    result = oc.resume(tmp_path / "run", score=score)
    np.testing.assert_array_equal(
        result.entities.view(np.uint32), np.asarray(whole.entities).view(np.uint32)
    )


def test_a_built_in_model_takes_no_function(tmp_path: Path, embedded_graph: oc.Graph) -> None:
    with pytest.raises(InvalidError, match="model `complex`: found a score function"):
        oc.embed(embedded_graph.root, model="complex", score=product, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
    with pytest.raises(InvalidError, match="model `custom`: found no score function"):
        oc.embed(embedded_graph.root, model="custom", out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()
    oc.embed(embedded_graph.root, model="dot", out=tmp_path / "run", **SMALL)
    with pytest.raises(InvalidError, match="made with a built-in model"):
        oc.resume(tmp_path / "run", score=product)


def test_predictions_and_figures_need_the_function(
    tmp_path: Path, embedded_graph: oc.Graph, scores: Path
) -> None:
    run = tmp_path / "run"
    made = oc.embed(embedded_graph.root, score=f"{scores}:product", out=run, **SMALL)
    without = oc.Embedding.open(run)
    assert without.rows([0]).shape == (1, 8)
    for ask in (
        lambda: embeddings.predict(without, head="n1", relation="r0"),
        lambda: embeddings.assess(without, parts=["valid"]),
    ):
        with pytest.raises(InvalidError, match="was made with `") as refused:
            ask()
        assert "score='FILE.py:NAME'" in str(refused.value)
    with pytest.raises(InvalidError, match="says no distance"):
        embeddings.neighbours(without, "n1")
    assert embeddings.neighbours(without, "n1", 3, metric="cosine").ids.shape == (1, 3)
    another = oc.Embedding.open(run, score=f"{scores}:shifted")
    with pytest.raises(InvalidError, match=r"`.*:shifted` has another text"):
        embeddings.predict(another, head="n1", relation="r0")
    embedding = oc.Embedding.open(run, score=f"{scores}:product")
    found = embeddings.predict(embedding, head="n1", relation="r0", k=embedding.num_entities)
    table, head = embedding.entities, embedding.rows(embedding.entity_ids("n1"))
    expected = (table * head * embedding.relations[embedding.relation_ids("r0")]).sum(1)
    assert found.ids[0].tolist() == np.argsort(-expected, kind="stable").tolist()
    figures = embeddings.assess(embedding, parts=["valid"])
    assert figures[0]["mrr"] == pytest.approx(made.metrics[0]["mrr"])


def test_the_command_line_takes_a_file_and_its_function(
    embedded_graph: oc.Graph, scores: Path, outcome: Any
) -> None:
    root = embedded_graph.root
    small = ("--dim", 8, "--epochs", 1, "--negatives", 12, "--out", "run")
    code, out, _ = outcome("embed", root, "--score", f"{scores}:product", *small)
    assert (code, out.splitlines()[-1]) == (0, "run")
    assert json.loads(Path("run/embedding.json").read_text())["score"] == f"{scores}:product"
    question = ("embedding", "predict", "run", "--head", "n1", "--relation", "r0", "-k", "2")
    assert outcome(*question)[0] == 1
    code, out, _ = outcome(*question, "--score", f"{scores}:product")
    assert (code, len([line for line in out.splitlines() if " n1 " in line])) == (0, 2)
    code, _, err = outcome(*question, "--score", f"{scores}:product", "--approximate")
    assert (code, "predictions are exact then" in err) == (1, True)
    code, out, _ = outcome("embedding", "evaluate", "run", "--part", "valid", "--score",
                           f"{scores}:product")  # fmt: skip
    assert code == 0
    code, out, _ = outcome("plan", "embed", root, "--score", f"{scores}:product", "--dim", 8,
                           "--json")  # fmt: skip
    assert json.loads(out)["parts_memory"]["score function"] == 64 * (1 << 21)
    code, _, err = outcome("embed", root, "--model", "dot", "--score", f"{scores}:product")
    assert (code, "found a score function beside it" in err) == (1, True)


def test_a_run_of_a_function_is_compared_with_any_other(
    embedded_graph: oc.Graph, scores: Path, outcome: Any
) -> None:
    product, shifted = f"{scores}:product", f"{scores}:shifted"
    for name, options in (
        ("built-in", ("--model", "distmult")),
        ("own", ("--score", product)),
        ("another", ("--score", shifted)),
    ):
        small = ("--dim", 8, "--epochs", 1, "--negatives", 12, "--out", name)
        assert outcome("embed", embedded_graph.root, *options, *small)[0] == 0
    for runs, given in (
        (("built-in", "own"), ("--score", product)),
        (("own", "built-in"), ("--score", product)),
        (("own", "another"), ("--score", product, "--other-score", shifted)),
    ):
        compare = ("embedding", "compare", *runs, "--part", "valid", "--json")
        code, out, err = outcome(*compare, *given)
        assert code == 0, err
        found = json.loads(out)
        for run, figure in zip(runs, (found["mrr"], found["other_mrr"]), strict=True):
            score = {"own": product, "another": shifted}.get(run)
            expected = embeddings.assess(oc.Embedding.open(run, score=score), parts=["valid"])
            assert figure == pytest.approx(expected[0]["mrr"])


@pytest.mark.parametrize(
    ("score", "kind", "message"),
    [
        ("nothing", InvalidError, "expected `FILE.py:NAME`"),
        ("{path}:", InvalidError, "expected `FILE.py:NAME`"),
        ("{path}:absent", NotFoundError, "has no `absent`"),
        ("{path}:number", InvalidError, "expected a function, found int"),
        ("gone.py:product", NotFoundError, "no file `gone.py`"),
        ("some_module:product", InvalidError, "expected `FILE.py:NAME`"),
        ("{broken}:product", InvalidError, "fails: ZeroDivisionError"),
        ("{more}:product", InvalidError, "fails: ModuleNotFoundError"),
    ],
)
def test_what_is_no_function_is_named(
    tmp_path: Path,
    scores: Path,
    score: str,
    kind: Any,
    message: str,
) -> None:
    more = tmp_path / "needs_more.py"
    more.write_text("import no_such_library\n")
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    with pytest.raises(kind, match=message.replace("(", r"\(")):
        load_score(score.format(path=scores, broken=broken, more=more))


def test_what_a_function_is_bound_to_tells_it_from_another(tmp_path: Path) -> None:
    def scaled(heads: Any, relations: Any, tails: Any, by: float) -> Any:
        return by * product(heads, relations, tails)

    class Model(torch.nn.Module):
        def forward(self, heads: Any, relations: Any, tails: Any) -> Any:
            return product(heads, relations, tails)

    digests = [
        load_score(score).digest
        for score in (product, partial(scaled, by=1.0), partial(scaled, by=2.0), Model())
    ]
    assert all(digests)
    assert len(set(digests)) == len(digests)
