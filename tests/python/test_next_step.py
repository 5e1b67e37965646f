"""Commands that messages suggest are those that work when they are pasted."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from outercore.cli import app, run
from outercore.errors import NotFoundError
from suggested import Run, without_result

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
        ("sums.csv", ["--ids", "dictionary"], ["--separator", "--separator"]),
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


TABLES = {
    "edges.csv": "src,dst\n0,1\n1,2\n2,3\n3,0\n0,2\n",
    "names.csv": "source,target\nann,bob\nbob,cid\ncid,ann\n",
    "facts.tsv": "ann\tlikes\tbob\nbob\tknows\tcid\ncid\tlikes\tann\n",
    "x.csv": "id,a,b\n0,1,2\n1,2,2\n2,3,2\n3,4,2\n",
    "titles.csv": "id,title,year\nann,A,1\nbob,B,2\ncid,C,3\n",
}
SETS = [
    "import edges.csv --out g",
    "import names.csv --ids dictionary --out named",
    "import facts.tsv --triples --out facts",
    "add g --array a=x.csv:a",
    "add named --text title=titles.csv:title",
    "grid facts --relation likes",
    "run wcc g --record done --save part",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph, a graph with names and triples, and the tables that they come from."""
    home = tmp_path_factory.mktemp("sets")
    for name, text in TABLES.items():
        (home / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        for command in SETS:
            assert run(shlex.split(command)) == 0, command
    return home


@pytest.mark.parametrize(
    "command",
    [
        "import edges.csv --out g",
        "import edges.csv --text title=titles.csv --out g2",
        "import names.csv --out g2",
        "import facts.tsv --out g2",
        "add g --array a=x.csv:b",
        "add named --text year=titles.csv",
        "add named --text title=titles.csv:title",
        "run wcc edges.csv",
        "run wcc g --save part",
        "run wcc g --record done",
        "run --resume done",
        "run wcc g --memory 1KiB",
        "run wcc g --out part.xlsx",
        "run wcc facts --memory 1KiB",
        "grid facts --relation knows",
        "grid g --relation likes",
        "plan wcc g",
        "train facts",
        "embed g --memory 1KiB",
        "info edges.csv",
        "layout g --precision int8",
        "check edges.csv",
    ],
)
def test_each_command_that_another_refusal_suggests_leads_to_a_result(
    command: str, made: Path, outcome: Run
) -> None:
    shutil.copytree(made, ".", dirs_exist_ok=True)
    code, _, told = outcome(*shlex.split(command))
    assert code == 1
    assert without_result(told, outcome) == [], told


def test_commands_that_messages_name_exist() -> None:
    root = typer.main.get_command(app)
    for path, text in messages():
        for command in re.findall("`outercore ([a-z][^`]*)`", text):
            words, found = command.split(), root
            while words and words[0] in getattr(found, "commands", {}):
                found = found.commands[words.pop(0)]
            if found is root:
                assert words[0] in _VARIABLE, (path, command)
                continue
            known = {name for one in found.params for name in (*one.opts, *one.secondary_opts)}
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert hasattr(found, "commands") or options <= known, (path, command)


_VARIABLE = {"run"}


def messages() -> Iterator[tuple[Path, str]]:
    """The texts in the sources, with X for what is filled in."""
    home = Path(__file__).parents[2]
    for path in sorted((home / "python/outercore").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [one.value if isinstance(one, ast.Constant) else "X" for one in node.values]
                yield path, "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value
    for path in sorted((home / "crates").glob("*/src/**/*.rs")):
        text = re.sub(r"\\\n\s*", "", path.read_text("utf-8"))
        yield path, re.sub(r"\{\w*\}", "X", text)


def test_names_of_the_users_data_are_never_taken_for_options() -> None:
    for name in ("--overwrite", "--memory 8GiB", "--no-header", "--set a=1"):
        error = NotFoundError(f"node `{name}` is not in the data set\nhint: pass `--memory 1GiB`")
        assert error.message == f"node `{name}` is not in the data set"
        assert str(error).endswith("hint: pass `memory='1GiB'`")
