"""A folder of tables with `tables.yaml`: rows become nodes, foreign keys become edges, exactly."""

from __future__ import annotations

import itertools
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore.importing import keys
from outercore.importing.build import graph as build_graph
from outercore.importing.format.relational import read_schema
from outercore.importing.keyed_edges import KeyedEdges
from typed_files import edges_by_type, write_table

Run = Any
DAY = 86_400 * 10**6

SHOP = """
tables:
  customer:
    primary_key: name
    foreign_keys: {friend: customer}
  product:
    primary_key: maker, number
  purchase:
    primary_key: id
    foreign_keys: {buyer: customer}
    time: day
  item:
    primary_key: line
    foreign_keys:
      purchase: purchase
      maker, number: product
    time: sent
  likes:
    foreign_keys: {who: customer, "maker,number": product}
    time: at
    features: [stars]
  visit:
    foreign_keys: {customer: customer}
    features: [minutes]
"""
TABLES: dict[str, dict[str, list[Any]]] = {
    "customer": {
        "name": ["ann", "bob", "cat"],
        "friend": ["bob", None, "cat"],
        "age": [31, 42, 53],
        "group": ["b", "a", "b"],
    },
    "product": {"maker": ["x", "x", "y"], "number": [1, 2, 1], "price": [1.5, 2.5, 3.5]},
    "purchase": {
        "id": [7, 8, 9, 10],
        "buyer": ["cat", "ann", "cat", "bob"],
        "day": ["2020-01-05", "2020-01-02", "2020-01-03", "2020-01-04"],
        "late": ["yes", "no", "no", "yes"],
    },
    "item": {
        "line": ["a", "b", "c", "d"],
        "purchase": [7, 8, 8, 10],
        "maker": ["x", "y", "x", "x"],
        "number": [2, 1, 1, 2],
        "sent": ["2020-01-06", "2020-01-07", "2020-01-08", "2020-01-09"],
        "pieces": [1, 2, 3, 4],
    },
    "likes": {
        "who": ["ann", "cat", "bob"],
        "maker": ["y", "x", "x"],
        "number": [1, 1, 2],
        "at": ["2020-01-01", "2020-01-02", "2020-01-03"],
        "stars": [5, 3, 4],
        "pages": [1, 2, 3],
    },
    "visit": {"customer": ["bob", None, "ann"], "minutes": [3, 4, 5], "clicks": [1, 2, 3]},
}


