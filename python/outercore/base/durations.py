"""Durations as texts."""

from __future__ import annotations


def format_duration(seconds: float) -> str:
    """A time with its unit.

    Example:
        >>> format_duration(0.00287), format_duration(75), format_duration(410)
        ('2.87 ms', '75 s', '6.8 min')
        >>> format_duration(0), format_duration(0.9997), format_duration(9000)
        ('0 s', '1 s', '2.5 h')
    """
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 119.5:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7170 else f"{seconds / 3600:,.1f} h"
