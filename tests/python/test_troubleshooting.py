"""The table of messages in the guide: each is said, and the command beside it works."""

from __future__ import annotations

import io
import os
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

pytest.importorskip("torch")

from outercore.cli import run

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "troubleshooting.md"
ROW = re.compile(r"^\| `(outercore [^|]*)` \| ([^|]*) \| `(outercore [^|]*)` \|$", re.MULTILINE)
ROWS: list[tuple[str, str, str]] = ROW.findall(GUIDE.read_text())
MINE = """
from torch_geometric.nn import GraphSAGE


class Deep(GraphSAGE):
    pass
"""
READY = (
    "generate planted --nodes 1500 --degree 8 --features 16 --classes 4 --seed 1 --out papers",
    "train papers --fanout 3,2 --hidden 8 --epochs 2 --memory 64MiB --out first",
    "embed papers --dim 8 --epochs 1 --out emb",
    "train papers --model mine.py:Deep --fanout 3,2 --hidden 8 --epochs 1 --out deep",
)


def outercore(line: str, at: Path) -> tuple[int, str]:
    """The exit code, and what stands on the standard error."""
    said, before = io.StringIO(), Path.cwd()
    os.chdir(at)
    try:
        with redirect_stderr(said), redirect_stdout(io.StringIO()):
            code = run(shlex.split(line))
    finally:
        os.chdir(before)
    return code, said.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with all that the table speaks of."""
    at = tmp_path_factory.mktemp("troubles")
    (at / "mine.py").write_text(MINE)
    (at / "edges.csv").write_text("source,target\n0,1\n1,2\n2,0\n")
    for line in READY:
        code, said = outercore(line, at)
        assert code == 0, said
    return at


def test_the_guide_has_fifteen_messages() -> None:
    assert len(ROWS) >= 15
    assert GUIDE.read_text().count("\n| `outercore ") == len(ROWS)


# Those that replace the data set come last, whatever the order of the guide.
@pytest.mark.parametrize(
    ("line", "said", "works"),
    sorted(ROWS, key=lambda row: "--overwrite" in row[2]),
    ids=lambda text: text,
)
def test_a_message_ends_in_a_command_that_works(
    line: str, said: str, works: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    code, told = outercore(line.removeprefix("outercore "), place)
    assert code == 1, told
    message, _, hint = told.rpartition("hint: ")
    assert said in message
    assert works in hint.replace(f"{place}/", "")
    # A whole epoch of the defaults teaches no more than a short one.
    shorter = " --epochs 1 --fanout 2,2 --hidden 8" if works == "outercore train papers" else ""
    code, told = outercore(works.removeprefix("outercore ") + shorter, place)
    assert code == 0, told
