"""Training configuration and memory sizes: what is accepted, what is refused, and how."""

from __future__ import annotations

import json

import pytest

from outercore.base.sizes import format_size, parse_size
from outercore.embedding.config import EmbedConfig
from outercore.errors import InvalidError
from outercore.training.config import (
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)


def test_a_configuration_survives_json() -> None:
    config = TrainConfig(
        model=ModelConfig(kind="gat", hidden=12, heads=3, jumping="max"),
        sampling=SamplingConfig(fanout=(7, -1, 3), replace=True),
        optimiser=OptimiserConfig(learning_rate=0.1),
        budget=BudgetConfig(threads=3),
        run=RunConfig(seed=5, validation="full"),
    )
    assert TrainConfig.from_dict(json.loads(config.to_json())) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modle": {}}, "unknown key `modle`\nhint: did you mean `model`"),
        ({"model": {"hiden": 3}}, "unknown key `model.hiden`\nhint: did you mean `model.hidden`"),
        (
            {"model": {"kind": "gnn"}},
            "model.kind: expected one of sage, gcn, gat, gin, rgcn, hgt, mlp",
        ),
        ({"model": {"hidden": "3"}}, "model.hidden: expected a whole number, found '3'"),
        ({"model": {"hidden": True}}, "model.hidden: expected a whole number, found True"),
        ({"model": {"dropout": 1.5}}, "model.dropout: expected 0 to 1, found 1.5"),
        ({"model": {"kind": "gat", "hidden": 6, "heads": 4}}, "multiple of the 4 attention heads"),
        ({"sampling": {"fanout": []}}, "at least one hop"),
        ({"sampling": {"fanout": [5, 0]}}, "hop 2: expected a positive number or -1"),
        ({"sampling": {"fanout": 5}}, "sampling.fanout: expected a list"),
        ({"optimiser": {"epochs": 0}}, "optimiser.epochs: expected a positive number"),
        ({"budget": {"threads": -1}}, "budget.threads"),
        ({"run": []}, "run: expected an object"),
        ({"run": {"seed": -1}}, "run.seed: expected 0 to 9223372036854775807, found -1"),
    ],
)
def test_a_mistake_is_named_with_its_path(values: dict, message: str) -> None:
    with pytest.raises(InvalidError) as caught:
        TrainConfig.from_dict(values)
    assert message in str(caught.value)


def test_choices_that_are_numbers_are_told() -> None:
    with pytest.raises(InvalidError, match=r"model\.norm: expected one of 1, 2; found 3"):
        EmbedConfig.from_dict({"model": {"norm": 3}})


def test_absent_keys_take_their_defaults() -> None:
    assert TrainConfig.from_dict({"run": {"seed": 3}}) == TrainConfig(run=RunConfig(seed=3))
    assert json.loads(TrainConfig().to_json())["sampling"]["fanout"] == [15, 10]


@pytest.mark.parametrize(
    ("text", "size"),
    [("8GiB", 8 << 30), ("512 MB", 512_000_000), ("1.5KiB", 1536), ("64m", 64 << 20), ("7", 7)],
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


def test_relative_sizes_are_of_this_machine() -> None:
    assert parse_size("100%") == pytest.approx(4 * parse_size("25%"), rel=1e-6)
    assert 0 < parse_size("auto") < parse_size("100%")


@pytest.mark.parametrize(
    "text", ["", "-1GiB", "lots", "3 PiB", "0", "0%", 0, -5, None, 6.4e7, True]
)
def test_what_is_no_size_is_refused(text: str | int) -> None:
    with pytest.raises(InvalidError, match="memory size"):
        parse_size(text)


def test_sizes_print_in_the_largest_fitting_unit() -> None:
    assert [format_size(size) for size in (12, 1536, 5 << 30, 3 << 40)] == [
        "12 B",
        "1.5 KiB",
        "5.0 GiB",
        "3.0 TiB",
    ]