def shop(folder: Path, suffix: str = ".csv", description: str = SHOP, **changed: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tables.yaml").write_text(description)
    for name, columns in (TABLES | changed).items():
        write_table(folder / f"{name}{suffix}", columns)
    return folder


def naive(tables: dict[str, dict[str, list[Any]]]) -> dict[str, list[tuple[int, int, int]]]:
    """The edges, by a look-up of each key among the rows of its table."""

    def place(table: str, key: list[str], wanted: tuple[Any, ...]) -> int | None:
        rows = list(zip(*(tables[table][name] for name in key), strict=True))
        return rows.index(wanted) if wanted in rows else None

    def keys(table: str, names: list[str]) -> list[tuple[Any, ...]]:
        return list(zip(*(tables[table][name] for name in names), strict=True))

    def of(table: str, names: list[str], target: str, key: list[str]) -> list[tuple[int, int, int]]:
        found = [(row, place(target, key, one)) for row, one in enumerate(keys(table, names))]
        ends = [(row, to) for row, to in found if to is not None]
        return [(at, row, to) for at, (row, to) in enumerate(ends)]

    product = ["maker", "number"]
    who = keys("likes", ["who"])
    return {
        "customer__friend__customer": of("customer", ["friend"], "customer", ["name"]),
        "customer__likes__product": [
            (row, place("customer", ["name"], who[row]) or 0, to)
            for _, row, to in of("likes", product, "product", product)
        ],
        "item__maker_number__product": of("item", product, "product", product),
        "item__purchase__purchase": of("item", ["purchase"], "purchase", ["id"]),
        "purchase__buyer__customer": of("purchase", ["buyer"], "customer", ["name"]),
        "visit__customer__customer": of("visit", ["customer"], "customer", ["name"]),
    }


def turned(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    return [(row, to, come) for row, come, to in rows]


def import_shop(outcome: Run, *more: str, folder: str = "shop") -> oc.Graph:
    code, _, told = outcome("import", folder, *more, "--out", "graph", "--overwrite")
    assert code == 0, told
    assert outcome("check", "graph")[0] == 0
    return oc.open("graph")


def values(graph: oc.Graph, key: str) -> list[Any]:
    return np.asarray(graph.array(key)).tolist()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("reverse", [False, True])
def test_rows_are_nodes_and_foreign_keys_are_edges(
    tmp_path: Path, outcome: Run, suffix: str, reverse: bool
) -> None:
    shop(tmp_path / "shop", suffix)
    graph = import_shop(outcome, *(["--add-reverse"] if reverse else []))
    expected = naive(TABLES)
    if reverse:
        for name, rows in list(expected.items()):
            source, relation, target = name.split("__")
            expected[f"{target}__rev_{relation}__{source}"] = turned(rows)
    assert edges_by_type(graph) == dict(sorted(expected.items()))
    assert graph.node_types == {"customer": 3, "item": 4, "product": 3, "purchase": 4, "visit": 3}
    assert values(graph, "nodes/customer/x") == [[31], [42], [53]]
    assert values(graph, "nodes/item/x") == [[1], [2], [3], [4]]
    assert values(graph, "nodes/product/x") == [[1.5], [2.5], [3.5]]
    assert values(graph, "nodes/visit/x") == [[3], [4], [5]]
    assert graph.features_of("purchase") is None
    first = (date(2020, 1, 1) - date(1970, 1, 1)).days
    days = {
        "nodes/purchase/time": [4, 1, 2, 3],
        "nodes/item/time": [5, 6, 7, 8],
        "edges/purchase__buyer__customer/time": [4, 1, 2, 3],
        "edges/item__purchase__purchase/time": [5, 6, 7, 8],
        "edges/item__maker_number__product/time": [5, 6, 7, 8],
        "edges/customer__likes__product/time": [0, 1, 2],
    }
    if reverse:
        days["edges/product__rev_likes__customer/time"] = [0, 1, 2]
        days["edges/customer__rev_buyer__purchase/time"] = [4, 1, 2, 3]
        assert values(graph, "edges/product__rev_likes__customer/stars") == [5, 3, 4]
    for name, expected_days in days.items():
        assert values(graph, name) == [(first + day) * DAY for day in expected_days], name
    assert values(graph, "edges/customer__likes__product/stars") == [5, 3, 4]
    assert "edges/customer__likes__product/pages" not in graph.arrays
    assert "nodes/customer/time" not in graph.arrays


def test_the_past_is_learnt_from_and_the_future_tested(tmp_path: Path, outcome: Run) -> None:
    count = 40
    days = np.random.default_rng(1).integers(20, size=count)
    purchase = {
        "id": list(range(count)),
        "buyer": ["ann"] * count,
        "day": days.tolist(),
        "late": ["yes", "no"] * (count // 2),
    }
    item = TABLES["item"] | {"purchase": [0, 1, 2, 3], "sent": [20, 21, 22, 23]}
    likes = TABLES["likes"] | {"at": [1, 2, 3]}
    shop(tmp_path / "shop", purchase=purchase, item=item, likes=likes)
    graph = import_shop(outcome, "--label", "purchase.late")
    assert values(graph, "nodes/purchase/time") == days.tolist()
    split = {name: days[graph.split(name)] for name in ("train", "valid", "test")}
    assert split["train"].max() < split["valid"].min()
    assert split["valid"].max() < split["test"].min()
    assert sum(map(len, split.values())) == count
    assert classes(graph) == ["no", "yes"]


def classes(graph: oc.Graph) -> list[str]:
    offsets = np.asarray(graph.array("names/class.offsets"), np.int64)
    data = np.asarray(graph.array("names/class.bytes")).tobytes()
    return [data[start:end].decode() for start, end in itertools.pairwise(offsets)]


def test_one_time_for_all_is_split_at_random(tmp_path: Path, outcome: Run) -> None:
    shop(tmp_path / "shop", purchase=TABLES["purchase"] | {"day": ["2020-01-01"] * 4})
    code, _, told = outcome("import", "shop", "--label", "purchase.late", "--out", "graph")
    assert code == 0, told
    assert "at random" in told


def test_types_of_parquet_that_databases_write_are_read(tmp_path: Path, outcome: Run) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "tables.yaml").write_text(
        "tables:\n  part:\n    primary_key: key\n  order:\n    foreign_keys: {part: part}\n"
    )
    prices = pa.array([Decimal("1.10"), None, Decimal("99999999999.25")], pa.decimal128(15, 2))
    part = {"key": pa.array(["a", "b", "c"], pa.string_view()), "price": prices}
    pq.write_table(pa.table(part), folder / "part.parquet")
    order = {"part": pa.array(["c", None, "a"], pa.string_view()), "number": pa.array([1, 2, 3])}
    (folder / "order").mkdir()
    for row in range(3):
        one = {name: column.slice(row, 1) for name, column in order.items()}
        pq.write_table(pa.table(one), folder / "order" / f"order.{row + 1}.parquet")
    graph = import_shop(outcome, "--fill", "0")
    assert values(graph, "nodes/part/x") == [[1.1], [0.0], [99999999999.25]]
    assert edges_by_type(graph) == {"order__part__part": [(0, 0, 2), (1, 2, 0)]}


def test_missing_values_may_stay_missing(tmp_path: Path, outcome: Run) -> None:
    customer = TABLES["customer"] | {"age": [31, None, 53]}
    shop(tmp_path / "shop", customer=customer)
    graph = import_shop(outcome, "--fill", "nan")
    ages = np.asarray(graph.array("nodes/customer/x"))[:, 0]
    np.testing.assert_array_equal(ages, [31, np.nan, 53])


def test_what_is_left_aside_is_said(tmp_path: Path, outcome: Run) -> None:
    shop(tmp_path / "shop", description=SHOP + "  alone:\n    primary_key: a\n", alone={"a": [1]})
    (tmp_path / "shop" / "more.csv").write_text("a,b\n1,2\n")
    code, _, told = outcome("import", "shop", "--out", "graph")
    assert code == 0, told
    assert "not in `tables.yaml`, so not read: `more.csv`" in told
    assert "have no edges: `alone`" in told
    assert "columns of `customer` without numbers are left out: `group`" in told


def test_dangling_keys_are_dropped_and_counted(tmp_path: Path, outcome: Run) -> None:
    shop(
        tmp_path / "shop", visit={"customer": ["bob", None, "zoe", "dan"], "minutes": [1, 2, 3, 4]}
    )
    code, _, told = outcome("import", "shop", "--out", "graph")
    assert code == 1
    assert "column `customer`: row 2: no node of type `customer` has the key `zoe`" in told
    assert "1 more rows" in told
    code, shown, told = outcome("import", "shop", "--dangling", "drop", "--out", "graph")
    assert code == 0, told
    (line,) = (line for line in shown.splitlines() if "dangling" in line)
    assert line.split() == ["dangling", "dropped:", "visit,customer,customer", "2"]
    assert edges_by_type(oc.open("graph"))["visit__customer__customer"] == [(0, 0, 1)]


def purchases(**columns: list[Any]) -> dict[str, dict[str, list[Any]]]:
    return {"purchase": TABLES["purchase"] | columns}


@pytest.mark.parametrize(
    ("old", "new", "changed", "expected"),
    [
        ("tables:", "tabels:", {}, ["`tabels` is not known", "did you mean `tables`"]),
        (
            "maker, number\n  purchase",
            "[maker, number]\n  purchase",
            {},
            ["`product`: `primary_key`", "`shop, till`"],
        ),
        (
            "friend: customer}",
            'friend: customer, age: customer}\n  age:\n    foreign_keys: {"friend": customer, '
            "age: customer}\n    file: customer.csv",
            {},
            ["two edge types would be called customer,age,customer"],
        ),
        (SHOP, "", {}, ["expected tables below `tables:`"]),
        (SHOP, "tables: [a]", {}, ["`tables`", "found a list"]),
        (SHOP, "tables:\n  a:\n   b: {\n", {}, ["tables.yaml`: line"]),
        (
            "time: day",
            "tim: day",
            {},
            ["table `purchase`", "`tim` is not known", "did you mean `time`"],
        ),
        ("time: day", "time: dya", {}, ["table `purchase`", "no column `dya`", "`day`"]),
        ("time: day", "time: [day]", {}, ["table `purchase`: `time`", "found a list"]),
        ("time: day", "time: late", {}, ["column `late`: row 0: `yes` is no time", "2013-01-31"]),
        ("buyer: customer", "buyer: custmer", {}, ["`buyer`", "no table `custmer`", "customer,"]),
        ("buyer: customer", "byer: customer", {}, ["table `purchase`", "no column `byer`"]),
        (
            "purchase: purchase",
            "purchase: visit",
            {},
            ["`purchase`", "`visit` has no `primary_key`"],
        ),
        ("buyer: customer", "buyer: product", {}, ["`buyer`: 1 columns", "`maker,number`"]),
        ("maker, number: product", "maker,maker: product", {}, ["`item`", "different columns"]),
        ("  visit:", "  a/b:", {}, ["`a/b` cannot name a type"]),
        ("  visit:", "  vist:", {}, ["table `vist`", "`vist.parquet`", "found none"]),
        (
            "  visit:\n",
            "  visit:\n    file: no.csv\n",
            {},
            ["table `visit`", "no.csv` does not exist"],
        ),
        ("  visit:", "  item:", {}, ["tables.yaml`: line", "`item` is there twice"]),
        ("[minutes]", "[minutes, customer]", {}, ["`visit`", "`customer`"]),
        ("[minutes]", "minutes", {}, ["table `visit`: `features`: expected a list"]),
        ("", "", purchases(id=[7, 8, 8, 10]), ["key `8`", "rows 1 and 2"]),
        ("", "", purchases(id=[7, None, 8, 10]), ["column `id`", "row 1 is empty"]),
        (
            "",
            "",
            purchases(day=["2020-01-01", "", "2020-01-01", "2020-01-01"]),
            ["column `day`: row 1 has no value"],
        ),
        (
            "",
            "",
            purchases(day=["2020-01-01T00:00Z", "2020-01-01T00:00", "2020-01-01", "2020-01-01"]),
            ["column `day`: row 1", "`2020-01-01T00:00` has no time zone"],
        ),
        ("", "", purchases(day=[1, 2, 3, 4]), ["`time` of purchase", "other numbers"]),
        ("", "", purchases(day=[1.5, 2, 3, 4]), ["`time` of purchase", "other numbers"]),
        (
            "",
            "",
            {"customer": TABLES["customer"] | {"age": [1, None, 3]}},
            ["features of `customer`", "`age` (1)", "--fill 0"],
        ),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, outcome: Run, old: str, new: str, changed: Any, expected: list[str]
) -> None:
    assert old in SHOP
    shop(tmp_path / "shop", description=SHOP.replace(old, new, 1) if old else SHOP, **changed)
    code, _, told = outcome("import", "shop", "--out", "graph")
    assert code == 1, told
    for part in expected:
        assert part in told, told
    assert not Path("graph/graph.json").exists()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--label", "purchase.buyer"], ["a foreign key", "tell the label"]),
        (["--label", "purchase.id"], ["the primary key"]),
        (["--label", "purchase.day"], ["the time"]),
        (["--label", "visit.minutes"], ["among the `features`"]),
        (["--label", "likes.stars"], ["the rows of table `likes` are edges", "primary_key"]),
        (["--label", "purchas.late"], ["no node type `purchas`", "customer"]),
        (["--label", "purchase.lat"], ["no column `lat`"]),
        (["--nodes", "5"], ["--nodes: does not go with a `tables.yaml`"]),
        (["--weight", "w"], ["--weight: does not go with a `tables.yaml`"]),
        (["--undirected"], ["--undirected: does not go with"]),
        (["--dangling", "keep"], ["--dangling: expected refuse or drop"]),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, outcome: Run, more: list[str], expected: list[str]
) -> None:
    shop(tmp_path / "shop")
    code, _, told = outcome("import", "shop", *more, "--out", "graph")
    assert code == 1
    for part in expected:
        assert part in told, told


def test_zones_are_taken_into_account(tmp_path: Path, outcome: Run) -> None:
    texts = ["2020-01-01T00:00Z", "2020-01-01T02:00:00+01:00", "2020-01-01 00:00:00.5-02:00"]
    shop(
        tmp_path / "shop",
        purchase=TABLES["purchase"] | {"day": [*texts, "2020-01-01T00:00:00+00:00"]},
    )
    graph = import_shop(outcome)
    expected = [
        datetime.fromisoformat(text)
        for text in (
            "2020-01-01T00:00:00+00:00",
            "2020-01-01T02:00:00+01:00",
            "2020-01-01T00:00:00.500000-02:00",
            "2020-01-01T00:00:00+00:00",
        )
    ]
    first = datetime(1970, 1, 1, tzinfo=timezone.utc)
    assert values(graph, "nodes/purchase/time") == [
        int((one - first).total_seconds() * 10**6) for one in expected
    ]


def test_a_split_names_rows_by_all_columns_of_their_key(tmp_path: Path, outcome: Run) -> None:
    shop(tmp_path / "shop")
    write_table(tmp_path / "train.csv", {"maker": ["y", "x"], "number": [1, 2]})
    write_table(tmp_path / "test.csv", {"n": [1], "m": ["x"]})
    how = ("--label", "product.price", "--task", "regression", "--split", "train=train.csv")
    graph = import_shop(outcome, *how, "--split", "test=test.csv:m,n")
    assert graph.split("train").tolist() == [2, 1]
    assert graph.split("test").tolist() == [0]
    code, _, told = outcome("import", "shop", *how, "--split", "test=test.csv:m", "--out", "other")
    assert code == 1
    assert "keys have 2 columns, found 1 chosen" in told


def test_the_descriptions_in_the_guide_are_read(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/typed-graphs.md").read_text()
    blocks = [text for text in re.findall(r"```yaml\n(.*?)```", guide, re.S) if "tables:" in text]
    assert len(blocks) == 3
    for number, text in enumerate(blocks):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in re.findall(r"^  (\w+):", text, re.M):
            (folder / f"{name}.csv").touch()
        (folder / "purchases.parquet").touch()
        (folder / "tables.yaml").write_text(text)
        assert any(one.time for one in read_schema(folder).values())


def test_ids_of_rows_are_neither_features_nor_an_order(tmp_path: Path, outcome: Run) -> None:
    description = """
tables:
  shop:
    primary_key: shop_id
  visit:
    foreign_keys: {shop_id: shop}
"""
    shop(tmp_path / "shop", description=description)
    write_table(tmp_path / "shop/shop.csv", {"shop_id": [70, 50], "size": [4, 5]})
    columns = {"visit_id": [9, 4, 8], "shop_id": [50, 70, 50], "late": [1, 0, 1], "tip": [1, 2, 3]}
    write_table(tmp_path / "shop/visit.csv", columns)
    code, _, told = outcome("import", "shop", "--label", "visit.late", "--out", "graph")
    assert code == 0, told
    assert "columns of `visit` that are called like ids are left out: `visit_id`" in told
    graph = oc.open("graph")
    assert values(graph, "nodes/shop/x") == [[4], [5]]
    assert values(graph, "nodes/visit/x") == [[1], [2], [3]]
    assert values(graph, "nodes/visit/y") == [1, 0, 1]
    assert edges_by_type(graph) == {"visit__shop_id__shop": [(0, 0, 1), (1, 1, 0), (2, 2, 1)]}
    chosen = description.replace("{shop_id: shop}", "{shop_id: shop}\n    features: [visit_id]")
    (tmp_path / "shop/tables.yaml").write_text(chosen)
    assert values(import_shop(outcome), "nodes/visit/x") == [[9], [4], [8]]


def test_a_decimal_that_a_float_cannot_hold_is_refused(tmp_path: Path, outcome: Run) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "tables.yaml").write_text("tables:\n  part:\n    primary_key: key\n")
    prices = [Decimal("0.1"), Decimal("90071992547409.93"), Decimal("9007199254740993.00")]
    part = {"key": ["a", "b", "c"], "price": pa.array(prices, pa.decimal128(30, 2))}
    pq.write_table(pa.table(part), folder / "part.parquet")
    code, _, told = outcome("import", "shop", "--out", "graph")
    assert code == 1
    assert "column `price`: row 2: 9007199254740993.00 would change as float64" in told


@pytest.mark.parametrize("phase", ["keys", "edges", "arrays"])
def test_a_stopped_import_is_resumed_to_the_same_data_set(
    phase: str, tmp_path: Path, outcome: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(tmp_path / "shop")
    how = ("import", "shop", "--label", "purchase.late", "--add-reverse", "--memory", "16MiB")
    assert outcome(*how, "--out", "whole")[0] == 0

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = {
        "keys": (keys.Keys, "_number"),
        "edges": (KeyedEdges, "feed"),
        "arrays": (build_graph, "feed_array"),
    }[phase]
    with monkeypatch.context() as patch:
        patch.setattr(*place, stopped)
        assert outcome(*how, "--out", "graph")[0] == 130
    assert not Path("graph/graph.json").exists()
    code, _, told = outcome(*how, "--out", "graph")
    assert code == 0, told
    whole, resumed = oc.open("whole"), oc.open("graph")
    assert whole.manifest["arrays"] == resumed.manifest["arrays"]
    assert not list(Path().glob(".*"))


def test_another_description_makes_another_import(tmp_path: Path, outcome: Run) -> None:
    shop(tmp_path / "shop")
    assert len(edges_by_type(import_shop(outcome))) == 6
    fewer = SHOP.replace("      maker, number: product\n", "")
    shop(tmp_path / "shop", description=fewer)
    graph = import_shop(outcome)
    assert "item__maker_number__product" not in edges_by_type(graph)
    # The columns that are no key now are features.
    assert values(graph, "nodes/item/x") == [[2, 1], [1, 2], [1, 3], [2, 4]]


def test_a_key_with_an_empty_part_is_no_edge(tmp_path: Path, outcome: Run) -> None:
    shop(tmp_path / "shop", item=TABLES["item"] | {"number": [2, None, 1, 2]})
    edges = edges_by_type(import_shop(outcome))
    assert edges["item__maker_number__product"] == [(0, 0, 1), (1, 2, 0), (2, 3, 1)]
    assert len(edges["item__purchase__purchase"]) == 4
