"""The results as a short text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

GB = 1e9


def markdown(result: dict[str, Any]) -> str:
    """Tables of all parts, without the values that a part has not measured."""
    machine, parts = result["machine"], result["parts"]
    lines = ["# Outercore on a GPU", "", _machine(machine), "", *_status(parts)]
    for name, section in _SECTIONS.items():
        values = parts.get(name, {}).get("values", {})
        if values:
            lines += ["", f"## {name}", "", *section(values)]
    return "\n".join(lines) + "\n"


def _machine(machine: dict[str, Any]) -> str:
    gib = machine["memory"] / (1 << 30)
    text = f"{machine['device']}; {machine['cores']} cores of {machine['processor']}, "
    text += f"{gib:.0f} GiB, Linux {machine['kernel']}; Python {machine['python']}, "
    text += f"PyTorch {machine['torch']}, Triton {machine['triton']}"
    return text + (f"; PCIe {machine['link']}" if "link" in machine else "")


def _status(parts: dict[str, Any]) -> list[str]:
    lines = ["| part | status | seconds | right | wrong |", "|---|---|---:|---:|---|"]
    for name, part in parts.items():
        checks = part.get("checks", [])
        wrong = [f"{check['what']} ({check['found']})" for check in checks if not check["right"]]
        lines.append(
            f"| {name} | {part['status']} | {part.get('seconds', 0):.0f} "
            f"| {sum(one['right'] for one in checks)} | {_cell('; '.join(wrong))} |"
        )
    return lines


def _transfer(values: dict[str, Any]) -> list[str]:
    lines = []
    if copies := values.get("copy"):
        names = list(next(iter(copies.values())))
        lines += [*_head(["bytes of a copy", *names])]
        for size, rates in copies.items():
            lines.append(_row([f"{int(size):,}", *(_rate(rates[name]) for name in names)]))
        lines.append("")
    for name in ("device_copy_read_and_written", "host_copy_read_and_written"):
        if name in values:
            lines += [f"{name.replace('_', ' ')}: {_rate(values[name])}", ""]
    if gathers := values.get("gather"):
        names = [name for name in next(iter(gathers.values())) if name != "rows"]
        lines += [*_head(["bytes of a row", *names])]
        for size, rates in gathers.items():
            lines.append(_row([size, *(_rate(rates[name]) for name in names)]))
        lines.append("")
    if by := values.get("zero_copy_by_programs"):
        programs = list(next(iter(by.values())))
        lines += [*_head(["zero copy by programs", *programs])]
        for size, rates in by.items():
            lines.append(_row([size, *(_rate(rates[program]) for program in programs)]))
    if by := values.get("zero_copy_by_pages"):
        sizes = list(next(iter(by.values())))
        lines += ["", *_head(["zero copy by pages, bytes of a row", *sizes])]
        for name, rates in by.items():
            lines.append(_row([name, *(_rate(rates[size]) for size in sizes if size in rates)]))
    for name in ("register_and_unregister_s_per_gib", "register_read_only_mapping"):
        if name in values:
            lines += ["", f"{name.replace('_', ' ')}: {values[name]}"]
    return lines


def _kernels(values: dict[str, Any]) -> list[str]:
    lines = [f"largest relative error: {values.get('largest_relative_error')}", ""]
    speeds = {name: value for name, value in values.items() if name.startswith("speed")}
    if speeds:
        names = [name for name in next(iter(speeds.values())) if name != "operations"]
        lines += _head(["microseconds", *names])
        for case, rates in speeds.items():
            lines.append(_row([case, *(f"{rates[name] * 1e6:.0f}" for name in names)]))
    return lines


def _ways(values: dict[str, Any]) -> list[str]:
    lines = _head(["way", "ms a step"])
    for name, seconds in values.get("seconds_a_step", {}).items():
        lines.append(_row([name, f"{seconds * 1e3:.2f}"]))
    for name, value in values.items():
        if name.startswith("network_alone"):
            lines.append(_row([name.replace("_", " "), _ms(value)]))
    return [*lines, "", f"batch: {values.get('batch')}"]


def _training(values: dict[str, Any]) -> list[str]:
    lines = _head(["run", "ms a step", "waiting for batches", "epochs, s", "scores"])
    for name, value in _tables(values):
        if name.startswith("step") or "epochs_s" not in value:
            continue
        epochs = ", ".join(f"{seconds:.1f}" for seconds in value["epochs_s"])
        share = f"{value['waiting_for_batches']:.0%}"
        scores = {part: round(score, 4) for part, score in value["scores"].items()}
        lines.append(_row([name, _ms(value["step_s"]), share, epochs, scores]))
    return lines + _steps(values)


def _embedding(values: dict[str, Any]) -> list[str]:
    lines = _head(["run", "triples/s", "epochs, s", "MRR"])
    for name, value in _tables(values):
        if name.startswith("step") or "epochs_s" not in value:
            continue
        epochs = ", ".join(f"{seconds:.2f}" for seconds in value["epochs_s"])
        rate = f"{value['triples_per_second']:,.0f}"
        lines.append(_row([name, rate, epochs, f"{value['mrr']:.4f}"]))
    return lines + _steps(values)


def _steps(values: dict[str, Any]) -> list[str]:
    """The profile of a step, and the lines that wait."""
    steps = {name: step for name, step in _tables(values) if name.startswith("step") and step}
    if not steps:
        return []
    heads = ["profiled", "ms", "operations", "kernels", "host waits", "waiting, ms"]
    lines = ["", *_head([*heads, "kernels busy", "copies busy", "to device"])]
    for name, step in steps.items():
        moved = sum(
            transfer["bytes"] for copy, transfer in step.get("copies", {}).items() if "HtoD" in copy
        )
        row = [name, _ms(step["seconds"]), f"{step['operations']:.0f}", f"{step['kernels']:.0f}"]
        row += [f"{step['host_waits']:.1f}", _ms(step["host_waits_s"])]
        row += [f"{step['kernels_share']:.0%}", f"{step['copies_share']:.0%}"]
        lines.append(_row([*row, f"{moved / 1e6:.1f} MB"]))
    for name, step in steps.items():
        if waits := step.get("lines_that_wait"):
            lines += ["", f"{name}: waits a step by line", ""]
            lines += [f"- {count:g}: `{line}`" for line, count in waits.items()]
    return lines


def _tables(values: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, value) for name, value in values.items() if isinstance(value, dict))


def _plain(values: dict[str, Any]) -> list[str]:
    """A line for each value."""
    return [f"- {name}: {str(value)[-400:]}" for name, value in values.items() if name != "output"]


_SECTIONS = {
    "transfer": _transfer,
    "kernels": _kernels,
    "ways": _ways,
    "training": _training,
    "embedding": _embedding,
    "tests": _plain,
}


def _head(names: list[Any]) -> list[str]:
    return [_row(names), "|---|" + "---:|" * (len(names) - 1)]


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "/")[:400]


def _rate(bytes_a_second: float) -> str:
    return f"{bytes_a_second / GB:.2f} GB/s"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"
