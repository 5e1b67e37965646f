"""What one epoch of a loader cost, and how its stages overlapped with the training step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from outercore.runs import record as records

_REFRESH_S = 0.5
_MOST_SPANS = 1200


class Meter:
    """Iterates a loader and adds up its counters; the loop itself counts as the stage `train`."""

    def __init__(self, loader: Any, earlier: Mapping[str, Any], timeline: records.Timeline) -> None:
        self._loader = loader
        self._timeline = timeline
        self._refreshed = time.monotonic()
        self.counters: dict[str, Any] = dict(earlier)
        """Of the epoch so far, what an interrupted run had counted included."""
        self.spans: list[dict[str, Any]] = []
        """When each stage worked on what, in seconds since the run began; the first ones only."""
        self._stage = _idle()
        self._since = time.perf_counter()

    def batches(self) -> Iterator[Any]:
        """The loader's batches."""
        for item, batch in enumerate(self._loader):
            self._lap("starved_s")
            self._stage["items"] += 1
            start_s = self._timeline.now()
            yield batch
            self._lap("busy_s")
            self._span("train", item, start_s, self._timeline.now())
            if time.monotonic() - self._refreshed > _REFRESH_S:
                self._take()

    def read(self) -> dict[str, Any]:
        """The counters up to now, the batch that is being worked on included."""
        self._lap("busy_s")
        self._take()
        return self.counters

    def _take(self) -> None:
        taken = self._loader.counters()
        spans = taken.get("timeline") or []
        # The loader's clock is not ours: its latest span ended about now.
        shift = self._timeline.now() - max((span["end_s"] for span in spans), default=0.0)
        for span in spans:
            self._span(span["stage"], span["item"], span["start_s"] + shift, span["end_s"] + shift)
        self.counters = records.add(self.counters, taken["counters"])
        self.counters = records.add(self.counters, {"train": self._stage})
        self._stage = _idle()
        self._refreshed = time.monotonic()

    def _lap(self, spent: str) -> None:
        now = time.perf_counter()
        self._stage[spent] += now - self._since
        self._since = now

    def _span(self, stage: str, item: int, start_s: float, end_s: float) -> None:
        if len(self.spans) < _MOST_SPANS:
            self.spans.append({"stage": stage, "item": item, "start_s": start_s, "end_s": end_s})


def _idle() -> dict[str, float]:
    return {"items": 0, "busy_s": 0.0, "starved_s": 0.0, "blocked_s": 0.0}
