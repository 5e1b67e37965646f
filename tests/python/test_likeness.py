"""A mistyped name is answered with the one that was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from outercore.base.likeness import closest, hint_like, suggestion
from outercore.data import names

RELATIONS = [
    "/location/country/form_of_government",
    "/location/country/capital",
    "/location/location/contains",
    "/people/person/nationality",
]


@pytest.mark.parametrize(
    "typed",
    [
        "/location/country/form_of_goverment",
        "/location/county/form_of_government",
        "/government/form_of_government",
        "form_of_goverment",
        "/LOCATION/COUNTRY/FORM_OF_GOVERNMENT",
    ],
)
def test_the_whole_name_or_its_last_part_may_be_mistyped(typed: str) -> None:
    assert closest(typed, RELATIONS) == "/location/country/form_of_government"


def test_names_that_share_their_last_part_are_told_apart_by_the_rest() -> None:
    assert closest("nodes/papr/x", ["nodes/author/x", "nodes/paper/x"]) == "nodes/paper/x"


def test_nothing_alike_gives_all_names_or_no_hint() -> None:
    assert suggestion("q", ["time", "weight"], otherwise="it has") == "it has time, weight"
    assert suggestion("q", []) == "known: none"
    assert hint_like("q", ["time", "weight"]) == ""


@pytest.fixture
def knowledge(tmp_path: Path, outcome: Any) -> oc.Graph:
    """A few countries, with relations that are named by paths."""
    rows = [f"c{row}\t{relation}\tc{row + 1}\n" for row in range(5) for relation in RELATIONS]
    (tmp_path / "facts.tsv").write_text("".join(rows))
    outcome("import", "facts.tsv", "--triples", "--out", "facts")
    return oc.open(tmp_path / "facts")


@pytest.mark.parametrize("compared", [names._COMPARED, 0], ids=["all", "near"])
@pytest.mark.parametrize("typed", ["/location/country/form_of_goverment", "form_of_government"])
def test_a_relation_is_found_in_a_dictionary_on_disk(
    typed: str, compared: int, knowledge: oc.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(names, "_COMPARED", compared)
    with pytest.raises(oc.NotFoundError) as raised:
        knowledge.relation_id(typed)
    message = f"relation `{typed}` is not in the data set"
    assert str(raised.value) == f"{message}\nhint: did you mean `{RELATIONS[0]}`?"


def test_a_name_that_is_like_none_is_answered_with_one_that_is_there(knowledge: oc.Graph) -> None:
    with pytest.raises(oc.NotFoundError) as raised:
        knowledge.entity_id("Liechtenstein")
    said, hint = str(raised.value).split("\n")
    assert said == "entity `Liechtenstein` is not in the data set"
    assert hint == f"hint: a name there is `{knowledge.entity_names([0])[0]}`"


def test_arrays_splits_options_and_choices_are_suggested(tmp_path: Path, outcome: Any) -> None:
    naive.write(tmp_path / "graph", 10, np.arange(9), np.arange(1, 10))
    graph = oc.open(tmp_path / "graph")
    graph.add_node_array("score", np.arange(10))
    with pytest.raises(oc.NotFoundError, match=r"did you mean `nodes/node/score`\?"):
        graph.array("scor")
    for arguments, meant in (
        (("--set", "model.weight_decay=1"), "optimiser.weight_decay"),
        (("--model", "sagee"), "sage"),
    ):
        code, _, err = outcome("train", "graph", *arguments)
        assert code == 1
        assert err.endswith(f"hint: did you mean `{meant}`?\n")
    with pytest.raises(oc.InvalidError, match=r"did you mean `pagerank`\?"):
        oc.run("page_rank", graph)


def test_a_missing_attribute_of_the_package_is_named_with_the_likely_one() -> None:
    for name, hint in [
        ("NeighborLaoder", r"did you mean `NeighborLoader`\?"),
        ("page_rank", r"did you mean `pagerank`\?"),
        ("ClusterLoader", "`oc.NeighborLoader` samples neighbourhoods"),
    ]:
        with pytest.raises(AttributeError, match=f"no attribute `{name}`\nhint: {hint}"):
            getattr(oc, name)
    assert not hasattr(oc, "Nothing")
