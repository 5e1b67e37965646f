"""The page of the offline table that `outercore tune` measures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape

import plotly.graph_objects as go

from outercore.report.drawing import GREY, empty, line
from outercore.report.elements import grid
from outercore.report.page import document, heading
from outercore.scheduling.decide import GraphShape, Measurement, Medium, Profile, Table


def render_table(table: Table) -> str:
    """Seconds, bytes and memory by far ratio: one section an algorithm, graph and medium."""
    groups: dict[tuple[str, GraphShape, Medium], list[Measurement]] = defaultdict(list)
    for one in table.measurements:
        groups[one.algorithm, one.graph, one.medium].append(one)
    sections = [heading("Controller", f"{len(table.measurements):,} measured points")]
    for (algorithm, graph, medium), measured in groups.items():
        profile = Profile(measured, same_class=True)
        lead = (
            f"{graph.nodes:,} nodes, {graph.arcs_per_node:.1f} arcs a node, skew {graph.skew:.1f}: "
            f"{graph.graph_class}; turning point at {profile.turning_point:g}"
        )
        title = escape(f"{algorithm}, edges from {medium}")
        sections.append(f"<h2>{title}</h2><p class='lead'>{lead}</p>")
        sections.append(grid(*_figures(profile)))
    return document("Outercore: controller", sections)


def _figures(profile: Profile) -> list[go.Figure]:
    figures = [
        _by_ratio("Seconds", "seconds", profile.measured, lambda one: one.seconds),
        _by_ratio("Read", "MiB", profile.measured, lambda one: one.bytes_read / (1 << 20)),
        _by_ratio("Least budget", "MiB", profile.measured, lambda one: one.memory / (1 << 20)),
    ]
    figures[0].add_vline(
        x=profile.turning_point,
        line={"color": GREY, "dash": "dash"},
        annotation={"text": "turning point"},
    )
    return figures


def _by_ratio(
    title: str, unit: str, measured: Sequence[Measurement], value: Callable[[Measurement], float]
) -> go.Figure:
    figure = empty(title, "far ratio", unit)
    for place, threads in enumerate(sorted({one.threads for one in measured})):
        points = sorted((one.far_ratio, value(one)) for one in measured if one.threads == threads)
        name = f"{threads} thread{'s' if threads > 1 else ''}"
        line(figure, name, [ratio for ratio, _ in points], [height for _, height in points], place)
    figure.update_xaxes(range=[-0.02, 1.02])
    figure.update_yaxes(rangemode="tozero")
    return figure
