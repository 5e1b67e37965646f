"""The examples run, and so does the code in the documents."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
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


def test_the_minibatch_example_learns_the_planted_communities(planted: Path) -> None:
    printed = run(sys.executable, ROOT / "examples" / "minibatch.py", planted, "--memory", "32MiB")
    accuracy = re.search(r"accuracy ([0-9.]+)", printed)
    assert accuracy is not None, printed
    assert float(accuracy[1]) > 0.5, printed


def test_lightning_fits_tests_and_predicts(planted: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="the example needs it")
    example = ROOT / "examples" / "lightning_fit.py"
    printed = run(sys.executable, example, planted, "--memory", "32MiB", "--out", tmp_path / "run")
    found = re.search(r"accuracy ([0-9.]+), (\d+) predictions", printed)
    assert found is not None, printed
    assert float(found[1]) > 0.5, printed
    assert found[2] == "2000"


def test_the_stores_example_loads_batches_through_pyg(planted: Path) -> None:
    printed = run(sys.executable, ROOT / "examples" / "pyg_stores.py", planted)
    assert "64 seeds" in printed
    assert "16)" in printed


def test_two_processes_take_the_steps_of_one(planted: Path) -> None:
    """Two batches a step in one process, or a batch each in two: the same losses."""
    example = ROOT / "examples" / "torchrun.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    both = run(*launch, "--nproc-per-node", "2", example, planted, "--epochs", "2")
    alone = run(sys.executable, example, planted, "--steps-of", "2", "--epochs", "2")
    pattern = r"epoch \d+: (\d+) steps, loss ([0-9.]+)"
    found = [re.findall(pattern, printed) for printed in (both, alone)]
    assert [steps for steps, _ in found[0]] == [steps for steps, _ in found[1]]
    assert len(found[0]) == 2
    losses = [[float(loss) for _, loss in epochs] for epochs in found]
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)


def test_workers_of_ray_train_share_an_epoch_and_write_their_parts(
    planted: Path, tmp_path: Path
) -> None:
    example = ROOT / "examples" / "ray_train.py"
    printed = run(sys.executable, example, planted, "--out", tmp_path / "run")
    found = re.search(r"loss ([0-9.]+), accuracy on the test nodes ([0-9.]+)", printed)
    assert found is not None, printed
    assert float(found[2]) > 0.5, printed
    folder = tmp_path / "run" / "predictions"
    assert sorted(part.name for part in folder.iterdir()) == ["part=0", "part=1"]
    table = pq.read_table(folder)
    assert sorted(table["id"].to_pylist()) == list(range(2000))
    assert set(table["part"].to_pylist()) == {0, 1}


@pytest.mark.parametrize(
    "name", ["neighbor_sampling", "hetero", "hgt", "link_prediction", "remote"]
)
def test_a_program_of_pyg_learns_with_the_loader_of_outercore(name: str) -> None:
    printed = run(sys.executable, ROOT / "examples" / "pyg" / f"{name}.py")
    accuracies = re.findall(r"accuracy ([0-9.]+)", printed)
    assert accuracies, printed
    assert min(map(float, accuracies)) > 0.7, printed


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
        # A fifth of the nodes and one epoch are enough to see that the budget works.
        shorter = {"--epochs": "1", "--nodes": "20000"}
        words = [*(shorter.get(before, word) for before, word in pairwise(words))]
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
