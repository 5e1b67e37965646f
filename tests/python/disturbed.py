"""Commands with faults: the process is killed, the disk is full, or files have a flipped bit.

`kill_and_fill` and `flip_bits` test any command; `disturbed_cases.py` lists the commands.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.numpy import load_file

import loops
import outercore as oc
from loops import Change, Commands, Ended, Fault
from outercore import _core
from outercore.errors import OutercoreError

Result = Callable[[Path], Any]
"""Reads the result of a command from its directory; `None` without a result."""


@dataclass(frozen=True)
class Case:
    """A command, its result, and the existing files that it may change."""

    name: str
    command: str
    result: Result
    changes: tuple[str, ...] = ()
    world: str = "plain"
    """Name of its directory in `disturbed_cases.WORLDS`."""
    is_several: bool = False
    """Whether the result is several files."""
    is_run: bool = False
    """Whether it leaves a state to resume from, which differs from the old and the new result."""
    steps: int = 0
    """Number of steps that take effect separately. The command takes the number as its last word,
    and prints `acknowledged` for each durable step."""

    def words(self) -> list[str]:
        return shlex.split(self.command)


class World:
    """A directory that is prepared once and copied for each command.

    The copy is always at the same path, because runs store absolute paths.
    """

    def __init__(self, make: Callable[[Path], None], mine: list[str], home: Path) -> None:
        self.place, self.kept = home / "place", home / "kept"
        self.place.mkdir()
        make(self.place)
        for name in mine:
            file = self.place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"mine: {name}\n")
        self.place.rename(self.kept)

    def fresh(self) -> Path:
        """A new copy of the prepared directory."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.kept, self.place, symlinks=True)
        return self.place


def arrays(name: str, *, grids: bool = False) -> Result:
    """Checksums of the arrays of a data set, including updates in its log.

    Without the grid, or with `grids` only the grid. Opening a data set folds its log into the
    arrays, so a copy is opened.
    """

    def read(root: Path) -> Any:
        copy = root.with_name("looked-at")
        shutil.rmtree(copy, ignore_errors=True)
        if not (root / name / "graph.json").exists():
            return None
        shutil.copytree(root / name, copy, symlinks=True)
        try:
            entries = oc.open(copy).manifest["arrays"].items()
        except OutercoreError:
            return None
        return {k: entry["checksum"] for k, entry in entries if k.startswith("grid/") == grids}

    read.data_set = name  # type: ignore[attr-defined]
    return read


def content(*names: str) -> Result:
    """The bytes of files."""

    def read(root: Path) -> Any:
        files = [root / name for name in names]
        return [file.read_bytes() for file in files] if all(map(Path.exists, files)) else None

    return read


def several(*results: Result) -> Result:
    """One result after the other."""

    def read(root: Path) -> Any:
        return [result(root) for result in results]

    names = [getattr(result, "data_set", None) for result in results]
    read.data_set = next(filter(None, names), None)  # type: ignore[attr-defined]
    return read


def trained(root: Path) -> Any:
    """The best model and the last checkpoint of a finished training."""
    if not is_finished(root / "run"):
        return None
    last = (root / "run/checkpoints/latest").read_text().strip()
    places = ("model/model.safetensors", f"checkpoints/{last}/tensors.safetensors")
    # Not the bytes of the files: the order of their metadata varies.
    models = [load_file(root / "run" / place) for place in places]
    return [{name: values.tobytes() for name, values in tensors.items()} for tensors in models]


def vectors(root: Path) -> Any:
    """The tables of a finished embedding."""
    if not is_finished(root / "run"):
        return None
    return content("run/entities.npy", "run/relations.npy")(root)


def is_finished(run: Path) -> bool:
    record = run / "record.json"
    return record.exists() and json.loads(record.read_text())["status"] == "finished"


