"""The command line: what it prints where, how it ends, and what it needs installed."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import typer

from outercore import _core, cli
from outercore.cli import console
from outercore.cli.next_step import Known, with_command
from outercore.embedding.config import RECIPES, EmbedConfig
from outercore.errors import BudgetError, CorruptError, InternalError, InterruptError

VERBS = [
    ["import"],
    ["generate", "rmat"],
    ["generate", "planted"],
    ["check"],
    ["info"],
    ["probe"],
    ["plan"],
    ["plan", "train"],
    ["plan", "embed"],
    ["train"],
    ["evaluate"],
    ["export-model"],
    ["layout"],
    ["embed"],
    ["tune"],
    ["jobs"],
    ["report"],
]

needs_core = pytest.mark.skipif(
    not hasattr(_core, "Importer"), reason="the native module has no importer yet"
)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_explains_itself_with_an_example(verb: list[str], outcome: Any) -> None:
    code, out, _ = outcome(*verb, "--help")
    assert code == 0
    assert f"outercore {' '.join(verb)} " in out.split("Example")[1]


def test_every_option_says_what_it_is_for() -> None:
    def unsaid(command: Any, verb: tuple[str, ...]) -> list[str]:
        if hasattr(command, "commands"):
            each = command.commands.items()
            return [text for name, one in each for text in unsaid(one, (*verb, name))]
        return [
            " ".join((*verb, *option.opts)) for option in command.params if not option.help.strip()
        ]

    assert unsaid(typer.main.get_command(cli.app), ()) == []


def test_embed_tells_what_counts_where_an_option_is_not_given(outcome: Any) -> None:
    _, out, _ = outcome("embed", "--help")
    told = " ".join(out.replace("\u2502", " ").split())
    options = EmbedConfig().optimiser
    assert f"Step size of the optimiser. The default is {options.learning_rate}." in told
    assert f"one and a half times as many. The default is {options.batch_size}." in told
    assert f"half of the free memory. The default is {EmbedConfig().budget.memory}." in told
    for name in RECIPES:
        assert name in told


def test_the_version_is_data(outcome: Any) -> None:
    code, out, err = outcome("--version")
    assert (code, err) == (0, "")
    assert out.startswith("outercore ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "trian"),
        (["train", "x", "--fanout", "a,b"], "--fanout (sampling.fanout): expected a whole number"),
        (["train", "x", "--model", "gnn"], "--model (model.kind): expected one of sage"),
        (["train", "x", "--batch-size", "-1"], "--batch-size (sampling.batch_size): expected at"),
        (["train", "x", "--lr", "-1"], "--learning-rate (optimiser.learning_rate): expected a"),
        (["train", "x", "--set", "budget.threads=0"], "budget.threads: expected 1 to 1024, f"),
        (["train", "x", "--set", "budget.threads"], "expected NAME=VALUE"),
        (["train", "x", "--set", "budget.thread=1"], "did you mean `budget.threads`?"),
        (
            ["train", "x", "--heads", "2"],
            "hint: `--set model.heads=VALUE`: Number of attention heads",
        ),
        (["embed", "x", "--set", "budget.threads=1025"], "budget.threads: expected 1 to 1024, f"),
        (
            ["train", "x", "--memory", "much"],
            "--memory (budget.memory): expected a size such as `8GiB`",
        ),
        (
            ["embed", "x", "--memory", "0"],
            "--memory (budget.memory): expected more than zero bytes, found `0`",
        ),
        (["run", "wcc", "x", "--set", "far.chunk=1KB3"], "far.chunk: expected a size"),
        (
            ["run", "wcc", "x", "--scratch", "y"],
            "hint: `--set scratch=VALUE`: Write scratch files",
        ),
        (["memory-server", "--size", "half", "--token-file", "x"], "--size: expected a size"),
        (["probe", "x", "--file", "1 km"], "--file: expected a size"),
        (["plan", "embed", "x", "--bandwidth", "2GB/s,1"], "--bandwidth: expected a size"),
        (["plan", "x", "--seed", "-1"], "--seed (run.seed): expected 0 to"),
        (["train"], "train: expected a data set, or `--resume RUN`"),
        (["train", "x", "--resume", "y"], "a run knows its data set: leave `x` away"),
        (["train", "x", "--epochs", "many"], "'--epochs'"),
        (
            ["train", "x", "--batch-size", "0"],
            "--batch-size (sampling.batch_size): expected at least 1, found 0",
        ),
        (["plan", "embed", "x"], "/x`: no such directory"),
        (["plan", "x"], "/x`: no such directory"),
        (
            ["plan", "label-propagation", "x", "--memory", "1GiB"],
            "hint: `outercore run label-propagation x --memory 1GiB --plan`",
        ),
        (["plan", "trian", "x"], "found `trian`\nhint: `outercore plan train x`"),
        (["embed"], "embed: expected a data set, or `--resume RUN`"),
        (
            ["embed", "x", "--model", "gnn"],
            "distmult, complex, transe, rotate, simple, custom; found",
        ),
        (["embed", "x", "--loss", "l"], "--loss (loss.kind): expected one of softmax"),
        (["embed", "x", "--negatives", "0"], "--negatives (negatives.count): expected a"),
        (["embed", "x", "--set", "model.norm=3"], "model.norm: expected one of 1, 2"),
        (["embed", "x", "--set", "regulariser.weight=-1"], "regulariser.weight: expected at least"),
        (["embed", "x", "--recipe", "complex-fb15k"], "did you mean `complex-fb15k-237`"),
        (["import", "nowhere.csv", "--out", "x"], "file `nowhere.csv` does not exist"),
        (["import", "x", "--out", "x", "--self-loops", "a"], "--self-loops: expected one of keep"),
        (["import", "x", "--out", "x", "--feature-dtype", "a"], "--feature-dtype: expected one"),
        (["import", "x", "--out", "x", "--triples", "--unknown", "a"], "--unknown: expected one"),
        (["report", "nowhere"], "no `record.json` there"),
    ],
)
def test_a_users_mistake_ends_with_1_and_one_line(
    arguments: list[str], message: str, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = outcome(*arguments)
    if arguments not in (["train"], ["embed"]):
        assert out == ""
        assert message in err
        assert err.startswith("error: ")
    assert code == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("raised", "code", "expected"),
    [
        (CorruptError("array `x`: short\nhint: copy it again"), 1, "hint: copy it again"),
        (InternalError("this cannot be"), 2, "error: this cannot be"),
        (ZeroDivisionError("oops"), 2, "internal error: ZeroDivisionError: oops"),
        (InterruptError("stopped in epoch 3\nhint: resume it"), 130, "stopped: in epoch"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_errors_end_with_the_code_of_their_kind(
    raised: BaseException,
    code: int,
    expected: str,
    outcome: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr("outercore._core.check", fail)
    found, out, err = outcome("check", "anything")
    assert (found, out) == (code, "")
    assert expected in err
    assert ("Traceback" in err) == isinstance(raised, ZeroDivisionError)


def test_check_lists_problems_and_ends_with_1(
    outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = {"array": "nodes/node/x", "kind": "Corrupt", "message": "short", "hint": "copy it"}
    report = {"arrays": 3, "problems": [problem], "omitted": 2}
    monkeypatch.setattr("outercore._core.check", lambda *_: report)
    code, out, err = outcome("check", "papers")
    assert (code, out) == (1, "")
    assert "error: array `nodes/node/x`: short\nhint: copy it" in err
    assert "2 more" in err
    code, out, _ = outcome("check", "papers", "--json")
    assert code == 1
    assert json.loads(out) == report


def test_probe_prints_a_line_for_each_point_and_marks_the_peaks(
    outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def point(read_bytes: int, depth: int, iops: float) -> dict[str, float]:
        bytes_per_s = read_bytes * iops
        return {"read_bytes": read_bytes, "depth": depth, "iops": iops, "bytes_per_s": bytes_per_s}

    points = [point(4096, 1, 9e3), point(4096, 256, 1e5), point(1 << 20, 1, 2e3)]
    profile = {"backend": "uring", "latency_s": 1e-4, "points": points}
    monkeypatch.setattr("outercore._core.probe", lambda *_: dict(profile))
    code, out, err = outcome("probe", "papers")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert ["latency", "0.1", "ms"] in lines
    assert ["4.0", "KiB", "1", "9,000", "36.9"] in lines
    assert ["4.0", "KiB", "256", "100,000", "409.6", "peak"] in lines
    assert ["1.0", "MiB", "1", "2,000", "2,097.2", "peak"] in lines
    assert "{" not in out
    code, out, _ = outcome("probe", "papers", "--json")
    assert (code, json.loads(out)) == (0, profile)


def test_train_prints_scores_on_stdout_and_the_rest_on_stderr(
    outcome: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    from fakes import FakeGraph, FakeLoader, planted
    from outercore import training
    from outercore.training.run import resume, train
    from outercore.training.trained_model import evaluate

    for function in (train, resume, evaluate):
        faked = functools.partial(function, open_graph=FakeGraph, open_loader=FakeLoader)
        monkeypatch.setattr(training, function.__name__, faked, raising=False)
    data, settled = planted(tmp_path / "data"), tmp_path / "run"
    options = ["--fanout", "4,3", "--hidden", "8", "--epochs", "2", "--memory", "64MiB"]
    code, out, err = outcome("train", data, *options, "--out", settled)
    assert code == 0, err
    assert "test" in out
    assert "epoch   2  loss" in err
    assert "epoch" not in out.splitlines()[1]

    code, out, err = outcome("train", "--resume", settled, "--json")
    assert code == 0, err
    assert json.loads(out)["status"] == "finished"
    assert err == ""

    code, out, err = outcome("evaluate", settled, "--json", "--split", "valid")
    assert code == 0, err
    assert json.loads(out)["neighbours"] == "all"

    code, out, err = outcome("train", data, *options, "--out", settled)
    assert code == 1
    assert "hint: `outercore train --resume" in err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--batch-size", "20"), "--batch-size (sampling.batch_size)"),
        (("--lr", "0.1"), "--learning-rate (optimiser.learning_rate)"),
        (("--out", "x"), "--out"),
        (("--seed", "0"), "--seed (run.seed)"),
        (("--set", "sampling.replace=true"), "sampling.replace"),
    ],
)
def test_a_training_goes_on_with_its_own_configuration_only(
    outcome: Any, words: tuple[str, ...], option: str
) -> None:
    code, _, err = outcome("train", "--resume", "run", *words)
    assert code == 1
    assert f"error: {option}: a run is resumed with its own options\nhint: leave it out" in err
    assert "run `run`: no such directory" in outcome("train", "--resume", "run", "--json")[2]


def test_a_directory_that_is_something_else_is_told_by_what_it_is(
    outcome: Any, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    for name, groups in (("network", {"sampling": {}}), ("rows", {"negatives": {}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"config": groups}))
    for name, file in (("papers", "graph.json"), ("other", "notes")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    train, embed = "`outercore train", "`outercore embed"
    for arguments, found, hint in [
        ("evaluate nowhere", "`nowhere`: no such directory", f"a run directory of {train}`"),
        ("evaluate papers", "this is a data set", f"a run directory of {train}`"),
        ("evaluate rows", f"this is a run of {embed}`", f"score it by {embed}ding evaluate rows`"),
        ("evaluate network", "no epoch was scored", f"go on with it by {train} --resume network`"),
        ("evaluate other", "no `model.json` there", f"a run directory of {train}`"),
        ("train --resume nowhere", "no such directory", f"the directory that {train}` printed"),
        ("train --resume papers", "this is a data set", f"the directory that {train}` printed"),
        ("train --resume rows", f"this is a run of {embed}`", f"{embed} --resume rows` resumes it"),
        ("train --resume other", "no `config.json`", f"the directory that {train}` printed"),
        ("embed --resume network", f"a run of {train}`", f"{train} --resume network` resumes it"),
        ("embed --resume papers", "this is a data set", f"the directory that {embed}` printed"),
    ]:
        code, out, err = outcome(*arguments.split())
        error, _, next_step = err.partition("\nhint: ")
        assert (code, out) == (1, ""), arguments
        assert found in error, arguments
        assert hint in next_step, arguments
        assert not list(tmp_path.glob("*/.run.lock")), arguments


def test_a_budget_that_is_too_small_names_the_command_that_fits(
    outcome: Any, tmp_path: Path
) -> None:
    outcome("generate", "planted", "--nodes", "400", "--features", "8", "--out", "papers")
    for command in (
        "run wcc papers --memory 0.0001% --record none",
        "grid papers --memory=1KiB --overwrite",
        "plan papers --memory 1KiB",
        "plan embed papers --dim 16 --memory 1KiB",
    ):
        code, _, err = outcome(*command.split())
        assert code == 1, err
        fits = re.search(r"\nhint: `outercore ([^`]*)`", err)
        assert fits, err
        code, _, err = outcome(*fits[1].split())
        assert code == 0, err


@pytest.mark.parametrize("header", ["", "head\trelation\ttail\n"])
def test_three_columns_of_words_name_the_command_for_triples(header: str, outcome: Any) -> None:
    Path("facts.tsv").write_text(header + "ann\tknows\tbob\nbob\tlikes\tcy\n")
    code, _, err = outcome("import", "facts.tsv", "--out", "facts")
    assert code == 1
    assert "`outercore import facts.tsv --out facts --triples`" in err
    code, _, err = outcome("import", "facts.tsv", "--out", "facts", "--triples")
    assert code == 0, err
    assert "ids from" not in err
    assert Path("facts").is_dir()


def test_commands_in_hints_quote_paths_with_blanks(outcome: Any) -> None:
    Path("my file.csv").write_text("w,src,dst\n1,2,0\n")
    _, _, err = outcome("import", "my file.csv", "--out", "my set")
    assert "choose the columns: `outercore import 'my file.csv:src,dst' --out 'my set'`" in err
    given = ("import", "my file.csv:src,dst", "--out", "my set")
    assert outcome(*given)[0] == 0
    _, _, err = outcome(*given)
    assert "`outercore import 'my file.csv:src,dst' --out 'my set' --overwrite`" in err
    Path("my set/config.json").write_text("{}")
    _, _, err = outcome("embedding", "neighbours", "my set", "x")
    assert "`outercore embed --resume 'my set'`" in err


def test_a_third_column_of_numbers_names_the_command_for_names(outcome: Any) -> None:
    Path("known.tsv").write_text("ann\tbob\t3\nbob\tcy\t4\n")
    _, _, err = outcome("import", "known.tsv", "--out", "known")
    assert "`outercore import known.tsv --out known --ids dictionary`" in err


def test_no_command_is_named_that_would_be_refused() -> None:
    error = BudgetError("too small\nhint: raise --memory, or lower it", needed=1)
    assert with_command(error, ["train", "--resume", "runs/x"], Known) == str(error)


def test_interrupted_training_ends_with_130_and_says_how_to_go_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from fakes import planted

    data = planted(tmp_path / "data")
    script = f"""
        import functools, os, signal, sys
        from fakes import FakeGraph, FakeLoader
        from outercore import training
        from outercore.training.run import train
        from outercore.cli import run, watch
        import outercore.cli.train

        class Watch(watch.TrainWatch):
            def batch_done(self, *arguments):
                super().batch_done(*arguments)
                os.kill(os.getpid(), signal.SIGINT)

        outercore.cli.train.TrainWatch = Watch
        training.train = functools.partial(
            train, open_graph=FakeGraph, open_loader=FakeLoader
        )
        sys.exit(run(["train", {str(data)!r}, "--batch-size", "32", "--fanout", "3",
                      "--out", {str(tmp_path / "run")!r}, "--memory", "64MiB"]))
    """
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={"PYTHONPATH": ":".join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 130, finished.stderr
    assert "stopped: in epoch 1 after 1 batches" in finished.stderr
    assert f"hint: go on with `outercore train --resume {tmp_path / 'run'}`" in finished.stderr
    assert (tmp_path / "run/checkpoints/latest").exists()
    assert json.loads((tmp_path / "run/record.json").read_text())["status"] == "interrupted"


WITHOUT_TORCH = """
import sys

