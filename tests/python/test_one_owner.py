"""Concepts that have one owner: a second copy fails here."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "outercore"


def owners(pattern: str) -> set[str]:
    """The files of the package with a match of the pattern."""
    files = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    return {name for name, text in files.items() if re.search(pattern, text, re.MULTILINE)}


def test_links_have_one_batch_one_draw_and_one_search() -> None:
    seeds = {"loading/link_seeds.py"}
    assert owners(r"^class LinkBatch\b") == seeds
    assert owners(r"^_ROUNDS = ") == seeds
    assert owners(r"np\.random\.Generator\(np\.random\.Philox") == seeds
    assert owners(r"^def (pair_keys|among)\b") == {"data/csc.py"}
    assert owners(r"sources\[middle\]") == {"data/csc.py"}


def test_one_type_and_several_share_the_work_of_nodes_and_their_inference() -> None:
    assert owners(r"^class \w*NodeWork\b") == {"training/work.py"}
    assert owners(r"^class \w*Inference\b") == {"training/inference.py"}
    assert owners(r"^class \w*Loaders\(Loaders\)") == {"training/links/batches.py"}
