"""What results look like where somebody prints them, and in a notebook."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from outercore.base.display import Forecast, html_table
from outercore.embedding.use.neighbours import Nearest
from outercore.loading.sampler import SampledSubgraph


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from outercore.cli import run

    root = tmp_path_factory.mktemp("shown") / "planted"
    sizes = ["--nodes", "300", "--degree", "5", "--features", "8", "--classes", "3"]
    assert run(["generate", "planted", *sizes, "--out", str(root), "--json"]) == 0
    return root


def lines_of(shown: object) -> list[str]:
    text = repr(shown)
    assert text == str(shown)
    return text.splitlines()


def test_dir_shows_the_api_and_nothing_else() -> None:
    assert sorted(oc.__all__) == dir(oc)
    assert all(getattr(oc, name) is not None for name in dir(oc))


def test_a_training_is_shown_by_its_scores_and_is_still_its_record(
    data_set: Path, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    record = oc.train(data_set, out=tmp_path / "run", hidden=8, fanout=(4, 3), epochs=2)
    title, *rows = lines_of(record)
    assert title == "Training of sage on planted"
    assert [row.split("  ")[1] for row in rows] == [
        *("valid accuracy", "test accuracy", "epochs", "loss", "seconds", "run")
    ]
    assert f"{record['result']['scores']['test']:.4f}" in rows[1]
    assert "<th style='text-align: left'>test accuracy</th>" in record._repr_html_()
    assert json.loads(json.dumps(record)) == dict(record)
    assert pickle.loads(pickle.dumps(record)) == record
    again = oc.resume(tmp_path / "run")
    assert lines_of(again) == lines_of(record)
    del record["epochs"]
    assert lines_of(record)[0] == "Training"


def test_a_loader_its_plan_and_its_forecast_are_a_few_lines(data_set: Path) -> None:
    pytest.importorskip("torch")
    loader = oc.NeighborLoader(data_set, [5, 3], "train", batch_size=32, memory="64MiB")
    expected = (
        f"NeighborLoader('{data_set}', num_neighbors=[5, 3], batch_size=32, memory='64.0 MiB')"
    )
    assert lines_of(loader) == [expected]
    plan = lines_of(loader.plan())
    assert plan[:2] == ["Plan", "  budget        64.0 MiB"]
    assert [line.split("  ")[1] for line in plan[2:]] == [
        *("topology", "feature rows", "batches", "read buffers")
    ]
    forecast = lines_of(loader.forecast())
    assert forecast[0] == "Forecast, 5 batches an epoch"
    assert len(forecast) == 3
    loader.close()
    assert lines_of(loader) == [expected]
    links = oc.LinkNeighborLoader(data_set, [5], batch_size=8, memory="64MiB")
    assert "batch_size=8," in repr(links)


def test_plans_have_words_and_units(data_set: Path) -> None:
    pytest.importorskip("torch")
    plan = oc.plan("train", data_set, fanout=(3, 2), hidden=8, model="gcn", memory="64MiB")
    rows = dict(row.strip().split("  ", 1) for row in lines_of(plan)[1:])
    assert rows["in-degrees"].strip() == "1.2 KiB"
    assert rows["all rows stay with"].strip().endswith("MiB")
    assert "limited by" in rows["later epochs"]
    rows = dict(row.strip().split("  ", 1) for row in lines_of(oc.plan("embed", data_set))[1:])
    assert rows["placement"].strip() == "everything in memory"
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_an_algorithm_is_shown_by_its_facts(data_set: Path) -> None:
    done = oc.run("wcc", data_set)
    rows = dict(row.split(maxsplit=1) for row in lines_of(done)[1:])
    assert rows["values"] == "int64 [300]"
    assert rows["components"] == str(done.facts["components"])
    assert rows.keys() >= {"passes", "time"}
    assert "<caption>Run of wcc</caption>" in done._repr_html_()
    plan = lines_of(oc.plan("wcc", data_set))
    assert plan[:2] == ["Plan", "  budget                      1.0 GiB"]
    assert "_" not in "".join(plan)
    assert "more" not in plan[-1]


def test_an_embedding_is_one_line_and_a_table(data_set: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done: Any = oc.embed(data_set, out=tmp_path / "run", dim=4, epochs=1, threads=1)
    [line] = lines_of(done)
    assert line.startswith(f"EmbedResult(run='{tmp_path}/run', entities=[300, 4] (4.7 KiB), mrr=")
    assert "300 rows of 4 numbers, 4.7 KiB" in done._repr_html_()


def test_a_graph_has_a_table_with_its_types(tmp_path: Path, data_set: Path) -> None:
    graph = oc.open(data_set)
    assert len(lines_of(graph)) == 1
    assert "nodes/node/x" in graph._repr_html_()
    naive.write(tmp_path / "<b>", 4, np.arange(3), np.arange(1, 4))
    assert "/&lt;b&gt;</caption>" in oc.open(tmp_path / "<b>")._repr_html_()


def test_arrays_within_results_are_shown_by_type_and_shape() -> None:
    ids, scores = np.zeros((1000, 3), np.int64), np.zeros((1000, 3), np.float32)
    assert repr(Nearest("cosine", ids, scores)) == (
        "Nearest(metric='cosine', ids=int64 [1,000, 3], scores=float32 [1,000, 3])"
    )
    one = np.zeros(9, np.int64)
    batch = SampledSubgraph(one, one, one, None, one, 2, [2, 7], [9], arrays={"year": one})
    assert "n_id=int64 [9]" in repr(batch)
    assert "arrays={'year': int64 [9]}" in repr(batch)


def test_a_forecast_without_epochs_has_no_rows() -> None:
    assert lines_of(Forecast({})) == ["Forecast, 0 batches an epoch"]


def test_names_and_values_are_no_html() -> None:
    assert "<td style='text-align: left'>&lt;i&gt;</td>" in html_table("a", [("b", "<i>")])