def files(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def spread(count: int, rounds: int) -> list[int]:
    """`rounds` evenly spread numbers below `count`; all numbers if there are not more."""
    if rounds >= count:
        return list(range(count))
    return [(2 * place + 1) * count // (2 * rounds) for place in range(rounds)]


def problems(data_set: Path) -> list[str]:
    """The problems that a check of a data set finds; does not fold its log."""
    try:
        return [str(problem) for problem in _core.check(data_set, None)["problems"]]
    except OutercoreError as error:
        return [str(error)]


def is_told_well(ended: Ended, where: object) -> None:
    """Asserts that the command ended with exactly one clear error message."""
    assert ended.status == 1, (where, ended)
    assert ended.err.count("error: ") == 1, (where, ended.err)
    assert "Traceback" not in ended.err, (where, ended.err)


def way_out(command: list[str], said: str) -> list[str]:
    """The next command according to the hint of a message."""
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


class Disturbance:
    """A command in its world, with its result without a fault."""

    def __init__(self, commands: Commands, world: World, case: Case) -> None:
        self.commands, self.world, self.case = commands, world, case
        self.before = files(world.kept)
        work = world.fresh()
        ended = commands.run(case.words(), work)
        assert ended.status == 0, ended.err
        self.old, self.new = case.result(world.kept), case.result(work)
        self.changes: list[Change] = ended.changes
        self.names = left_names(work)
        assert self.new is not None
        assert self.new != self.old
        self._stages: list[Any] = []

    def kill_and_fill(self, kills: int, full: int) -> Counter[str]:
        """Runs the command with faults at several moments, and recovers by the hints after each."""
        count = len(self.changes)
        moments = [Fault("kill", at) for at in spread(count, kills)]
        moments += [Fault("full", at) for at in spread(count, full)]
        return Counter(self.with_fault(fault) for fault in moments)

    def with_fault(self, fault: Fault) -> str:
        """Runs the command with this fault, and returns which state it left."""
        work = self.world.fresh()
        where = (self.case.name, fault, self.changes[fault.at])
        ended = self.commands.run(self.case.words(), work, fault)
        state = self._judged(ended, work, where)
        self._finish(ended, work, where)
        assert self.case.result(work) == self.new, where
        self._sound(work, where)
        left, expected = left_names(work), self.names
        assert left == expected, (where, sorted(set(left) ^ set(expected)))
        self._kept(work, where)
        return f"{fault.kind}: {state}"

    def _judged(self, ended: Ended, work: Path, where: object) -> str:
        """The state after a fault: old or new result; asserts that nothing else has changed."""
        self._kept(work, where)
        if ended.status not in (-9, 0):
            is_told_well(ended, where)
            assert "o space left" in ended.err, where
            left = [name for name in files(work) if re.search(r"\.(partial|tmp)$", name)]
            assert not left, (where, left)
        self._sound(work, where)
        result = self.case.result(work)
        assert ended.status != 0 or result == self.new, (where, "it ended well without its result")
        if self.case.is_run and result is None and (work / "run").exists():
            return "resumable"
        if self.case.is_several and result not in (self.old, self.new):
            # The files are replaced one after the other, each of them atomically.
            each = zip(result, zip(self.old, self.new, strict=True), strict=True)
            assert all(part in both for part, both in each), where
            return "one of each"
        if self.case.steps:
            # Acknowledged steps are durable; the next step may be, too.
            least = ended.out.count("acknowledged")
            assert result in self._stage_results()[least : least + 2], where
            return f"step {least} or the next one"
        assert result in (self.old, self.new), where
        return "old" if result == self.old else "new"

    def _stage_results(self) -> list[Any]:
        """The results after 0, 1, 2, … steps."""
        while len(self._stages) <= self.case.steps:
            backup = self.world.kept.with_name("stage")
            shutil.rmtree(backup, ignore_errors=True)
            if self.world.place.exists():
                self.world.place.rename(backup)
            work = self.world.fresh()
            command = [*self.case.words(), str(len(self._stages))]
            assert self.commands.run(command, work).status == 0
            self._stages.append(self.case.result(work))
            shutil.rmtree(work)
            if backup.exists():
                backup.rename(self.world.place)
        return self._stages

    def _sound(self, work: Path, where: object) -> None:
        name = getattr(self.case.result, "data_set", None)
        if name and (work / name / "graph.json").exists():
            assert problems(work / name) == [], where

    def _kept(self, work: Path, where: object) -> None:
        """Asserts that the user's files and all files outside `changes` are unchanged."""
        now = files(work)
        for name, data in self.before.items():
            if data.startswith(b"mine: ") or not name.startswith(self.case.changes):
                assert now.get(name) == data, (where, name)

    def _finish(self, ended: Ended, work: Path, where: object) -> None:
        """Follows the hints until the command succeeds."""
        command = self.case.words()
        for _ in range(3):
            if ended.status == 0:
                return
            if ended.status > 0:
                command = way_out(command, ended.err)
            ended = self.commands.run(command, work)
            if ended.status != 0:
                is_told_well(ended, (where, command))
        assert ended.status == 0, (where, command, ended.err)

    def flip_bits(self, bits: int, most: int | None) -> Counter[str]:
        """Flips `bits` bits of each file that the command may read, one at a time, `most` in total.

        Reading a data set verifies few checksums; `check` verifies all (format, section 7). For
        other files, every read is verified.
        """
        places = [
            (name, bit) for name in self.read for bit in bits_of(self.world.kept / name, bits)
        ]
        assert places
        # Commands that read the same files begin at different places.
        start = zlib.crc32(self.case.name.encode())
        chosen = [(start + place) % len(places) for place in spread(len(places), most or 1 << 30)]
        return Counter(self.with_flip(*places[place]) for place in chosen)

    def with_flip(self, name: str, bit: int) -> str:
        """Flips a bit of a file, runs the command, and returns the kind of outcome."""
        work = self.world.fresh()
        loops.flip(work / name, bit)
        damaged = (work / name).read_bytes()
        ended = self.commands.run(self.case.words(), work)
        return self._judged_flip(ended, work, name, damaged, (self.case.name, name, bit))

    @property
    def read(self) -> list[str]:
        """Files that the command may read and that have a checksum."""
        return [name for name in stored(self.world.kept) if self._may_read(name)]

    def _may_read(self, name: str) -> bool:
        return name.partition("/")[0] in " ".join(self.case.words()).replace("/", " ").split()

    def _judged_flip(
        self, ended: Ended, work: Path, name: str, damaged: bytes, where: object
    ) -> str:
        # Directories of runs may contain data sets.
        homes = [
            work / home for home in Path(name).parents if (work / home / "graph.json").exists()
        ]
        data_set = homes[0] if homes else work
        if ended.status != 0:
            is_told_well(ended, where)
            assert names_the_place(ended.err, name), (where, ended.err)
            assert "hint: " in ended.err, (where, ended.err)
            now, changes = files(work), self.case.changes
            for other, data in self.before.items():
                is_manifest = other.endswith("graph.json") and not self.case.steps
                if is_manifest or not other.startswith(changes):
                    expected = damaged if other == name else data
                    assert now.get(other) == expected, (where, other, ended.err)
            return "refused"
        if self.case.result(work) == self.new:
            return "harmless"
        assert homes, (where, "the result is another one")
        assert problems(data_set), (where, "the result is another one, and a check finds nothing")
        made = getattr(self.case.result, "data_set", None)
        assert made is None or problems(work / made), (where, "a check of the result finds nothing")
        return "found by check"


def stored(root: Path) -> list[str]:
    """Files of data sets, runs, models and embeddings; no inputs, user's files or locks."""
    named = ("graph.json", "record.json", "embedding.json", "model.json", "config.json")
    places = {path.relative_to(root).parts[0] for name in named for path in root.glob(f"*/{name}")}
    names = []
    for name, data in files(root).items():
        first, _, rest = name.partition("/")
        is_ours = rest and first in places and not data.startswith(b"mine: ")
        if is_ours and data and not rest.startswith("tensorboard/"):
            names.append(name)
    return sorted(names)


def bits_of(file: Path, count: int) -> list[int]:
    """Bits of a file to flip: in the data of an array, anywhere in other files."""
    size = file.stat().st_size
    start = 4096 if file.suffix == ".npy" and size > 4096 else 0
    # Spread over the bytes, with a different bit of the byte each time.
    return [8 * (start + place) + place % 8 for place in spread(size - start, count)]


def names_the_place(said: str, name: str) -> bool:
    """Whether an error names the file, its array, or its directory."""
    place = Path(name)
    key = re.sub(r"\.\d+$", "", str(place.with_suffix("")).partition("/")[2])
    named = (place.name, f"`{key}`", f"`{place.stem}`", f"{place.parts[0]}`")
    # The journal of a table has the checksums of its other files.
    beside = place.name == "journal.json" and f"{place.parent}/" in said
    return beside or any(name_of in said for name_of in named)


def left_names(root: Path) -> list[str]:
    """The files after a command, without records and scalars."""
    for note in root.rglob(".change.json"):
        # The command was killed after its commit: the next writer completes the clean-up. This
        # call is such a writer: it removes the layouts of an array without layouts.
        keys = json.loads((note.parent / "graph.json").read_bytes())["arrays"]
        plain = [
            key for key in keys if not any(other.startswith(f"layout/{key}/") for other in keys)
        ]
        _core.remove_layouts(note.parent, plain[0])
    # The numbers of checkpoints and of replaced arrays may differ.
    varies = r"/\d{6}/|\.\d+(?=\.npy$)|(?<=/\.generations/)xxh3-\w+"
    names = [re.sub(varies, "", name) for name in files(root)]
    # Logs of updates depend on the time of folds; a report may exist or not.
    varying = r"^runs/|/tensorboard/|/live/|/report\.html$"
    return sorted(name for name in names if not re.search(varying, name))
