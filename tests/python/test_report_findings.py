"""A report says what limited a run and what is wrong with it, with axes that people read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import outercore as oc
from outercore import _core

pytest.importorskip("plotly")

from outercore.runs.report import charts, training, write_report
from outercore.runs.report.charts import byte_unit, counted, empty, time_unit
from outercore.runs.report.findings import bottleneck, warnings
from outercore.runs.report.runs import AlgorithmRun, EmbeddingRun, Run
from test_report import record, write
from test_report_runs import record as algorithm_record


def trained(*losses: float, scores: bool = True, **description: Any) -> Run:
    content = record()
    [first, *_] = content["epochs"]
    content["epochs"] = [
        {**first, "epoch": epoch, "loss": loss, "score": 0.5 if scores else None}
        for epoch, loss in enumerate(losses)
    ]
    content["description"] |= description
    return Run("a", content)


def busy(**seconds: float) -> Run:
    """A run of one epoch of ten seconds, in which stages were busy for so long."""
    content = record()
    [epoch, *_] = content["epochs"]
    stages = {name: {"busy_s": value, "starved_s": 0.0} for name, value in seconds.items()}
    content["epochs"] = [{**epoch, "seconds": 10.0, "counters": stages}]
    return Run("a", content)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (busy(sample=1, fetch=9, train=4), "The device limits: it was busy for 90% of the"),
        (busy(sample=9.5, fetch=1, train=4), "Sampling limits: it was busy for 95%"),
        # Done at once, so never starved; the model takes the time.
        (busy(sample=0.1, fetch=0.1, train=8), "The model limits: it was busy for 80%"),
        (busy(sample=3, fetch=4, train=3), "No single stage limits: they waited for each other, "),
        (AlgorithmRun("a", algorithm_record()), "The device limits: it was busy for 80%"),
        (AlgorithmRun("a", algorithm_record(device_busy=0.1, cores_busy=0.9)), "The cores limit"),
        (AlgorithmRun("a", algorithm_record(device_busy=0.1)), "No single part limits"),
    ],
)
def test_a_sentence_names_the_bottleneck(run: Any, said: str) -> None:
    assert bottleneck(run).startswith(said)


def embedded(waited: float, order: dict[str, Any] | None) -> EmbeddingRun:
    epoch = {"epoch": 0, "loss": 1.0, "score": 0.1, "seconds": 10.0, "validation_seconds": 30.0}
    counters = {"waited_s": waited}
    content = {"epochs": [{**epoch, "counters": counters}], "plan": {"order": order}}
    return EmbeddingRun("a", content)


def test_an_embedding_waits_for_the_device_or_computes() -> None:
    order = {"states": [[0, 1]]}
    assert bottleneck(embedded(6.0, order)).startswith(
        "The device limits: training waited for it 60% of its time."
    )
    assert bottleneck(embedded(0.5, order)).startswith(
        "Computing limits: training waited for the device 5%"
    )
    assert bottleneck(embedded(0.0, None)) == (
        "Computing limits: all rows were in memory. "
        "Validation took longer than training: 30 s, 10 s."
    )


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ((1.0, -0.25, 0.1), "Impossible loss: -0.25 in epoch 2, and a loss is 0 or more."),
        ((1.0, math.nan), "Impossible loss: no number in epoch 2"),
        ((math.inf,), "Impossible loss: inf in epoch 1"),
        ((0.5, 0.75), "The loss rose from 0.5 to 0.75: try a lower `--learning-rate`."),
    ],
)
def test_a_loss_that_cannot_be_is_a_warning(losses: tuple[float, ...], said: str) -> None:
    [warning] = warnings(trained(*losses))
    assert warning.startswith(said)


def test_a_loss_of_guessing_is_a_warning_for_classes_only() -> None:
    [warning] = warnings(trained(1.5, 1.4, task="classification"))
    assert warning.startswith("The loss of 1.4 is above 1.386, that of guessing among 4 classes")
    assert warnings(trained(1.5, 1.3, task="graph classification")) == []
    assert len(warnings(trained(1.5, 1.4, task="graph classification"))) == 1
    assert warnings(trained(1.5, 1.4, task="regression")) == []


def test_a_run_without_validation_or_epochs_is_warned_about(tmp_path: Path) -> None:
    [warning] = warnings(trained(1.0, 0.5, scores=False))
    assert warning.startswith("Validation did not happen")
    [warning] = warnings(trained())
    assert warning == "No epoch has ended, so there is no result to compare."
    content = {**trained(1.0, scores=False).record, "result": {"error": "<b>"}}
    write_report([write(tmp_path / "a", dict(content))], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert page.count("<p class='warning'>") == 2
    assert "<p class='warning'>The run failed: &lt;b&gt;</p>" in page
    assert "<code>outercore add /data/papers --split valid=FILE</code> adds a split for it." in page


def test_units_are_those_that_give_numbers_above_one() -> None:
    assert [byte_unit([size]).name for size in (0, 900, 1 << 11, 5 << 30)] == [
        *("B", "B", "KiB", "GiB")
    ]
    assert byte_unit([1 << 19, 3 << 20]).of([3 << 20]) == [3.0]
    names = [time_unit([seconds]).name for seconds in (2e-5, 0.002, 90, 9000, 20000)]
    assert names == ["microseconds", "milliseconds", "seconds", "seconds", "hours"]
    assert time_unit([]).name == "microseconds"


@pytest.mark.parametrize(("most", "step"), [(1, 1), (10, 1), (11, 2), (50, 5), (400, 50)])
def test_epochs_have_about_ten_ticks_at_whole_numbers(most: int, step: int) -> None:
    figure = empty("a", "epoch", "loss")
    counted(figure, most)
    axis = figure.layout.xaxis
    assert (axis.tick0, axis.dtick, axis.tickformat) == (0, step, ",d")
    assert axis.range == ((0.5, 1.5) if most == 1 else None)


def test_axes_have_plain_numbers_and_each_its_unit() -> None:
    runs = [Run("a", record()), Run("b", record())]
    figures = [charts.loss(runs), training.read(runs), charts.timeline(runs[0])]
    for figure in figures:
        for axis in (figure.layout.xaxis, figure.layout.yaxis):
            assert (axis.exponentformat, axis.separatethousands) == ("none", True)
    assert [figure.layout.xaxis.title.text for figure in figures] == ["epoch", "epoch", "seconds"]
    assert figures[1].layout.yaxis.title.text == "MiB"


def test_each_metric_has_a_figure_of_its_own() -> None:
    runs = [Run("a", record()), Run("b", record(metric="mae"))]
    figures = charts.scores(runs)
    assert [figure.layout.yaxis.title.text for figure in figures] == ["accuracy", "mae"]
    assert [{trace.name for trace in figure.data} for figure in figures] == [
        {"a", "a: best"},
        {"b", "b: best"},
    ]


def test_options_that_differ_stand_before_what_all_share(tmp_path: Path) -> None:
    other = record()
    other["config"] = {**other["config"], "model": {"kind": "gcn"}}
    runs = [write(tmp_path / "a", record()), write(tmp_path / "b", other)]
    write_report(runs, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    differing = "<tr class='differs'><th>model.kind</th><td>sage</td><td>gcn</td></tr>"
    assert differing in page
    shared = page[page.index("<summary>What all have in common</summary>") :]
    assert "<tr><th>budget.memory</th><td colspan='2'>2GiB</td></tr>" in shared
    assert page.index(differing) < page.index(shared)


def test_an_embedding_without_metrics_has_no_heading_for_them(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    described = {"nodes": 200, "degree": 6, "features": 8, "classes": 3, "seed": 1}
    _core.generate_planted(tmp_path / "graph", described, lambda *_: None)
    oc.embed(tmp_path / "graph", out=tmp_path / "run", dim=4, epochs=1, negatives=10, threads=1)
    file = tmp_path / "run" / "record.json"
    for headings, metrics in ((1, None), (0, [])):
        content = json.loads(file.read_text())
        if metrics is not None:
            content["result"]["metrics"] = metrics
            file.write_text(json.dumps(content))
        write_report([tmp_path / "run"], tmp_path / f"{headings}.html")
        page = (tmp_path / f"{headings}.html").read_text()
        assert page.count("<h2>Metrics</h2>") == headings
