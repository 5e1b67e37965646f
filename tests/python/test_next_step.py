"""Commands that messages suggest are those that work when they are pasted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from outercore.cli import run

FILES = {
    "pandas.csv": "0,1\n4,2\n",
    "roles.csv": "follower,followed\nann,bob\n",
    "marked.csv": "ann,bob\n#c,ann\nbob,#c\n",
    "named.csv": "source,target\nann,bob\nbob,cid\n",
    "sums.csv": "a;b,c;d\ne;f,g;h\n",
}


@pytest.mark.parametrize(
    ("file", "options", "readings"),
    [
        ("pandas.csv", [], ["--header", "--no-header"]),
        ("roles.csv", ["--ids", "dictionary"], ["--header", "--no-header"]),
        ("marked.csv", ["--ids", "dictionary"], ["--comment '#'", "--comment ''"]),
        ("named.csv", [], ["--ids dictionary"]),
        ("sums.csv", ["--ids", "dictionary"], ["--separator"]),
    ],
)
def test_each_reading_that_a_refusal_offers_is_a_command_that_works(
    file: str,
    options: list[str],
    readings: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(file).write_text(FILES[file])
    assert run(["import", file, *options, "--out", "graph"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    commands = re.findall("`(outercore [^`]+)`", said)
    assert len(commands) == len(readings), said
    for command, reading in zip(commands, readings, strict=True):
        assert command.endswith(reading) or reading in command, said
        words = shlex.split(command)[1:]
        assert run([*words, "--overwrite"]) == 0, (command, capsys.readouterr().err)
