"""Modules of every crate use each other in one direction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from test_imports import circle

CRATES = Path(__file__).parents[2] / "crates"
Module = tuple[str, ...]
"""A path of a module within its crate, without `crate`."""


def modules(source: Path) -> dict[Module, str]:
    """The text of a crate's modules, without comments and tests."""
    found = {}
    for file in source.rglob("*.rs"):
        parts = file.relative_to(source).with_suffix("").parts
        path = parts[:-1] if parts[-1] in ("lib", "main", "mod") else parts
        text = re.sub(r"//[^\n]*", "", file.read_text())
        found[path] = re.split(r"\n#\[cfg\(test\)\]\nmod ", text)[0]
    return found


def expanded(path: str) -> Iterator[str]:
    """The single paths of `a::{b, c::{d, e}}`.

    >>> list(expanded("a::{b,c::{d,e}}"))
    ['a::b', 'a::c::d', 'a::c::e']
    """
    if not path.endswith("}"):
        yield path
        return
    before, _, inner = path[:-1].partition("{")
    part, depth = "", 0
    for letter in f"{inner},":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and not depth:
            if part:
                yield from expanded(before + part)
            part = ""
        else:
            part += letter


def used(text: str) -> Iterator[str]:
    """Paths in `use` declarations, and others that begin with `crate` or `super`."""
    for statement in re.findall(r"\buse\s+([^;]+);", text):
        yield from expanded(re.sub(r"\s+|\bas \w+", "", statement))
    yield from re.findall(r"\b(?:crate|super)(?:::\w+)+", text)


def resolved(path: str, of: Module, known: dict[Module, str]) -> tuple[Module, list[str]] | None:
    """The module that a path leads to, and the rest of it; `None` of other crates."""
    names = path.split("::")
    if names[0] == "crate":
        base, names = (), names[1:]
    elif names[0] in ("super", "self"):
        base = of
        while names and names[0] in ("super", "self"):
            base, names = base[:-1] if names[0] == "super" else base, names[1:]
    elif (*of, names[0]) in known:
        base = of
    else:
        return None
    while names and (*base, names[0]) in known:
        base, names = (*base, names[0]), names[1:]
    return base, names


def graph(source: Path) -> dict[str, set[str]]:
    """The modules that each module of a crate uses, but for its own parents and children.

    What a module hands on by `pub use` counts as the module that has it.
    """
    known = modules(source)
    handed_on: dict[tuple[Module, str], tuple[Module, list[str]]] = {}
    for module, text in known.items():
        for statement in re.findall(r"\bpub(?:\([^)]*\))?\s+use\s+([^;]+);", text):
            for path in expanded(re.sub(r"\s+", "", statement)):
                found = resolved(path, module, known)
                if found is not None:
                    handed_on[module, path.rpartition("::")[2]] = found
    arcs: dict[str, set[str]] = {"::".join(module): set() for module in known}
    for module, text in known.items():
        for path in used(text):
            found = resolved(path, module, known)
            seen: set[tuple[Module, str]] = set()
            while found and found[1] and (key := (found[0], found[1][0])) in handed_on:
                if key in seen:
                    break
                seen.add(key)
                found = handed_on[key]
            if found is None:
                continue
            target = found[0]
            shorter = min(len(module), len(target))
            if module[:shorter] != target[:shorter]:
                arcs["::".join(module)].add("::".join(target))
    return arcs


@pytest.mark.parametrize("crate", sorted(path.name for path in CRATES.iterdir()))
def test_no_modules_of_a_crate_use_each_other_in_a_circle(crate: str) -> None:
    arcs = graph(CRATES / crate / "src")
    assert arcs
    assert circle(arcs) == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    texts = {
        "lib.rs": "mod a;\nmod b;\npub use b::{First, inner::Second};",
        "a.rs": "use crate::Second;\npub struct Third;",
        "b/mod.rs": "pub mod inner;\nuse super::a;\npub struct First;",
        "b/inner.rs": "use super::First;\nuse crate::{a::{Third}};\npub struct Second;",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    arcs = graph(tmp_path)
    assert arcs == {"": set(), "a": {"b::inner"}, "b": {"a"}, "b::inner": {"a"}}
    assert circle(arcs) == ["a", "b::inner", "a"]
