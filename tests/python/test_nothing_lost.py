"""Commands that are killed, whose disk is full, or whose files have a flipped byte.

Afterwards there is the old result or the new one, the user's own files are untouched, and the way
out that the message names works. `OUTERCORE_CRASH_ROUNDS=50` tries 50 moments of each command and
50 bytes of each file, or all where there are fewer, and every algorithm of `outercore run`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import loops
import outercore as oc
from embedded import facts, random_triples
from loops import Commands, Ended, Fault
from outercore import _core, _native
from outercore.analytics import ALGORITHMS
from outercore.errors import OutercoreError

ROUNDS = int(os.environ.get("OUTERCORE_CRASH_ROUNDS", "0"))
pytestmark = [
    pytest.mark.skipif(not loops.available(), reason="the kernel lets nobody watch its calls"),
    pytest.mark.timeout(14_400 if ROUNDS else 300),
]

Result = Callable[[Path], Any]
"""What a command has left in the directory; `None` where that is nothing."""

TRAIN = (
    "--model sage --hidden 2 --fanout 2 --batch-size 50 --epochs 2"
    " --set run.checkpoint_seconds=1e-9"
)
EMBED = "--dim 4 --epochs 2 --set run.checkpoint_seconds=1e-9"
MINE = [
    *(f"{root}/notes.txt" for root in ("graph", "gridded", "old", "runs")),
    "old/edges/part0.csv",
    "old/edges/edge/sources.1.npy",
    "graph/grid/edge/order.npy",
    "gridded/nodes/node/component.1.npy",
]
"""Files of the user, some where the product would put its own."""
SOURCE = {"bfs": " --source 3", "sssp": " --source 3 --weights cost"}


@dataclass(frozen=True)
class Case:
    """A command, what comes of it, and what it may change of what was there before."""

    name: str
    command: str
    result: Result
    changes: tuple[str, ...] = ()
    is_several: bool = False
    """Whether the result is several files."""
    is_run: bool = False
    """Whether it has a state to resume from, which is neither the old result nor the new one."""

    def words(self) -> list[str]:
        return shlex.split(self.command)


def arrays(name: str) -> Result:
    """Of a data set its arrays, all of them whole; a grid, which may come and go, apart."""

    def read(root: Path) -> Any:
        try:
            manifest = oc.open(root / name).manifest
        except OutercoreError:
            return None
        assert _native.check(root / name, None)["problems"] == []
        found = manifest["arrays"].items()
        return {key: one["checksum"] for key, one in found if not key.startswith("grid/")}

    return read


def content(*names: str) -> Result:
    """The bytes of files."""

    def read(root: Path) -> Any:
        files = [root / name for name in names]
        return [file.read_bytes() for file in files] if all(map(Path.exists, files)) else None

    return read


def trained(root: Path) -> Any:
    """The best model and the last checkpoint of a training that has come to its end."""
    if not is_finished(root / "run"):
        return None
    last = (root / "run/checkpoints/latest").read_text().strip()
    places = ("model/model.safetensors", f"checkpoints/{last}/tensors.safetensors")
    # Not the bytes of the files, in which the order of what describes them varies.
    found = [load_file(root / "run" / place) for place in places]
    return [{name: one.tobytes() for name, one in tensors.items()} for tensors in found]


def embedded(root: Path) -> Any:
    """The tables of an embedding that has come to its end."""
    if not is_finished(root / "run"):
        return None
    return content("run/entities.npy", "run/relations.npy")(root)


def is_finished(run: Path) -> bool:
    record = run / "record.json"
    return record.exists() and json.loads(record.read_text())["status"] == "finished"


CASES = [
    Case("import", "import edges.csv --out new", arrays("new")),
    Case("overwrite", "import edges.csv --out old --overwrite", arrays("old"), ("old/",)),
    Case(
        "add",
        "add gridded --features x.npy --array age=age.csv --overwrite",
        arrays("gridded"),
        ("gridded/graph.json", "gridded/nodes/node/x.npy"),
    ),
    Case(
        "train",
        f"train graph {TRAIN} --out run",
        trained,
        is_run=True,
    ),
    Case(
        "embed",
        f"embed facts {EMBED} --out run",
        embedded,
        is_run=True,
    ),
    Case(
        "embed-partitions",
        f"embed facts {EMBED} --set budget.partitions=4 --out run",
        embedded,
        is_run=True,
    ),
    Case(
        "evaluate",
        "evaluate trained --predictions classes.csv --logits logits.npy --overwrite",
        content("classes.csv", "logits.npy"),
        ("classes.csv", "logits.npy"),
        is_several=True,
    ),
    Case(
        "run-with-a-new-grid",
        "run pagerank graph --out rank.parquet --overwrite",
        content("rank.parquet"),
        ("rank.parquet", "graph/graph.json"),
    ),
    Case(
        "run-save",
        "run wcc gridded --save component --overwrite --record none",
        arrays("gridded"),
        ("gridded/graph.json", "gridded/nodes/node/component.npy"),
    ),
    Case(
        "run-checkpoint",
        "run pagerank gridded --out rank.npy --overwrite --record run --set checkpoint_every=0",
        content("rank.npy"),
        ("rank.npy",),
    ),
    Case(
        "predict",
        "predict graph --model trained --out scores.csv --overwrite",
        content("scores.csv"),
        ("scores.csv",),
    ),
    Case("layout", "layout graph --precision int8 --order none", arrays("graph"), ("graph/",)),
]
VERBS = [
    Case(
        f"{algorithm}-{ending}",
        f"run {algorithm.replace('_', '-')} gridded{SOURCE.get(algorithm, '')} --record none "
        f"--overwrite --out rank.{ending}",
        content(f"rank.{ending}"),
        (f"rank.{ending}",),
    )
    for algorithm in ALGORITHMS
    for ending in ("npy", "csv")
]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    modules = ["training.run", "embedding.run", "analytics", "minibatches"]
    needed = ["torch_geometric.nn", "torch._dynamo", "tensorboardX", "pyarrow.parquet"]
    with loops.commands(*(f"outercore.{name}" for name in modules), *needed) as started:
        yield started


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Path:
    """A directory with data sets, a trained model, older results and files of the user."""
    root = tmp_path_factory.mktemp("before")
    shape = {"nodes": 200, "degree": 6, "features": 4, "classes": 3, "seed": 1}
    _core.generate_planted(str(root / "graph"), json.dumps(shape), lambda *_: None)
    graph = oc.open(root / "graph")
    graph.add_edge_array("cost", np.arange(graph.num_edge_rows) % 7 + 0.5)
    facts(root / "facts", random_triples(1), random_triples(2)[:40])
    random = np.random.default_rng(3)
    lines = [f"{source},{target}\n" for source, target in random.integers(0, 40, (90, 2))]
    (root / "edges.csv").write_text("".join(lines))
    np.save(root / "x.npy", random.random((200, 3), np.float32))
    (root / "age.csv").write_text("age\n" + "".join(f"{age}\n" for age in range(200)))
    (root / "few.csv").write_text("1,2\n0,1\n")
    shutil.copytree(root / "graph", root / "gridded")
    for command in (
        "import few.csv --out old",
        "grid gridded --weights cost",
        "run pagerank gridded --damping 0.5 --save component --out rank.npy --record none",
        f"train graph {TRAIN} --out trained",
        "evaluate trained --split valid --predictions classes.csv --logits logits.npy",
    ):
        ended = commands.run(shlex.split(command), root)
        assert ended.status == 0, ended.err
    shutil.copy(root / "rank.npy", root / "rank.csv")
    shutil.copy(root / "rank.npy", root / "rank.parquet")
    for name in MINE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"mine: {name}\n")
    return root


def files(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def spread(count: int, rounds: int) -> list[int]:
    """`rounds` numbers below `count`, evenly; all of them where there are no more."""
    if rounds >= count:
        return list(range(count))
    return [(2 * place + 1) * count // (2 * rounds) for place in range(rounds)]


def is_told_well(ended: Ended, where: object) -> None:
    """One clear error for the user, who has to do something."""
    assert ended.status == 1, (where, ended)
    assert ended.err.count("error: ") == 1, (where, ended.err)
    assert "Traceback" not in ended.err, (where, ended.err)


def way_out(command: list[str], said: str) -> list[str]:
    """What to do next, as the hint says."""
    hint = said.partition("hint: ")[2]
    assert hint, said
    named = re.search(r"`outercore ([^`]*)`", hint)
    if named and "..." not in named[1]:
        return shlex.split(named[1])
    for option in ("--resume", "--overwrite"):
        if option in hint and option not in command:
            return [*command, option]
    assert "run the same command again" in hint or "run the command again" in hint, said
    return command


def disturbed(
    commands: Commands, before: Path, root: Path, case: Case, kills: int, full: int
) -> None:
    """Runs the command with a fault at several moments, and takes the way out after each."""
    whole = root / "whole"
    shutil.copytree(before, whole)
    undisturbed = commands.run(case.words(), whole)
    assert undisturbed.status == 0, undisturbed.err
    old, new = case.result(before), case.result(whole)
    assert new is not None
    assert new != old
    found: Counter[str] = Counter()
    work, changes = root / "work", undisturbed.changes
    moments = [Fault("kill", at) for at in spread(len(changes), kills)]
    for fault in [*moments, *(Fault("full", at) for at in spread(len(changes), full))]:
        shutil.copytree(before, work)
        where = (case.name, fault, changes[fault.at])
        ended = commands.run(case.words(), work, fault)
        state = judged(case, ended, before, work, (old, new), where)
        found[f"{fault.kind}: {state}"] += 1
        finish(commands, case, ended, work, where)
        assert case.result(work) == new, where
        nothing_left(work, whole, where)
        kept(case, before, work, where)
        shutil.rmtree(work)
    report(case.name, found)


def report(what: str, found: Counter[str]) -> None:
    if ROUNDS:
        print(f"\n{what}: {dict(found)}")  # noqa: T201


def judged(
    case: Case, ended: Ended, before: Path, work: Path, results: tuple[Any, Any], where: object
) -> str:
    """Whether there is the old result or the new one; that nothing else has changed."""
    kept(case, before, work, where)
    if ended.status not in (-9, 0):
        is_told_well(ended, where)
        assert "o space left" in ended.err, where
        left = [name for name in files(work) if re.search(r"\.(partial|tmp)$", name)]
        assert not left, where
    found = case.result(work)
    if case.is_run and found is None and (work / "run").exists():
        return "resumable"
    if case.is_several and found not in results:
        # They come one after the other, each of them whole.
        each = zip(found, zip(*results, strict=True), strict=True)
        assert all(one in both for one, both in each), where
        return "one of each"
    assert found in results, where
    return "old" if found == results[0] else "new"


def kept(case: Case, before: Path, work: Path, where: object) -> None:
    """The user's own files, and all else that the command has no business with."""
    now = files(work)
    for name, data in files(before).items():
        if name in MINE or not name.startswith(case.changes):
            assert now.get(name) == data, (where, name)


