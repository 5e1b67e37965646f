"""The report in a browser: it draws something, and its console has no error."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

pytest.importorskip("plotly")

from outercore.runs.report import write_report
from test_report import record, write
from test_report_runs import record as algorithm_record

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--window-size=1300,1200", "--enable-logging=stderr", "--v=0"),
)
CONSOLE = re.compile(r":CONSOLE[:(]\d+\)?\] (.*)")
"""What a page has written to its console, `[...:INFO:CONSOLE:1] "text", source: ...`."""
ERROR = re.compile(r"Uncaught|Error\b|Failed to|Refused|Not allowed|ERROR")
"""Chromium logs all of it as information: an error is known by its text."""


def errors(log: str) -> list[str]:
    """The errors that pages have written to the console."""
    return [line for line in CONSOLE.findall(log) if ERROR.search(line)]


def colours(png: bytes) -> set[bytes]:
    """The colours of a picture with 8 bits a channel, without those of lines that a filter needs.

    Filters change what is stored of a pixel and not whether pixels differ from each other, so a
    picture of one colour still has few values.
    """
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    place, data, channels, width = 8, b"", 3, 0
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        kind, body = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, _, depth, colour = struct.unpack(">IIBB", body[:10])
            assert depth == 8
            channels = {2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            data += body
        place += length + 12
    pixels, row = zlib.decompress(data), width * channels + 1
    starts = (first + 1 for first in range(0, len(pixels), row))
    return {
        pixels[at : at + channels]
        for start in starts
        for at in range(start, start + row - 1, channels)
    }


def picture(width: int, height: int, pixel: bytes) -> bytes:
    """A PNG of one colour."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        sum_of = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + sum_of

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress((b"\0" + pixel * width) * height)
    magic = b"\x89PNG\r\n\x1a\n"
    return magic + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_an_empty_picture_has_one_colour() -> None:
    assert colours(picture(5, 3, b"\x10\x20\x30")) == {b"\x10\x20\x30"}


def test_an_error_that_a_page_writes_to_its_console_is_found() -> None:
    log = (
        '[12:12:1127/194500.123456:INFO:CONSOLE:7] "Uncaught TypeError: x", source: a.html (7)\n'
        '[12:12:1127/194500.123456:INFO:CONSOLE(8)] "ERROR: an older form", source: a.html (8)\n'
        '[12:12:1127/194500.123456:INFO:CONSOLE:9] "a remark", source: a.html (9)\n'
        "[12:12:1127/194500.123456:ERROR:dbus/bus.cc:408] Failed to connect to the bus\n"
    )
    assert errors(log) == [
        '"Uncaught TypeError: x", source: a.html (7)',
        '"ERROR: an older form", source: a.html (8)',
    ]


def look(page: Path, directory: Path) -> tuple[bytes, str]:
    """The page as Chromium draws it, and what Chromium has logged."""
    seen = directory / "seen.png"
    own = (f"--user-data-dir={directory / 'profile'}", f"--screenshot={seen}")
    done = subprocess.run(
        [str(CHROMIUM), *FLAGS, *own, page.resolve().as_uri()],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert seen.exists(), done.stderr
    return seen.read_bytes(), done.stderr


@needs_chromium
def test_the_report_is_drawn_and_its_console_has_no_error(tmp_path: Path) -> None:
    runs = [
        write(tmp_path / "first", record(0.8)),
        write(tmp_path / "second", record(0.7)),
        write(tmp_path / "third", algorithm_record()),
    ]
    write_report(runs, tmp_path / "report.html")
    png, log = look(tmp_path / "report.html", tmp_path)
    assert errors(log) == []
    # Text alone is grey; bars and lines have colours of their own.
    assert len(colours(png)) > 100


@needs_chromium
def test_an_error_in_a_page_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!doctype html><title>a</title><script>nothing.here</script>")
    png, log = look(page, tmp_path)
    assert any("nothing is not defined" in line for line in errors(log))
    assert len(colours(png)) < 20
