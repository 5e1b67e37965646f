"""Prints plans with words and units instead of dictionary keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from outercore.base.display import Displayed, Forecast, Rows, format_duration, value_of, words
from outercore.base.sizes import as_option, format_size

Named = list[tuple[str, str]]
"""Pairs of a name and a value, in order."""
_OTHERS = {
    "in_degrees_memory": "in-degrees",
    "embeddings_memory": "embeddings",
    "edges_memory": "edges with times",
}
"""Further parts of the memory plan that stay in memory for a whole training."""

_BUDGET = {
    "budget": "budget",
    "least": "least that works",
    "least_in_memory": "least with state in memory",
}
_PARTS = {
    "state": "state",
    "output": "result",
    "index": "index of the edges",
    "staging": "read buffers",
    "window": "read ahead",
    "scratch": "decoded edges",
    "working": "to save passes",
    "pinned": "edges in memory",
}
"""Parts of the budget in a plan of an algorithm."""


class Plan(Displayed, dict[str, Any]):
    """A plan. It is a dictionary that prints as names and values with units."""

    @abstractmethod
    def rows(self) -> Named:
        """The printed rows: names and values."""

    def _display(self) -> tuple[str, Rows]:
        return "Plan", self.rows()


class LoaderPlan(Plan):
    """How a loader divides its memory."""

    def rows(self) -> Named:
        """The budget and its parts."""
        return [("budget", format_size(self["budget"])), *_loader_rows(self)]


class TrainPlan(Plan):
    """How a training divides its memory, and how long its epochs take."""

    def rows(self) -> Named:
        """The budget, its parts, and the time of epochs."""
        rows = [("budget", format_size(self["memory"])), *self.memory_rows()]
        if enough := self.get("all_rows_memory"):
            rows.append(("all rows stay with", as_option(enough)))
        if forecast := self["forecast"]:
            rows += Forecast(forecast).epoch_rows()
        return rows

    def memory_rows(self) -> Named:
        """The parts of the memory."""
        rows = _loader_rows(self["training"])
        others = [(name, self.get(key)) for key, name in _OTHERS.items()]
        rows[1:1] = [(name, format_size(size)) for name, size in others if size]
        if "validation_memory" in self:
            rows.append(("validation", format_size(self["validation_memory"])))
        return rows


class EmbedPlan(Plan):
    """How an embedding uses its memory, and how long its epochs take."""

    def rows(self) -> Named:
        """Sizes, rates and times."""
        rates = self["rates"]
        rows = [
            ("entities", f"{self['entities']:,}"),
            ("relations", f"{self['relations']:,}"),
            ("triples", f"{self['triples']:,}"),
            ("budget", format_size(self["budget_memory"])),
            ("everything in memory takes", format_size(self["everything_memory"])),
            ("needed", format_size(self["needed_memory"])),
        ]
        rows += [(f"  {name}", format_size(size)) for name, size in self["parts_memory"].items()]
        if self["all_in_memory"]:
            rows.append(("placement", "everything in memory"))
        else:
            count, slots = self["partitions"], self["slots"]
            rows.append(("placement", f"{slots} of {count} partitions in memory, {self['swap']}"))
            sweeps = self["walks"]["sweeps"]
            mixed = [name for name in ("spread", "rename") if self["walks"][name]]
            group = self["walks"]["group"]
            if group > 1:
                mixed.append(f"partitions of {group} parts")
            walks = "one walk" if sweeps == 1 else f"{sweeps} walks"
            rows.append(("epoch", ", ".join([f"{walks} through the order", *mixed])))
        measured = ", measured" if rates.get("triples_measured") else ""
        rows.append(("trains", f"{rates['triples_per_second']:,.0f} triples/s{measured}"))
        if "read_bandwidth" in rates:
            how = ", probed" if rates.get("read_probed") else ""
            rows.append(("device reads", f"{format_size(rates['read_bandwidth'])}/s{how}"))
            how = ", measured" if rates.get("write_measured") else ""
            rows.append(("device writes", f"{format_size(rates['write_bandwidth'])}/s{how}"))
        rows.append(("expected epoch", format_duration(self["epoch_seconds"])))
        for name, title in (("validation", "one validation"), ("final", "final figures")):
            if (ranking := self["ranking"].get(name)) is not None:
                rows.append((title, _of_ranking(ranking)))
        if (answers := self.get("answers")) is not None:
            memory = format_size(answers["memory"])
            rows.append(("true answers", f"{answers['count']:,}, {memory}"))
        return rows


class RunPlan(Plan):
    """How the run of an algorithm divides its memory, and how many bytes it reads."""

    def parts(self) -> dict[str, int]:
        """Bytes of the parts of the budget, by their names."""
        return {name: self.get(key, 0) for key, name in _PARTS.items()}

    def rows(self) -> Named:
        """Sizes, bytes and times that apply to this run."""
        rows = [(name, format_size(self[key])) for key, name in _BUDGET.items() if self[key]]
        if (spill := self["spill"]) is not None:
            rows += [
                ("partitions in memory", f"{spill['targets']} targets, {spill['sources']} sources"),
                ("passes over the sources", f"{spill['groups']:,}"),
                (
                    "state read and written",
                    f"{format_size(spill['read_per_pass'])}, "
                    f"{format_size(spill['written_per_pass'])} in a pass",
                ),
            ]
        parts = self.parts()
        pinned = parts.pop(_PARTS["pinned"])
        count = f"{self['pinned_segments']:,} of {self['segments']:,} segments"
        rows += [
            *((name, format_size(size)) for name, size in parts.items() if size),
            (_PARTS["pinned"], f"{format_size(pinned)}, {count}"),
            ("weights", "read" if self["weighted"] else "not read"),
            ("first pass reads", format_size(self["bytes_first_pass"])),
            ("a later pass reads", format_size(self["bytes_per_pass"])),
        ]
        if self["passes"] is not None:
            rows.append(("passes", f"{self['passes']:,}"))
        if self["seconds"] is not None:
            rows.append(("reading takes", format_duration(self["seconds"])))
        if self["far_ratio"]:
            share = f"{self['far_ratio']:.0%} of the edges"
            rows.append(("in far memory", f"{format_size(self['far_bytes'])}, {share}"))
        if self["result_window"] is not None:
            rows.append(("result in pieces of", format_size(self["result_window"])))
        if self["disk"]:
            rows.append(("scratch files", format_size(self["disk"])))
        if (checkpoint := self["checkpoint"]) is not None:
            size, disk = format_size(checkpoint["bytes"]), format_size(checkpoint["disk"])
            every = format_duration(checkpoint["seconds"])
            rows.append(("checkpoints", f"{size} every {every}, {disk} on the disk"))
        return rows


def _loader_rows(planned: Mapping[str, Any]) -> Named:
    if "topology" not in planned:
        return [(words(key), value_of(key, value)) for key, value in planned.items()]
    topology, split = planned["topology"], planned["split"]
    where = "in memory" if topology["resident"] else "read from the disk"
    rows = [("topology", f"{format_size(topology['memory'])}, {where}")]
    rows_in_memory = split["constant_slots"] + split["dynamic_slots"]
    if planned["num_rows"]:
        share = min(rows_in_memory / planned["num_rows"], 1.0)
        rows.append(("feature rows", f"{format_size(planned['slots'])}, {share:.0%} of all"))
    if 0 < rows_in_memory < planned["num_rows"]:
        static = split["constant_slots"]
        rows.append(("  of them static", f"{static:,}, the others come and go"))
    flight = planned["sampled"] + planned["delivered"]
    rows.append(("batches", f"{format_size(flight)}, {split['group']} fetched together"))
    if arrays := planned.get("arrays"):
        rows.append(("further arrays", format_size(arrays["memory"])))
    buffers = format_size(planned["staging"])
    rows.append(("read buffers", f"{buffers}, {planned['reads_in_flight']} reads in flight"))
    return rows


def _of_ranking(ranking: Mapping[str, Any]) -> str:
    passes = ranking["passes"]
    parts = [
        format_duration(ranking["seconds"]),
        f"{ranking['triples']:,} triples",
        f"{passes:,} {'pass' if passes == 1 else 'passes'} over the table",
    ]
    if ranking["bytes_read"]:
        parts.append(f"reads {format_size(ranking['bytes_read'])}")
    return ", ".join(parts)
