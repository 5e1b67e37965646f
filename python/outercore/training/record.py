"""The run record of a training: its description, and how it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from outercore.base.display import Rows, Shown, short
from outercore.data.batch_arrays import edge_array_names
from outercore.data.sample_rules import edge_name
from outercore.runs import record as records
from outercore.training.config import TrainConfig
from outercore.training.tasks import TASKS
from outercore.training.work import Work, samples_only

if TYPE_CHECKING:
    from outercore.data.graph import Graph


def describe(
    graph: Graph,
    config: TrainConfig,
    work: Work,
    *,
    run: str,
    device: str,
    validation: str,
) -> dict[str, Any]:
    """The description of a run: configuration, data set and machine."""
    kind = TASKS[work.task.kind]
    return {
        "description": {
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
        "config": config.to_dict(),
        "data_set": {
            "path": str(Path(graph.root).resolve()),
            "nodes": graph.num_nodes,
            "edges": graph.num_edges,
            "features": work.model.features,
            "classes": work.task.outputs,
            "unused_edge_arrays": _unused(graph, config),
            **work.facts(),
        },
        "machine": {
            **records.machine(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": device,
        },
        "device_profile": records.device_profile(Path(graph.root)),
    }


def _unused(graph: Graph, config: TrainConfig) -> list[str]:
    """The edge arrays that are not read: all but the times of `--time`."""
    time = config.sampling.time and edge_name(graph, config.sampling.time)
    names = edge_array_names(graph.manifest["arrays"])
    return [one for one in names if one.rpartition("/")[2] != time]


class TrainRecord(Shown, dict[str, Any]):
    """The run record, as `record.json` has it: a dictionary, shown by its scores."""

    def _shown(self) -> tuple[str, Rows]:
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
