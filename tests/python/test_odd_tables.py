"""Random tables with the oddities of real ones arrive unchanged, or a command brings them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odd_tables import problem


@pytest.mark.parametrize("first", range(0, 120, 10))
def test_what_a_table_holds_arrives_or_a_command_brings_it(
    first: int, tmp_path: Path, outcome: Any
) -> None:
    for seed in range(first, first + 10):
        home = tmp_path / str(seed)
        home.mkdir()
        found = problem(seed, home, outcome)
        assert found is None, found
