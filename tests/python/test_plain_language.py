"""Words that made the help and the guides hard to read stay out of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from outercore.cli import app

ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"\b(told|of one's own|whoever|nobody)\b", re.IGNORECASE)
MEASURED = sorted((ROOT / "docs/benchmarks").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "docs/options.md", *sorted((ROOT / "docs/guides").glob("*.md"))]


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_plain_words(page: Path) -> None:
    assert [match.group() for match in WORDS.finditer(page.read_text())] == []


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_the_help_of_a_command_uses_plain_words(words: tuple[str, ...]) -> None:
    command = ALL[words]
    texts = [command.help or "", *(getattr(one, "help", None) or "" for one in command.params)]
    assert [match.group() for text in texts for match in WORDS.finditer(text)] == []


@pytest.mark.parametrize("words", [words for words in ALL if words], ids=" ".join)
def test_the_help_of_a_command_has_an_example(words: tuple[str, ...]) -> None:
    command = ALL[words]
    if not getattr(command, "commands", None):
        assert "**Example" in (command.help or ""), " ".join(words)


def test_options_that_messages_name_exist() -> None:
    known = {"--help", "--upgrade", "--logdir"}  # The last two are pip's and TensorBoard's.
    for command in ALL.values():
        for one in command.params:
            known |= {*getattr(one, "opts", ()), *getattr(one, "secondary_opts", ())}
    product = [
        *(ROOT / "python/outercore").rglob("*.py"),
        *(ROOT / "crates").glob("*/src/**/*.rs"),
        *PAGES,
    ]
    # A page's style has variables that look the same.
    texts = {file: file.read_text() for file in product if file.name != "elements.py"}
    flags = re.compile(r"(?<![\w-])--[a-z][a-z-]+[a-z](?![\w-])")
    unknown = {
        (str(file.relative_to(ROOT)), flag)
        for file, text in texts.items()
        for flag in set(flags.findall(text)) - known
    }
    assert unknown == set()


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/benchmarks").glob("*.md")), ids=lambda p: p.stem
)
def test_a_benchmark_page_has_four_hundred_words_at_most(page: Path) -> None:
    """Tables and commands do not count."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert len(" ".join(lines).split()) <= 400


RIDDLES = [
    # The thing has a name: "the rows that are read", not "what is read".
    r"\b(?:of|by|for|with|from|in|on|to|and|is|are) what (?:is|was|are|it|they|has|have|the|a)\b",
    r"\bthe ones? (?:that|of|before|after|with)\b|\b(?:that|those) of\b",
    # A file is somewhere; it does not stand or lie there. A run continues; it does not go on.
    r"\b(?:stands?|lies?) (?:in|on|at|there|beside|before|alone)\b|\b(?:goe?s?|going|went) on\b",
    # A function gets a value; it is not told or asked.
    r"\b(?:is|are|was|were|be) (?:told|asked)\b",
    r"\b(?:nobody|whoever|whatever|wherever|whichever|beneath|besides?)\b",
    r"\bof (?:its|their|one's|your|our) own\b|\bby (?:itself|themselves)\b|\balone\b",
    r"[,;(] where (?:there|it|they|one|none|that|no)\b|\b(?:is|are|was|were|has|have) no(?:ne)?\b",
    r"\b(?:comes?|came) (?:of|to|by|out)\b|\bmade of\b",
]
"""Phrases that hide who does what."""
MOST_A_THOUSAND = 2.5


def riddles_a_thousand(texts: list[str]) -> float:
    """Phrases of `RIDDLES` in each thousand words."""
    whole = "\n".join(texts)
    return 1000 * sum(len(re.findall(riddle, whole)) for riddle in RIDDLES) / len(whole.split())


def test_pages_hide_nothing_behind_pronouns() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")]
    assert riddles_a_thousand([page.read_text() for page in pages]) < MOST_A_THOUSAND


def test_docstrings_hide_nothing_behind_pronouns() -> None:
    modules = (ast.parse(path.read_text()) for path in (ROOT / "python/outercore").rglob("*.py"))
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    documented = [node for tree in modules for node in ast.walk(tree) if isinstance(node, kinds)]
    texts = [ast.get_docstring(node) or "" for node in documented]
    assert riddles_a_thousand(texts) < MOST_A_THOUSAND
