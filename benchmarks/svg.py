"""Line charts as SVG files, without scripts, fonts or external files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Points of each line by name, ascending along the horizontal axis."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#000000")
"""Colours of Okabe and Ito, suitable for colour-blind readers."""

WIDTH, HEIGHT = 300, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 26, 38
LEGEND = 20


@dataclass(frozen=True)
class Panel:
    """One chart."""

    title: str
    across: str
    up: str
    lines: Lines
    least: float = 0.0
    """The value at the bottom."""


def write(panels: Sequence[Panel], path: Path, columns: int = 3) -> Path:
    """Draw panels in rows of `columns`, with one legend for all; returns the path."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    colours = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    rows = math.ceil(len(panels) / columns)
    width, height = WIDTH * min(columns, len(panels)), HEIGHT * rows + LEGEND
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for place, panel in enumerate(panels):
        x, y = WIDTH * (place % columns), HEIGHT * (place // columns)
        parts += [f'<g transform="translate({x},{y})">', *_panel(panel, colours), "</g>"]
    x = LEFT
    for name, colour in colours.items():
        y = height - 7
        parts.append(f'<rect x="{x}" y="{y - 8}" width="12" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="{y}">{escape(name)}</text>')
        x += 32 + 6 * len(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
    return path


def _panel(panel: Panel, colours: Mapping[str, str]) -> list[str]:
    points = [point for line in panel.lines.values() for point in line]
    places = sorted({x for x, _ in points})
    top = max((y for _, y in points), default=1.0)
    step = _step(max(top - panel.least, 1e-9) / 4)
    top = panel.least + step * max(1, math.ceil((top - panel.least) / step - 1e-9))
    inner_w, inner_h = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(x: float) -> float:
        # Positions are evenly spaced, because there are few and each value is double the previous.
        return LEFT + inner_w * (places.index(x) + 0.5) / len(places)

    def up(y: float) -> float:
        return TOP + inner_h * (1 - (y - panel.least) / (top - panel.least))

    parts = [f'<text x="{WIDTH / 2}" y="15" text-anchor="middle">{escape(panel.title)}</text>']
    for number in range(round((top - panel.least) / step) + 1):
        value = panel.least + number * step
        y = up(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for x in places:
        y = HEIGHT - BOTTOM + 14
        parts.append(f'<text x="{across(x):.1f}" y="{y}" text-anchor="middle">{x:g}</text>')
    middle = LEFT + inner_w / 2
    label = f'x="{middle}" y="{HEIGHT - 8}" text-anchor="middle"'
    parts.append(f"<text {label}>{escape(panel.across)}</text>")
    turned = f'transform="translate(10,{TOP + inner_h / 2}) rotate(-90)" text-anchor="middle"'
    parts.append(f"<text {turned}>{escape(panel.up)}</text>")
    for name, line in panel.lines.items():
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in line)
        stroke = f'fill="none" stroke="{colours[name]}" stroke-width="1.8"'
        parts.append(f'<polyline points="{path}" {stroke}/>')
        for x, y in line:
            parts.append(
                f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="2.2" fill="{colours[name]}"/>'
            )
    return parts


def _step(rough: float) -> float:
    """The round number that is at least `rough`: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
