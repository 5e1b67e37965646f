"""Served models with int8 and float32 features: scores on the test part, bytes and time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from urllib.request import urlopen

import numpy as np
import torch
from limits import drop_cached, run_limited
from measure import Result, Series, Settings, say
from product import command, imported
from prometheus_client.parser import text_string_to_metric_families

import outercore as oc
from benches import int8_sets
from benches.inputs import workload
from outercore.serving.server import Server, ServerConfig
from outercore.training.metrics import build_metric

MOST = 0.5
"""Percentage points that int8 may lose."""
FEW, MOST_ASKED = 1000, 5000
"""Sets with fewer test ids than `FEW` also predict all ids, if there are at most `MOST_ASKED`."""
PRECISIONS = ("float32", "int8")
CASES = (("serve20", 8), ("serve20", 4), ("wide16", 8))
"""Graphs, and the ratio of float32 features to memory."""
LEAST = 32 << 20
"""Least memory in bytes: a server needs 14 MiB even for a tiny graph."""
MOST_NODES = 8
"""Most nodes per request. A small number leaves more memory for the cache."""
ASKED = 4000
"""Number of requests with one node each; bytes are counted for the second half of them."""
WHAT = (
    "A model of each set is trained, exported and served in float32 and in int8. The score is that "
    "of the served answers for all test nodes or graphs, the same neighbours drawn; of small sets "
    "*all* of them, too. *points*: what "
    "int8 loses, in points of the score, or in percent of the error. *bytes*: read from the disk "
    "for the features of a request about one node, while the memory is a part of the float32 "
    "features."
)


@dataclass(frozen=True)
class Answered:
    """The answers of a server for some ids."""

    score: float
    predictions: np.ndarray


def run(settings: Settings) -> Result:
    """Compare all sets of nodes and graphs, then bytes and time on a graph larger than memory."""
    torch.set_num_threads(1)
    result = Result("int8", WHAT)
    names = [*int8_sets.NODES, *int8_sets.GRAPHS]
    for name in ["mutag", "lastfm-asia"] if settings.quick else names:
        try:
            _compare(result, int8_sets.served(name, settings.work / "int8"))
        except Exception as failure:
            # A set that cannot be served must not lose the results of the others.
            say(f"{name} did not run: {failure!r}")
            result.series.append(Series("int8", name, "points", [], repr(failure)[:200]))
    for name, share in [("serve16", 1)] if settings.quick else CASES:
        _bytes(result, settings, name, share)
    return result


def _compare(result: Result, served: int8_sets.Served) -> None:
    """Records the scores of a model in both precisions."""
    if served.array is not None:
        _layout(served.data_set, served.array)
    parts = {"test": served.test}
    # With few test graphs, a single graph is more than the allowed loss.
    if len(served.test) < FEW and len(served.labels) <= MOST_ASKED:
        parts["all"] = np.arange(len(served.labels))
    answers, loss = {}, None
    for precision in PRECISIONS:
        answers[precision], loss = _answered(served, precision, parts)
    for part, ids in parts.items():
        exact, rounded = (answers[precision][part] for precision in PRECISIONS)
        points = 100 * (exact.score - rounded.score)
        note = f"{served.metric}, {served.inputs}, {len(ids):,} asked"
        if served.metric == "rmse":
            points = 100 * (rounded.score / exact.score - 1)
        else:
            changed = 100 * np.mean(exact.predictions != rounded.predictions)
            note += f", {changed:.2f} % of the predictions changed"
        case = f"{served.name}, {part}"
        for precision, answered in (("float32", exact), ("int8", rounded)):
            result.series.append(Series(precision, case, served.metric, [answered.score]))
        note += f", at the start {loss:+.3f}"
        result.series.append(Series("int8", f"{case}, points", "points", [points], note))
        say(f"{case}: {exact.score:.4f}, {rounded.score:.4f}, {points:+.3f} points; {note}")
        if points > MOST:
            say(f"{case} LOSES MORE THAN {MOST} POINTS")


def _layout(data_set: object, array: str) -> None:
    run_limited(
        command("layout", data_set, "--array", array, "--precision", "int8", "--order", "none")
    ).check()


def _answered(
    served: int8_sets.Served, precision: str, parts: dict[str, np.ndarray]
) -> tuple[dict[str, Answered], float | None]:
    """The answers for all ids of each part, and the loss in points that the server measured."""
    config = ServerConfig(
        port=0, memory="2GiB", precision=precision, most_loss=100, deadline_ms=600_000
    )
    with (
        Server(served.data_set, served.run, config) as server,
        oc.Client(server.url, server.name, timeout_s=600) as client,
    ):
        # One graph per request, so that only the largest graph must fit.
        together = 1 if served.name in int8_sets.GRAPHS else config.most_nodes
        answers = {part: _asked(client, served, ids, together) for part, ids in parts.items()}
        return answers, server.loss and server.loss.points


def _asked(client: oc.Client, served: int8_sets.Served, ids: np.ndarray, together: int) -> Answered:
    metric = build_metric(served.metric)
    predictions = []
    for first in range(0, len(ids), together):
        part = ids[first : first + together]
        answer = client.predict(part)
        metric.update(*_scored(answer, served.labels[part]))
        predictions.append(answer.prediction)
    score = metric.value()
    assert score is not None
    return Answered(score, np.concatenate(predictions))


def _scored(answer: oc.Prediction, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels in the form for metrics: above 0 is a label, and numbers have columns."""
    if "probability" not in answer.outputs:
        values = answer.prediction
        return values, labels.reshape(values.shape)
    probability = answer.probability
    is_label = answer.prediction.ndim == 2
    return (probability - 0.5 if is_label else probability), labels