def finish(commands: Commands, case: Case, ended: Ended, work: Path, where: object) -> None:
    """Takes the way out until the command has ended well."""
    command = case.words()
    for _ in range(3):
        if ended.status == 0:
            return
        if ended.status > 0:
            command = way_out(command, ended.err)
        ended = commands.run(command, work)
        if ended.status != 0:
            is_told_well(ended, (where, command))
    assert ended.status == 0, (where, command, ended.err)


def nothing_left(work: Path, whole: Path, where: object) -> None:
    """There are the files of a command that was not disturbed, but for records and scalars."""

    def names(root: Path) -> list[str]:
        # Numbers of checkpoints, and those of arrays that replaced others, may be other ones.
        found = [re.sub(r"/\d{6}/|\.\d+(?=\.npy$)", "", name) for name in files(root)]
        return sorted(name for name in found if not re.search(r"^runs/|/tensorboard/", name))

    for note in work.rglob(".change.json"):
        # The commit stood when the command was killed: the next writer ends the clean-up.
        _native.remove_layouts(note.parent, None)
    assert names(work) == names(whole), where


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_that_is_disturbed_loses_nothing(
    commands: Commands, before: Path, tmp_path: Path, case: Case
) -> None:
    disturbed(commands, before, tmp_path, case, ROUNDS or 2, ROUNDS or 1)


