"""Commands that are killed, whose disk is full, or whose files have a flipped bit.

Afterwards there is the old result or the new one, the user's own files are untouched, and the way
out that the message names works. `OUTERCORE_CRASH_ROUNDS=10` tries 10 moments of each command and
10 bits of each file, or all where there are fewer, and every algorithm of `outercore run`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import loops
from disturbed import Case, Disturbance, World
from disturbed_cases import ALGORITHMS_RUN, CASES, INPUTS_ALONE, MINE, WORLDS
from loops import Commands

ROUNDS = int(os.environ.get("OUTERCORE_CRASH_ROUNDS", "0"))
pytestmark = [
    pytest.mark.skipif(not loops.available(), reason="the kernel lets nobody watch its calls"),
    pytest.mark.timeout(14_400 if ROUNDS else 300),
]
Disturb = Callable[[Case], Disturbance]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    modules = [
        "training.run",
        "embedding.run",
        "analytics",
        "loading.minibatches",
        "serving.server",
    ]
    needed = ["torch_geometric.nn", "torch._dynamo", "tensorboardX", "pyarrow.parquet", "pandas"]
    with loops.commands(*(f"outercore.{name}" for name in modules), *needed) as started:
        yield started


@pytest.fixture(scope="module")
def disturb(tmp_path_factory: pytest.TempPathFactory, commands: Commands) -> Disturb:
    """A command in its world; it runs undisturbed once."""
    worlds: dict[str, World] = {}
    done: dict[str, Disturbance] = {}

    def of(case: Case) -> Disturbance:
        name = case.world
        if name not in worlds:
            home = tmp_path_factory.mktemp(name)
            worlds[name] = World(partial(WORLDS[name], commands), MINE[name], home)
        if case.name not in done:
            done[case.name] = Disturbance(commands, worlds[name], case)
        return done[case.name]

    return of


def report(what: str, found: Counter[str]) -> None:
    if ROUNDS:
        print(f"\n{what}: {dict(found)}")  # noqa: T201


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_command_that_is_disturbed_loses_nothing(disturb: Disturb, case: Case) -> None:
    report(case.name, disturb(case).kill_and_fill(ROUNDS or 2, ROUNDS or 1))


@pytest.mark.skipif(not ROUNDS, reason="the long form: OUTERCORE_CRASH_ROUNDS")
@pytest.mark.parametrize("case", ALGORITHMS_RUN, ids=lambda case: case.name)
def test_a_result_of_every_algorithm_is_the_old_one_or_the_new_one(
    disturb: Disturb, case: Case
) -> None:
    report(case.name, disturb(case).kill_and_fill(ROUNDS, ROUNDS))


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.name not in INPUTS_ALONE], ids=lambda case: case.name
)
def test_a_flipped_bit_is_refused_or_harmless_or_found_by_check(
    disturb: Disturb, case: Case
) -> None:
    report(case.name, disturb(case).flip_bits(ROUNDS or 1, None if ROUNDS else 3))
