"""The parts of a training's record: the description of the run, each epoch, and final scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.display import Displayed, Rows, short
from outercore.data.batch_arrays import edge_array_names
from outercore.data.sample_rules import edge_name
from outercore.runs import record as records
from outercore.training.config import TrainConfig
from outercore.training.tasks import TASKS
from outercore.training.work import Work, samples_only

if TYPE_CHECKING:
    from outercore.data.graph import Graph


@dataclass(frozen=True)
class EpochReport:
    """The results of an epoch and its validation."""

    epoch: int
    """Number of the epoch, from 0."""
    loss: float
    score: float | None
    metric: str
    best: bool
    """Whether the score is the best so far."""
    seconds: float
    """Seconds of training, without validation."""
    seeds: int
    validation_seconds: float
    counters: dict[str, Any]
    """Counters of the training loader in this epoch, and of the stage `train`."""

    def scalars(self) -> dict[str, float | None]:
        """Loss, score, throughput, hit ratio and bytes, by their names in TensorBoard."""
        return {
            "train/loss": self.loss,
            f"valid/{self.metric}": self.score,
            "train/seeds_per_second": self.seeds / self.seconds if self.seconds else None,
            "io/hit_ratio": records.hit_ratio(self.counters),
            "io/bytes_read": records.bytes_read(self.counters),
        }


def final_scalars(result: dict[str, Any]) -> dict[str, float | None]:
    """The final scores, by their names in TensorBoard."""
    points = {f"final/{split}": score for split, score in result["scores"].items()}
    for split, errors in result.get("errors", {}).items():
        points |= {f"final/{split}_{name}": value for name, value in errors.items()}
    return points


def describe(
    graph: Graph,
    config: TrainConfig,
    work: Work,
    *,
    run: str,
    device: str,
    validation: str,
) -> dict[str, Any]:
    """The first part of a run's record: description, configuration, data set and machine."""
    kind = TASKS[work.task.kind]
    return records.opening(
        Path(graph.root),
        config.to_dict(),
        {
            "run": run,
            "model": config.model.kind,
            "parameters": sum(value.numel() for value in work.model.parameters()),
            "task": f"graph {kind}" if config.of_graphs else kind,
            "task_guessed": config.run.task == "auto",
            "metric": work.task.metric_name,
            "of_graphs": config.of_graphs,
            "validation": validation,
            "sampled": samples_only(config, work.model),
            "device": device,
        },
        {
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": work.model.features,
            "classes": work.task.outputs,
            "unused_edge_arrays": _unused(graph, config),
            **work.facts(),
        },
        device,
    )


def _unused(graph: Graph, config: TrainConfig) -> list[str]:
    """The names of unused edge arrays: all except the times of `--time`."""
    time = config.sampling.time and edge_name(graph, config.sampling.time)
    names = edge_array_names(graph.arrays)
    return [one for one in names if one.rpartition("/")[2] != time]


class TrainRecord(Displayed, dict[str, Any]):
    """The run record, a dictionary with the content of `record.json`. It is displayed by scores."""

    def _display(self) -> tuple[str, Rows]:
        if not self.keys() >= {"epochs", "description", "data_set", "status"}:
            # The caller has removed entries.
            return "Training", [(name, short(value)) for name, value in self.items()]
        result, epochs, described = self.get("result") or {}, self["epochs"], self["description"]
        rows = [
            (f"{split} {result['metric']}", "-" if score is None else f"{score:.4f}")
            for split, score in result.get("scores", {}).items()
        ]
        if epochs:
            best = f", the best is {result['best_epoch'] + 1}" if "best_epoch" in result else ""
            rows += [
                ("epochs", f"{len(epochs)}{best}"),
                ("loss", f"{epochs[-1]['loss']:.4f} in the last epoch"),
                ("seconds", f"{sum(epoch['seconds'] for epoch in epochs):.3g} of training"),
            ]
        status = "" if self["status"] == "finished" else f" ({self['status']})"
        data = Path(self["data_set"]["path"]).name
        title = f"Training of {described['model']} on {data}{status}"
        return title, [*rows, ("run", described["run"])]