def _bytes(result: Result, settings: Settings, name: str, share: int) -> None:
    """Bytes and time of requests for single nodes, with memory for a part of the features."""
    work, folder = workload(settings, name)
    # A copy, because the layout of int8 is stored in the data set.
    graph = imported(folder, settings.work / "int8" / f"{name}.outercore")
    options = "--model sage --hidden 256 --fanout 15,10 --epochs 1"
    run = int8_sets.trained(graph, settings.work / "int8" / f"{name}.sage", options)
    _layout(graph, "x")
    budget = max(work.nodes * work.width * 4 // share, LEAST)
    degrees = np.diff(np.load(graph / "edges/edge/offsets.npy", mmap_mode="r").astype(np.int64))
    nodes = np.random.default_rng(1).choice(np.flatnonzero(degrees), ASKED)
    place = f"{name}, 1/{share}"
    note = f"{work.nodes:,} nodes, {work.width} features, memory {budget >> 20} MiB"
    for precision in PRECISIONS:
        drop_cached([graph])
        config = ServerConfig(
            port=0, memory=budget, precision=precision, most_loss=100, most_nodes=MOST_NODES
        )
        with (
            Server(graph, run, config) as server,
            oc.Client(server.url, server.name, timeout_s=600) as client,
        ):
            # The first half fills the cache.
            for node in nodes[: ASKED // 2]:
                client.predict([node])
            before, began = _counted(server), time.perf_counter()
            for node in nodes[ASKED // 2 :]:
                client.predict([node])
            seconds = time.perf_counter() - began
            after = _counted(server)
        count = ASKED - ASKED // 2
        per = {case: (after[case] - before[case]) / count for case in before}
        for case, value in {**per, "milliseconds": 1e3 * seconds / count}.items():
            unit = f"{case}/request"
            result.series.append(Series(precision, f"{place}: {case}", unit, [value], note))
            say(f"{place}, {precision}: {value:.1f} {case} a request")
    for case in (*before, "milliseconds"):
        ends = ("float32", f"{place}: {case}"), ("int8", f"{place}: {case}")
        result.compare(f"{place}: {case}, float32 over int8", *ends)


def _counted(server: Server) -> dict[str, float]:
    """Counters of feature reads."""
    with urlopen(server.url + "/metrics", timeout=60) as answer:
        text = answer.read().decode()
    counters = {"reads": 0.0, "read_bytes": 0.0, "read_useful_bytes": 0.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("outercore_").removesuffix("_total")
            if name in counters and sample.labels.get("array") == "features":
                counters[name] = sample.value
    return counters
