"""The commands of the fault tests, and the directories in which they run.

A row of the table has the directory, the command, and the expected result.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import outercore as oc
from disturbed import Case, arrays, content, several, trained, vectors
from embedded import facts, random_triples
from loops import Commands, Fault
from outercore import _core
from outercore.analytics import ALGORITHMS
from test_import_typed_columns import tables
from test_live import random_model

TRAIN = (
    "--model sage --hidden 2 --fanout 2 --batch-size 50 --epochs 2"
    " --set run.checkpoint_seconds=1e-9"
)
EMBED = "--dim 4 --epochs 2 --set run.checkpoint_seconds=1e-9"
TYPED = f"{TRAIN.replace('sage', 'rgcn')} --set sampling.batch_size=20"
SOURCE = {"bfs": " --source 3", "sssp": " --source 3 --weights cost"}

CASES = [
    Case("import", "import edges.csv --out new", arrays("new")),
    Case("overwrite", "import edges.csv --out old --overwrite", arrays("old"), ("old/",)),
    Case(
        "import-words",
        "import words.csv --ids dictionary --labels words-y.csv:kind --out new",
        arrays("new"),
    ),
    Case(
        "add",
        "add gridded --features x.npy --array age=age.csv --overwrite",
        arrays("gridded"),
        ("gridded/graph.json", "gridded/nodes/node/x.npy"),
    ),
    Case("convert", "convert laid-out --to float16", arrays("laid-out"), ("laid-out/",)),
    Case("layout", "layout graph --precision int8 --order none", arrays("graph"), ("graph/",)),
    Case("layout-in-order", "layout laid-out --order rcm", arrays("laid-out"), ("laid-out/",)),
    Case(
        "grid",
        "grid gridded --overwrite",
        arrays("gridded", grids=True),
        ("gridded/graph.json", "gridded/grid/"),
    ),
    Case("train", f"train graph {TRAIN} --out run", trained, is_run=True),
    Case("train-links", f"train graph {TRAIN} --task link --out run", trained, is_run=True),
    Case("export-model", "export-model trained", content("trained/serving/model.safetensors")),
    Case(
        "evaluate",
        "evaluate trained --predictions classes.csv --logits logits.npy --overwrite",
        content("classes.csv", "logits.npy"),
        ("classes.csv", "logits.npy"),
        is_several=True,
    ),
    Case(
        "predict",
        "predict graph --model trained --out scores.csv --overwrite",
        content("scores.csv"),
        ("scores.csv",),
    ),
    Case(
        "predict-links",
        "predict graph --model links --edges few.csv --out pairs.parquet",
        content("pairs.parquet"),
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
        "run-weighted",
        "run sssp gridded --source 3 --weights cost --out hops.npy --record none",
        content("hops.npy"),
    ),
    Case(
        "run-checkpoint",
        "run pagerank gridded --out rank.npy --overwrite --record run --set checkpoint_every=0",
        content("rank.npy"),
        ("rank.npy",),
    ),
    Case(
        "triples",
        "import --triples facts-train.tsv --valid facts-valid.tsv --out new",
        arrays("new"),
        world="facts",
    ),
    Case("triples-as-graph", "import facts --out new", arrays("new"), world="facts"),
    Case("embed", f"embed facts {EMBED} --out run", vectors, is_run=True, world="facts"),
    Case(
        "embed-partitions",
        f"embed facts {EMBED} --set budget.partitions=4 --out run",
        vectors,
        is_run=True,
        world="facts",
    ),
    Case(
        "embed-from",
        f"embed facts {EMBED} --from embedded --out run",
        vectors,
        is_run=True,
        world="facts",
    ),
    Case(
        "embedding-features",
        "embedding features embedded --name place",
        arrays("facts"),
        ("facts/graph.json",),
        world="facts",
    ),
    Case(
        "embedding-export",
        "embedding export embedded --out rows.csv",
        content("rows.csv"),
        world="facts",
    ),
    Case(
        "embedding-predict",
        "embedding predict embedded --head n3 --relation r1 --out best.csv",
        content("best.csv"),
        world="facts",
    ),
    Case("typed", "import shop --add-reverse --out new", arrays("new"), world="typed"),
    Case(
        "typed-overwrite",
        "import shop --add-reverse --label purchase.late --out old --overwrite",
        arrays("old"),
        ("old/",),
        world="typed",
    ),
    Case(
        "typed-options",
        "import --nodes customer=shop/customer.csv:id --nodes till=4"
        " --edges customer,visits,till=visits.csv --label customer.class --out new",
        arrays("new"),
        world="typed",
    ),
    Case(
        "typed-add",
        "add graph --array customer/age=age.csv --features till=till.npy --overwrite",
        arrays("graph"),
        ("graph/graph.json", "graph/nodes/till/"),
        world="typed",
    ),
    Case("typed-train", f"train graph {TYPED} --out run", trained, is_run=True, world="typed"),
    Case(
        "typed-predict",
        "predict graph --model trained --out scores.csv",
        content("scores.csv"),
        world="typed",
    ),
    Case(
        "updates",
        "disturbed_server:change graph served",
        arrays("graph"),
        ("graph/",),
        world="live",
        steps=5,
    ),
    Case(
        "fold",
        "run degrees pending --out degrees.npy --record none",
        several(arrays("pending"), content("degrees.npy")),
        ("pending/",),
        world="live",
        is_several=True,
    ),
    Case(
        "load",
        "disturbed_server:load graph served newer answers.json",
        content("answers.json"),
        world="live",
    ),
    Case(
        "export-newer-weights",
        "export-model trained-2 --out older --overwrite",
        content("older/model.safetensors", "older/model.json"),
        ("older/",),
        world="live",
        is_several=True,
    ),
]
INPUTS_ALONE = ("import", "import-words", "triples", "typed", "typed-options")
"""Commands that read only the user's inputs, which do not have checksums."""
BEGUN = {
    "stopped-training": f"train graph {TRAIN} --out run",
    "stopped-embedding": f"embed facts {EMBED} --out run",
    "stopped-partitions": f"embed facts {EMBED} --set budget.partitions=4 --out run",
    "stopped-run": "run pagerank gridded --out ranks.npy --record run --set checkpoint_every=0",
}
"""Commands that are killed before they end; other commands resume their runs."""
CASES += [
    Case("resume", "train --resume run", trained, ("run/",), "stopped-training", is_run=True),
    Case(
        "embed-resume", "embed --resume run", vectors, ("run/",), "stopped-embedding", is_run=True
    ),
    Case(
        "embed-resume-partitions",
        "embed --resume run",
        vectors,
        ("run/",),
        "stopped-partitions",
        is_run=True,
    ),
    Case("run-resume", "run --resume run", content("ranks.npy"), ("run/",), "stopped-run"),
]
ALGORITHMS_RUN = [
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


def run_all(commands: Commands, root: Path, *lines: str) -> None:
    for line in lines:
        ended = commands.run(shlex.split(line), root)
        assert ended.status == 0, (line, ended.err)


def planted(place: Path) -> None:
    shape = {"nodes": 200, "degree": 6, "features": 4, "classes": 3, "seed": 1}
    _core.generate_planted(place, shape, lambda *_: None)
    graph = oc.open(place)
    graph.add_edge_array("cost", np.arange(graph.num_edge_rows) % 7 + 0.5)


def plain(commands: Commands, root: Path) -> None:
    """Data sets of one type, models of them, and older results."""
    planted(root / "graph")
    random = np.random.default_rng(3)
    lines = [f"{source},{target}\n" for source, target in random.integers(0, 40, (90, 2))]
    (root / "edges.csv").write_text("".join(lines))
    np.save(root / "x.npy", random.random((200, 3), np.float32))
    (root / "age.csv").write_text("age\n" + "".join(f"{age}\n" for age in range(200)))
    (root / "few.csv").write_text("1,2\n0,1\n")
    (root / "words.csv").write_text(
        "".join(f"w{s},w{t}\n" for s, t in random.integers(9, size=(40, 2)))
    )
    (root / "words-y.csv").write_text(
        "id,kind\n" + "".join(f"w{n},{'ab'[n % 2]}\n" for n in range(9))
    )
    shutil.copytree(root / "graph", root / "gridded")
    shutil.copytree(root / "graph", root / "laid-out")
    run_all(
        commands,
        root,
        "import few.csv --out old",
        "grid gridded --weights cost",
        "layout laid-out --order degree",
        "layout laid-out --precision int8 --order none",
        "run pagerank gridded --damping 0.5 --save component --out rank.npy --record none",
        f"train graph {TRAIN} --out trained",
        f"train graph {TRAIN} --task link --out links",
        "evaluate trained --split valid --predictions classes.csv --logits logits.npy",
    )
    shutil.copy(root / "rank.npy", root / "rank.csv")
    shutil.copy(root / "rank.npy", root / "rank.parquet")


def knowledge(commands: Commands, root: Path) -> None:
    """Triples, and an embedding of them."""
    facts(root / "facts", random_triples(1), random_triples(2)[:40])
    run_all(commands, root, f"embed facts {EMBED} --out embedded")


SHOP = """tables:
  customer: {primary_key: id}
  purchase: {primary_key: id, foreign_keys: {buyer: customer, till: till}, time: day}
  till: {primary_key: id}
"""


def typed(commands: Commands, root: Path) -> None:
    """Tables of several types, data sets of them, and a model."""
    random = np.random.default_rng(5)
    customers, purchases = 20, 60
    tables(
        root / "shop",
        SHOP,
        purchase={
            "id": [f"p{row}" for row in range(purchases)],
            "buyer": [f"c{buyer}" for buyer in random.integers(customers, size=purchases)],
            "till": random.integers(4, size=purchases).tolist(),
            "day": [f"2024-01-{1 + row % 28:02}" for row in range(purchases)],
            "price": random.random(purchases).tolist(),
            "late": [row % 2 for row in range(purchases)],
        },
        till={"id": [0, 1, 2, 3], "size": [1.0, 2.0, 3.0, 4.0]},
    )
    lines = [f"c{row},{row % 5},{'abc'[row % 3]}" for row in range(customers)]
    (root / "shop/customer.csv").write_text("id,level,class\n" + "\n".join(lines) + "\n")
    visits = [f"c{row % customers},{row % 4}" for row in range(50)]
    (root / "visits.csv").write_text("customer,till\n" + "\n".join(visits) + "\n")
    ages = [f"c{row},{20 + row}" for row in range(customers)]
    (root / "age.csv").write_text("id,age\n" + "\n".join(ages) + "\n")
    np.save(root / "till.npy", random.random((4, 2), np.float32))
    run_all(
        commands,
        root,
        "import shop --out old",
        "import shop --add-reverse --label purchase.late --out graph",
        f"train graph {TYPED} --out trained",
    )


def live(commands: Commands, root: Path) -> None:
    """A served graph with layouts, a copy with updates in its log, and two models."""
    random_model(5, undirected=False).write(root / "graph")
    shutil.rmtree(root / "graph-files")
    run_all(
        commands,
        root,
        "layout graph --order degree",
        "layout graph --precision int8 --order none",
        "grid graph",
        *(f"train graph {TRAIN} --seed {seed} --out trained-{seed}" for seed in (1, 2)),
        "export-model trained-1 --out older",
        "export-model trained-2 --out newer",
    )
    (root / "served").symlink_to("older")
    shutil.copytree(root / "graph", root / "pending")
    run_all(commands, root, "disturbed_server:change pending served")


def stopped(command: str, commands: Commands, root: Path) -> None:
    """A run that was killed after two thirds of its changes."""
    if " facts " in command:
        facts(root / "facts", random_triples(1), random_triples(2)[:40])
    else:
        planted(root / "graph")
        shutil.copytree(root / "graph", root / "gridded")
        run_all(commands, root, "grid gridded")
    tried = root.with_name("tried")
    shutil.copytree(root, tried)
    ended = commands.run(shlex.split(command), tried)
    assert ended.status == 0, ended.err
    shutil.rmtree(tried)
    fault = Fault("kill", len(ended.changes) * 2 // 3)
    assert commands.run(shlex.split(command), root, fault).status == -9


WORLDS: dict[str, Callable[[Commands, Path], None]] = {
    "plain": plain,
    "facts": knowledge,
    "typed": typed,
    "live": live,
    **{name: partial(stopped, command) for name, command in BEGUN.items()},
}
"""Functions that prepare the directories, by name."""
MINE = {
    "plain": [
        *("graph/notes.txt", "gridded/notes.txt", "old/notes.txt", "runs/notes.txt"),
        "old/edges/part0.csv",
        "old/edges/edge/sources.1.npy",
        "graph/grid/edge/order.npy",
        "gridded/nodes/node/component.1.npy",
        "laid-out/nodes/node/x.1.npy",
    ],
    "facts": ["facts/notes.txt", "facts/nodes/node/place.npy", "runs/notes.txt"],
    "typed": ["old/notes.txt", "old/nodes/till/part0.csv", "graph/nodes/customer/age.npy"],
    "live": ["graph/notes.txt", "graph/live/notes.txt"],
    **{name: ["run/notes.txt"] for name in BEGUN},
}
"""The user's files; some are at paths where Outercore would write files."""