class Missing:
    names = ("torch", "torch_geometric", "safetensors", "tensorboardX", "plotly")

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])
        return None

sys.meta_path.insert(0, Missing())
from outercore.cli import run
sys.exit(run(sys.argv[1:]))
"""


def without_torch(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *[str(argument) for argument in arguments]],
        env={"PYTHONPATH": ":".join(sys.path), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_explains_itself_without_pytorch(verb: list[str]) -> None:
    assert without_torch(*verb, "--help").returncode == 0


def test_what_needs_pytorch_says_how_to_install_it(tmp_path: Path) -> None:
    for arguments in (["train", "x"], ["plan", "x"], ["evaluate", "x"]):
        finished = without_torch(*arguments)
        assert finished.returncode == 1, finished.stderr
        assert 'hint: pip install "outercore[torch]"' in finished.stderr
    (tmp_path / "record.json").write_text("{}")
    finished = without_torch("report", tmp_path)
    assert "reports need the package `plotly`" in finished.stderr


@needs_core
def test_import_info_and_check_work_without_pytorch(tmp_path: Path) -> None:
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\n" + "".join(f"{i},{(i * 7) % 50}\n" for i in range(50)))
    features = tmp_path / "x.csv"
    features.write_text("".join(f"{i},{i % 3},0.5\n" for i in range(50)))
    labels = tmp_path / "y.csv"
    labels.write_text("label\n" + "".join(f"{i % 4}\n" for i in range(50)))
    train = tmp_path / "train.csv"
    train.write_text("node\n" + "".join(f"{i}\n" for i in range(20)))
    graph = tmp_path / "graph"
    finished = without_torch(
        *("import", edges, "--features", features, "--labels", labels),
        *("--split", f"train={train}", "--undirected", "--out", graph, "--json"),
    )
    assert finished.returncode == 0, finished.stderr
    json.loads(finished.stdout)
    finished = without_torch("info", graph, "--json")
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout)["node_types"]["node"]["count"] == 50
    finished = without_torch("check", graph)
    assert finished.returncode == 0, finished.stderr


def test_json_has_null_for_a_number_that_is_not_finite(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"top": [(3, float("inf")), (1, 0.5)], "mean": float("nan"), "least": -float("inf")}
    for indent in (1, None):
        console.json_data(value, indent=indent)
        printed = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert printed == {"top": [[3, None], [1, 0.5]], "mean": None, "least": None}


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    for name, command in typer.main.get_command(cli.app).commands.items():
        about, _, _ = command.help.partition("\n\n")
        assert (name, cli.COMMANDS[name]) == (name, about.replace("\n", " "))


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_no_command_and_no_numpy(option: str) -> None:
    script = f"import sys; from outercore.cli import run; run([{option!r}]); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    modules = set(done.stdout.splitlines()[-1].split())
    assert modules & {"outercore.cli.import_", "outercore.analytics", "numpy", "pyarrow"} == set()
