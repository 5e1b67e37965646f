"""What a training gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outercore.base.display import Rows, Shown, short


class TrainRecord(Shown, dict[str, Any]):
    """The run record, as `record.json` has it: a dictionary, shown by its scores."""

    def _shown(self) -> tuple[str, Rows]:
        if not self.keys() >= {"epochs", "description", "data_set", "status"}:
            # Somebody has taken something out: it is theirs.
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
