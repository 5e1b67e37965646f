"""A shell completes commands, options and the values of options."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OUTERCORE = f"{sys.executable} -m outercore"


def bash(script: str, home: Path) -> str:
    """What a bash of somebody with this home directory prints."""
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    # The command after it keeps bash from being replaced by the one before, which looks for it.
    command = ["bash", "--norc", "-c", f"{script}\ntrue"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script for bash."""
    return bash(f"{OUTERCORE} --show-completion", tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["run", "pag"], ["pagerank"]),
        (["train", "papers", "--model", "g"], ["gcn", "gat", "gin"]),
        (["embed", "facts", "--recipe", "complex-w"], ["complex-wn18"]),
        (["train", "papers", "--set", "sampling.pre"], ["sampling.precision="]),
        (["import", "edges.csv", "--self-loops", "k"], ["keep"]),
    ],
    ids=lambda words: " ".join(words),
)
def test_bash_completes(typed: list[str], offered: list[str], shown: str, tmp_path: Path) -> None:
    words = " ".join(f"'{word}'" for word in ["outercore", *typed])
    program = tmp_path / "outercore"
    program.write_text(f'#!/bin/sh\nexec {OUTERCORE} "$@"\n')
    program.chmod(0o755)
    script = f"""{shown}
COMP_WORDS=({words}); COMP_CWORD={len(typed)}
_outercore_completion {program}
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    assert bash(script, tmp_path).split() == offered


def test_the_script_is_installed_on_request(shown: str, tmp_path: Path) -> None:
    told = bash(f"{OUTERCORE} --install-completion", tmp_path)
    assert "bash completion installed in" in told
    installed = tmp_path / ".bash_completions" / "outercore.sh"
    assert installed.read_text().split() == shown.split()
    assert str(installed) in (tmp_path / ".bashrc").read_text()


def test_completion_loads_neither_pytorch_nor_pandas() -> None:
    script = (
        "import sys, outercore.cli; "
        "print(*({'torch', 'pandas', 'plotly', 'torch_geometric'} & sys.modules.keys()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