@pytest.mark.skipif(not ROUNDS, reason="the long form: OUTERCORE_CRASH_ROUNDS")
@pytest.mark.parametrize("case", VERBS, ids=lambda case: case.name)
def test_a_result_of_every_algorithm_is_the_old_one_or_the_new_one(
    commands: Commands, before: Path, tmp_path: Path, case: Case
) -> None:
    disturbed(commands, before, tmp_path, case, ROUNDS, ROUNDS)


READS = [
    Case("graph", f"train graph {TRAIN} --out run", trained),
    Case(
        "gridded",
        "run sssp gridded --source 3 --weights cost --out hops.npy --record none",
        content("hops.npy"),
    ),
    Case("facts", f"embed facts {EMBED} --out run", embedded),
]
"""A command that reads the arrays of each data set, which is its name here."""


def places_of(file: Path) -> list[int]:
    """Bytes to flip: of an array's data, or of the manifest."""
    data = file.read_bytes()
    if file.suffix == ".json":
        wanted = (b'"version"', b'"shape"', b'"count"', b'"checksum"', b'"xxh3:', b'"undirected"')
        return [data.index(one) + len(one) + 2 for one in wanted if one in data]
    return [4096 + place for place in spread(len(data) - 4096, ROUNDS or 1)]


@pytest.mark.parametrize("reads", READS, ids=lambda reads: reads.name)
def test_a_flipped_byte_of_a_data_set_is_refused_or_harmless_or_found_by_check(
    commands: Commands, before: Path, tmp_path: Path, reads: Case
) -> None:
    """Reading verifies no checksums but a grid's: `check` does (format, section 7)."""
    data_set = reads.name
    whole = tmp_path / "whole"
    shutil.copytree(before, whole)
    assert commands.run(reads.words(), whole).status == 0
    expected = reads.result(whole)
    named = oc.open(before / data_set).manifest["arrays"]
    places = {f"{data_set}/{array['file']}": key for key, array in named.items()}
    found: Counter[str] = Counter()
    for file in [*sorted(places), f"{data_set}/graph.json"]:
        for place in places_of(before / file):
            work = tmp_path / "work"
            shutil.copytree(before, work)
            loops.flip(work / file, place)
            where = (file, place)
            ended = commands.run(reads.words(), work)
            if ended.status != 0:
                is_told_well(ended, where)
                found["refused"] += 1
            elif reads.result(work) == expected:
                found["harmless"] += 1
            else:
                told = commands.run(["check", data_set], work)
                assert told.status == 1, where
                assert places.get(file, "") in told.err, where
                found["found by check"] += 1
            shutil.rmtree(work)
    report(data_set, found)


