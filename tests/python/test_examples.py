"""The code and the commands in the documents work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OUTERCORE = Path(sys.executable).with_name("outercore")
PACKAGE = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
"""Commands run the package that the tests import."""
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *sorted((ROOT / "docs" / "paths").glob("*.md")),
]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small data set named `planted`, as the documents call theirs."""
    path = tmp_path_factory.mktemp("examples") / "planted"
    sizes = ["--nodes", "2000", "--degree", "10", "--features", "16", "--classes", "4"]
    run(OUTERCORE, "generate", "planted", *sizes, "--seed", "1", "--out", path)
    return path


def run(*command: str | Path, cwd: Path | None = None) -> str:
    finished = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**PACKAGE, "COLUMNS": "250", "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "TERM": "dumb"},
    )
    assert finished.returncode == 0, f"{command}\n{finished.stdout}\n{finished.stderr}"
    return finished.stdout


def blocks(document: Path, language: str) -> list[str]:
    """What stands between fences with this language, or with none."""
    fenced = re.findall(r"^```(.*?)\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    return [block for found, block in fenced if found == language]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_python_code_of_a_document_runs_from_top_to_bottom(
    document: Path, planted: Path
) -> None:
    code = "\n".join(blocks(document, "python"))
    if code:
        run(sys.executable, "-c", code, cwd=planted.parent)


def test_the_commands_of_the_first_guide_work_one_after_the_other(tmp_path: Path) -> None:
    done = []
    for command in commands(ROOT / "docs" / "guides" / "getting-started.md"):
        words = command.split()
        # A fifth of the nodes, one epoch and a short look at the device are enough.
        shorter = {"--epochs": "1", "--nodes": "20000"}
        words = [*(shorter.get(before, word) for before, word in pairwise(words))]
        words += ["--seconds", "0.1", "--file", "64MiB"] if words[0] == "probe" else []
        run(OUTERCORE, *words, cwd=tmp_path)
        done.append(words[0])
    # The last one, in the text, goes on with a run that is finished.
    assert done == ["generate", "info", "probe", "plan", "train", "train", "report", "train"]
    assert (tmp_path / "report.html").stat().st_size > 0


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_commands_of_a_document_exist_with_their_options(document: Path) -> None:
    for command in commands(document):
        words = command.split()
        known = help_of(words[1])
        is_option = "".join(words[2:3]).startswith("-")
        if words[1] in ("generate", "run", "far", "embedding") and not is_option:
            known = help_of(*words[1:3])
        if words[1] == "plan":
            known = help_of("plan", words[2] if words[2] in ("train", "embed") else "train")
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", command):
            assert re.search(rf"{option}\b", known), f"{document.name}: `{option}` in `{command}`"


@pytest.mark.parametrize(
    "document",
    sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/**/*.md")),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_every_link_in_a_document_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def commands(document: Path) -> list[str]:
    """Every `outercore verb …` in blocks without a language and between backticks."""
    text = document.read_text().replace("\\\n", " ")
    lines = [
        line.strip()
        for block in blocks(document, "")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    lines += re.findall(r"`(outercore [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [line.split(" #")[0] for line in lines if re.match(r"outercore [a-z]+", line)]


@cache
def help_of(*verb: str) -> str:
    return run(OUTERCORE, *verb, "--help")