RESUMED = {
    "train": (Case("train", f"train graph {TRAIN} --out run", trained), "run"),
    "embed": (Case("embed", f"embed facts {EMBED} --out run", embedded), "run"),
    "embed-partitions": (
        Case(
            "embed-partitions", f"embed facts {EMBED} --set budget.partitions=4 --out run", embedded
        ),
        "run",
    ),
    "run": (
        Case(
            "run",
            "run pagerank gridded --out ranks.npy --record run --set checkpoint_every=0",
            content("ranks.npy"),
        ),
        "run",
    ),
    "evaluate": (
        Case("evaluate", "evaluate trained --predictions found.csv", content("found.csv")),
        "trained",
    ),
}
"""Commands that read what another has left, and where that is."""
TESTED_ELSEWHERE = ("train", "embed")
"""In `test_train_crash.py` and `test_embed_crash.py`, which take less time."""


@pytest.mark.parametrize("verb", RESUMED)
def test_a_flipped_byte_of_what_a_command_left_is_refused_or_harmless(
    commands: Commands, before: Path, tmp_path: Path, verb: str
) -> None:
    if verb in TESTED_ELSEWHERE and not ROUNDS:
        pytest.skip("the long form: OUTERCORE_CRASH_ROUNDS")
    case, left = RESUMED[verb]
    whole, stopped, work = (tmp_path / name for name in ("whole", "stopped", "work"))
    shutil.copytree(before, whole)
    shutil.copytree(before, work)
    undisturbed = commands.run(case.words(), whole)
    assert undisturbed.status == 0, undisturbed.err
    expected, command = case.result(whole), case.words()
    if verb != "evaluate":
        at = len(undisturbed.changes) * 2 // 3
        assert commands.run(command, work, Fault("kill", at)).status == -9
        command = [verb[:5], "--resume", "run"]
    # A run remembers whole paths, so it is resumed where it began.
    work.rename(stopped)
    found: Counter[str] = Counter()
    for file in sorted(files(stopped / left)):
        size = (stopped / left / file).stat().st_size
        for place in spread(size, ROUNDS or 1):
            shutil.copytree(stopped, work)
            loops.flip(work / left / file, place)
            where = (file, place)
            ended = commands.run(command, work)
            if ended.status != 0:
                is_told_well(ended, where)
                assert "hint: " in ended.err, (where, ended.err)
                found["refused"] += 1
            else:
                assert case.result(work) == expected, where
                found["harmless"] += 1
            shutil.rmtree(work)
    report(verb, found)
