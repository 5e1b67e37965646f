"""`outercore embedding`: search, rank, compare and export the rows of `outercore embed`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from numpy.typing import NDArray

from outercore import embedding as embeddings
from outercore.base.fields import within
from outercore.base.options import MemoryOption
from outercore.base.shell import quoted
from outercore.cli import console, options
from outercore.cli.embed import Score, show
from outercore.cli.watch import EmbedWatch
from outercore.data.outputs import TABLES, TableWriter, check_output, table_file
from outercore.embedding.use.export import FORMATS
from outercore.embedding.use.questions import COLUMNS, read_candidates, read_questions
from outercore.errors import InvalidError
from outercore.files.npy import read_npy

if TYPE_CHECKING:
    from outercore.embedding.use.neighbours import Nearest
    from outercore.embedding.use.predict import Predictions

_GROUP = 1024
"""Questions of a file that share a pass over the table."""
_FLAGS = {
    "evaluation.candidates": "--candidates",
    "evaluation.count": "--count",
    "evaluation.also": "--also",
    "evaluation.test_triples": "--triples",
    "run.seed": "--seed",
}
"""Flags of `evaluate` and `compare` by the fields of the configuration that check them."""

embedding = typer.Typer(
    help="Search, rank, compare and export the embeddings of `outercore embed`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


def _share(option: typer.CallbackParam, value: float) -> float:
    within(option.opts[0], value, 0.0, 1.0)
    return value


Ids = Annotated[
    bool,
    typer.Option(
        "--ids",
        help="Use row numbers from 0, instead of names or the ids of the imported files.",
    ),
]
Metric = Annotated[
    str,
    typer.Option(
        help="Compare entities by `inner`, `cosine`, `euclidean`, `manhattan` or `modulus`. "
        "`model` takes the metric of the model."
    ),
]


@dataclass(frozen=True, kw_only=True)
class _OfRun:
    """Options of every command."""

    run: Annotated[
        Path, typer.Argument(help="Run directory of `outercore embed`.", show_default=False)
    ]
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Directory of the run's data set, if it was moved."),
    ] = None
    json: options.Json = False

    def open(self, score: str | None = None) -> embeddings.Embedding:
        return embeddings.Embedding.open(self.run, data_set=self.data, score=score)


@dataclass(frozen=True, kw_only=True)
class _Search(_OfRun):
    """Options of commands that search for entities."""

    k: Annotated[int, typer.Option("-k", "--k", help="Number of answers to find.")] = 10
    candidates: Annotated[
        Path | None,
        typer.Option(
            "--candidates",
            help="Search only among the entities of this file: a text with one name per line (with "
            "`--ids` one id), or an `.npy` of ids.",
        ),
    ] = None
    approximate: Annotated[
        bool,
        typer.Option(
            "--approximate", help="Search the index that `outercore embedding index` built."
        ),
    ] = False
    recall: Annotated[
        float,
        typer.Option(
            callback=_share,
            help="With `--approximate`: share of the true answers that the search should find.",
        ),
    ] = 0.95
    ids: Ids = False
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write to this `.parquet`, `.csv` or `.tsv`, instead of printing the answers.",
        ),
    ] = None
    overwrite: options.Overwrite = False

    def check_out(self) -> None:
        if self.out is not None:
            check_output(self.out, TABLES, option="--out", overwrite=self.overwrite)

    def scope(self, opened: embeddings.Embedding, metric: str) -> dict[str, Any]:
        """The index and the candidates to search, as keywords of the package's functions."""
        index = candidates = None
        if self.approximate:
            index = embeddings.Index.open(opened, metric=metric, recall=self.recall)
        if self.candidates is not None:
            candidates = read_candidates(opened, self.candidates, by_id=self.ids)
        return {"index": index, "candidates": candidates}


@dataclass(frozen=True, kw_only=True)
class _Ranking(_OfRun):
    """Options of commands that rank held-out triples."""

    candidates: Annotated[
        str,
        typer.Option(
            help="Rank the true entity among `all` entities, or among entities drawn uniformly "
            "(`uniform`) or by `degree`. `auto` takes all, unless that takes too long."
        ),
    ] = "auto"
    count: Annotated[
        int, typer.Option("--count", "--candidate-count", help="Number of candidates to draw.")
    ] = 1000
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Compute only raw metrics, which count other true answers as wrong."
        ),
    ] = False
    triples: Annotated[int, typer.Option(help="Rank at most this many triples. 0 ranks all.")] = 0
    negatives: Annotated[
        Path | None,
        typer.Option(
            help="Rank each triple among its candidates in this `.npz` or `.pt` file, with the "
            "arrays `tail_neg` and `head_neg` of OGB.",
        ),
    ] = None
    memory: MemoryOption = "256MiB"
    score: Score = None

    def protocol(self) -> dict[str, Any]:
        """The protocol, as keywords of the package's functions."""
        return {
            "candidates": self.candidates,
            "count": self.count,
            "filtered": not self.raw,
            "triples": self.triples,
            "negatives": self.negatives,
            "memory": self.memory,
        }


@dataclass(frozen=True, kw_only=True)
class _Evaluate(_Ranking):
    part: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            help="Rank the triples of `test` (the default), `valid` or `train`. May be repeated.",
        ),
    ] = None
    also: Annotated[
        list[str] | None,
        typer.Option("--also", help="Rank among this kind of candidates, too. May be repeated."),
    ] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of all draws. The default is the seed of the run.")
    ] = None


@embedding.command("evaluate", no_args_is_help=True)
@options.command
def evaluate(arguments: _Evaluate) -> None:
    """Rank held-out triples again, with other parts or candidates.

    **Example**

        outercore embedding evaluate runs/first --part test --also uniform
    """
    opened = arguments.open(arguments.score)
    parts: Any = arguments.part or ("test",)
    also: Any = arguments.also or ()
    with options.renamed(_FLAGS), EmbedWatch(quiet=arguments.json) as watch:
        metrics = embeddings.assess(
            opened,
            **arguments.protocol(),
            parts=parts,
            also=also,
            seed=arguments.seed,
            observer=watch,
        )
    if arguments.json:
        console.json_data(metrics)
        return
    show(metrics)


@dataclass(frozen=True, kw_only=True)
class _Compare(_Ranking):
    other: Annotated[
        Path,
        typer.Argument(help="Directory of the run to compare with the first.", show_default=False),
    ]
    part: Annotated[str, typer.Option(help="Rank the triples of `test`, `valid` or `train`.")] = (
        "test"
    )
    seed: Annotated[int, typer.Option(help="Seed of all draws.")] = 0
    other_score: Annotated[
        str | None,
        typer.Option(help="Custom score function of the other run. The default is `--score`."),
    ] = None


@embedding.command("compare", no_args_is_help=True)
@options.command
def compare(arguments: _Compare) -> None:
    """Test whether two runs differ by more than chance in their ranks of the same triples.

    A difference above zero means that the second run is better than the first.

    **Example**

        outercore embedding compare runs/memory runs/partitions --part test
    """
    run, other = arguments.run, arguments.other
    part: Any = arguments.part
    other_score = arguments.other_score or arguments.score
    with options.renamed(_FLAGS), EmbedWatch(quiet=arguments.json) as watch:
        comparison = embeddings.compare(
            _scored(arguments),
            _scored(replace(arguments, run=other, score=other_score)),
            **arguments.protocol(),
            part=part,
            seed=arguments.seed,
            observer=watch,
        )
    if arguments.json:
        console.json_data(comparison.to_dict())
        return
    verdict = "no more than chance" if comparison.within_noise else "more than chance"
    console.data(f"{part}: {comparison.protocol}")
    console.data(f"  {run}  MRR {comparison.mrr:.4f}")
    console.data(f"  {other}  MRR {comparison.other_mrr:.4f}")
    console.data(
        f"  {other} compared with {run}: difference {comparison.difference:+.4f}, standard error "
        f"{comparison.error:.4f}: {verdict}; it ranks {comparison.better:.1%} of the triples "
        f"better, {comparison.worse:.1%} worse"
    )


def _scored(arguments: _Ranking) -> embeddings.Embedding:
    """A run, with the user's score function if the run has a custom model."""
    opened = arguments.open()
    return arguments.open(arguments.score) if opened.model.kind == "custom" else opened


@dataclass(frozen=True, kw_only=True)
class _Export(_OfRun):
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Write the embeddings to this `.npy`, `.parquet`, `.csv` or `.tsv`.",
            show_default=False,
        ),
    ]
    relations: Annotated[
        bool,
        typer.Option("--relations", help="Write the embeddings of relations instead of entities."),
    ] = False
    ids: Ids = False
    overwrite: options.Overwrite = False


@embedding.command("export", no_args_is_help=True)
@options.command
def export(arguments: _Export) -> None:
    """Write the embeddings with their names to a file, for other programs.

    **Examples**

        outercore embedding export runs/first --out vectors.parquet

        outercore embedding export runs/first --relations --out relations.tsv
    """
    check_output(arguments.out, FORMATS, option="--out", overwrite=arguments.overwrite)
    opened = arguments.open()
    with console.bars(quiet=arguments.json) as progress:
        rows = embeddings.export(
            opened,
            arguments.out,
            what="relations" if arguments.relations else "entities",
            by_id=arguments.ids,
            overwrite=arguments.overwrite,
            progress=progress,
        )
    _print_rows(rows, arguments.out, json=arguments.json)


@dataclass(frozen=True, kw_only=True)
class _Neighbours(_Search):
    of: Annotated[
        list[str] | None,
        typer.Argument(help="Names of entities, or their ids with `--ids`.", show_default=False),
    ] = None
    everything: Annotated[
        bool, typer.Option("--all", help="Find the neighbours of every entity. This needs `--out`.")
    ] = False
    metric: Metric = "model"


@embedding.command("neighbours", no_args_is_help=True)
@options.command
def neighbours(arguments: _Neighbours) -> None:
    """Find the nearest entities of some entities, by the metric of the model.

    The search is exact: it reads the table once for each 1,024 entities. `--approximate` searches
    a part of an index instead. A distance is shown as a negative score.

    **Examples**

        outercore embedding neighbours runs/first Berlin Paris -k 5

        outercore embedding neighbours runs/first --all --approximate --out near.parquet
    """
    arguments.check_out()
    opened = arguments.open()
    if arguments.everything == bool(arguments.of):
        raise InvalidError("embedding neighbours: expected entities, or `--all`")
    if arguments.everything and arguments.out is None:
        raise InvalidError("embedding neighbours: `--all` needs `--out FILE`")
    metric = arguments.metric
    search: Any = {"k": arguments.k, "metric": metric, **arguments.scope(opened, metric)}
    answers = _Answers(opened, by_id=arguments.ids)

    def tables() -> Iterator[_Columns]:
        if not arguments.everything:
            ids = opened.entity_ids(arguments.of or [], by_id=arguments.ids)
            nearest = embeddings.neighbours(opened, ids, by_id=True, **search)
            yield answers.neighbours(ids, nearest)
            return
        with console.bars(quiet=arguments.json) as progress:
            for first, nearest in embeddings.neighbours_of_all(opened, **search):
                done = first + len(nearest.ids)
                yield answers.neighbours(np.arange(first, done), nearest)
                progress("finding neighbours", done, opened.num_entities, "entities")

    _write(arguments, tables())


@dataclass(frozen=True, kw_only=True)
class _Predict(_Search):
    head: Annotated[
        list[str] | None, typer.Option("--head", help="Known head of a triple. May be repeated.")
    ] = None
    relation: Annotated[
        list[str] | None,
        typer.Option("--relation", help="Known relation of a triple. May be repeated."),
    ] = None
    tail: Annotated[
        list[str] | None, typer.Option("--tail", help="Known tail of a triple. May be repeated.")
    ] = None
    questions: Annotated[
        Path | None,
        typer.Option(
            "--questions",
            help="Read queries from this text: head, relation and tail on each line, separated by "
            "tabs, with `?` for the unknown one.",
        ),
    ] = None
    leave_out_known: Annotated[
        bool,
        typer.Option(
            "--leave-out-known", help="Leave out answers that are already facts of the data set."
        ),
    ] = False
    score: Score = None


@embedding.command("predict", no_args_is_help=True)
@options.command
def predict(arguments: _Predict) -> None:
    """Complete triples: from two of head, relation and tail, predict the third.

    For a plain graph and for the model `dot`, give only `--head` or only `--tail`, because they
    have no relations.

    **Examples**

        outercore embedding predict runs/first --head Berlin --relation "capital of"

        outercore embedding predict runs/first --questions open.tsv --leave-out-known --out new.tsv
    """
    arguments.check_out()
    opened = arguments.open(arguments.score)
    known: Any = {part: names for part in COLUMNS if (names := getattr(arguments, part))}
    if (arguments.questions is None) == (not known):
        raise InvalidError(
            "embedding predict: expected two of `--head`, `--relation` and `--tail`, or "
            "`--questions FILE`"
        )
    search: Any = {"k": arguments.k, "leave_out_known": arguments.leave_out_known}
    search |= arguments.scope(opened, "model")
    if arguments.questions is None:
        groups = iter([{**known, "by_id": arguments.ids}])
    else:
        questions = read_questions(arguments.questions, opened, _GROUP, by_id=arguments.ids)
        groups = ({**group, "by_id": True} for group in questions)
    answers = _Answers(opened, by_id=arguments.ids)
    predictions = (embeddings.predict(opened, **group, **search) for group in groups)
    _write(arguments, map(answers.predictions, predictions))


@dataclass(frozen=True, kw_only=True)
class _Features(_OfRun):
    data_set: Annotated[
        Path | None,
        typer.Argument(
            help="Write to this data set. The default is the data set of the run.",
            show_default=False,
        ),
    ] = None
    name: Annotated[str, typer.Option(help="Name of the node array.")] = "embedding"
    beside: Annotated[
        str | None,
        typer.Option(
            help="Put the columns of this node array before the columns of the embedding."
        ),
    ] = None
    entities: Annotated[
        Path | None,
        typer.Option(
            "--map",
            help="Read the entity of each node from this `.npy` of integers, with -1 for none.",
        ),
    ] = None
    missing: Annotated[
        str,
        typer.Option(
            help="Stop if a node has no embedding (`error`), or give it a row of zeros (`zeros`)."
        ),
    ] = "error"
    overwrite: options.Overwrite = False


@embedding.command("features", no_args_is_help=True)
@options.command
def features(arguments: _Features) -> None:
    """Write the embeddings into a data set as a node array, as features for `outercore train`.

    **Examples**

        outercore embedding features runs/first --name place

        outercore train friends --features place --model sage
    """
    from outercore.data.graph import Graph

    opened = arguments.open()
    graph = Graph(arguments.data_set or opened.data_set)
    entities = None
    if arguments.entities is not None:
        entities = read_npy(arguments.entities, "--map: file")
    missing: Any = arguments.missing
    with console.bars(quiet=arguments.json) as progress:
        added = embeddings.add_features(
            opened,
            graph,
            arguments.name,
            beside=arguments.beside,
            entities=entities,
            missing=missing,
            overwrite=arguments.overwrite,
            progress=progress,
        )
    if arguments.json:
        console.json_data(vars(added))
        return
    without = f", {added.missing:,} of them without an embedding" if added.missing else ""
    console.data(
        f"{added.nodes:,} nodes{without}, {added.width} numbers each, as `{added.name}` in "
        f"{graph.root}"
    )
    if graph.num_edges and graph.num_classes and graph.splits:
        console.note(
            f"hint: `outercore train {quoted(graph.root)} --features {quoted(added.name)}` learns "
            "from it"
        )


@dataclass(frozen=True, kw_only=True)
class _Index(_OfRun):
    metric: Metric = "model"
    memory: MemoryOption = "1GiB"
    lists: Annotated[
        int,
        typer.Option(
            help="Divide the entities into this many lists. 0 takes twice the square root of their "
            "number."
        ),
    ] = 0


@embedding.command("index", no_args_is_help=True)
@options.command
def index(arguments: _Index) -> None:
    """Build an index for approximate search, and measure its recall. This needs `outercore[ann]`.

    **Example**

        outercore embedding index runs/first --metric cosine
    """
    with console.bars(quiet=arguments.json) as progress:
        built = embeddings.Index.build(
            arguments.open(),
            metric=arguments.metric,
            memory=arguments.memory,
            lists=arguments.lists,
            progress=progress,
        )
    if arguments.json:
        recalls = [vars(recall) for recall in built.recalls]
        console.json_data({"metric": built.metric, "lists": built.lists, "recalls": recalls})
        return
    console.table(
        f"{built.root}: {built.lists:,} lists, recall of the 10 nearest ({built.metric})",
        [
            (f"{recall.probes:,} lists looked at", f"{recall.recall:.4f}")
            for recall in built.recalls
        ],
    )


_Columns = dict[str, pa.Array]


def _write(arguments: _Search, tables: Iterable[_Columns]) -> None:
    """Writes the rows of tables to the file of `--out`, or prints them at the end.

    The rows of a file, of a table on the terminal, and of the JSON are the same.
    """
    records: list[dict[str, Any]] = []
    columns: _Columns = {}
    file: TableWriter | None = None
    with ExitStack() as stack:
        for columns in tables:
            if arguments.out is None:
                records += pa.table(columns).to_pylist()
                continue
            if file is None:
                types = {name: column.type for name, column in columns.items()}
                file = stack.enter_context(table_file(arguments.out, types))
            file.append({**columns})
    if arguments.out is not None:
        _print_rows(0 if file is None else file.rows, arguments.out, json=arguments.json)
    elif arguments.json:
        console.json_data(records)
    else:
        console.columns(records, console.cells_of(columns))


class _Answers:
    """Answers as columns."""

    def __init__(self, opened: embeddings.Embedding, *, by_id: bool) -> None:
        self._embedding, self._by_id = opened, by_id

    def neighbours(self, entities: NDArray[np.int64], nearest: Nearest) -> _Columns:
        rows, ranks = np.nonzero(nearest.ids >= 0)
        ids = nearest.ids[rows, ranks]
        return {
            "entity": self._labels("entity", entities[rows]),
            "rank": pa.array(ranks + 1, pa.int32()),
            "neighbour": self._labels("entity", ids),
            "score": pa.array(nearest.scores[rows, ranks], pa.float32()),
            "seen": self._seen("entity", ids),
        }

    def predictions(self, predictions: Predictions) -> _Columns:
        """A row for each answer."""
        part = predictions.part
        rows, ranks = np.nonzero(predictions.ids >= 0)
        answers = predictions.ids[rows, ranks]
        triples = predictions.questions[rows]
        triples[:, COLUMNS.index(part)] = answers
        return {
            **{name: self._labels(name, triples[:, at]) for at, name in enumerate(COLUMNS)},
            "asked": pa.array([part] * len(triples), pa.large_string()),
            "rank": pa.array(ranks + 1, pa.int32()),
            "score": pa.array(predictions.scores[rows, ranks], pa.float32()),
            "seen": self._seen(part, answers),
        }

    def _seen(self, part: str, ids: NDArray[np.int64]) -> pa.Array:
        """Whether training has seen each answer; missing if that is unknown, and for relations."""
        seen = None if part == "relation" else self._embedding.seen
        return pa.nulls(len(ids), pa.bool_()) if seen is None else pa.array(seen[ids])

    def _labels(self, part: str, ids: NDArray[np.int64]) -> pa.Array:
        kind: Any = "relation" if part == "relation" else "entity"
        labels = self._embedding.labels(ids.clip(0), kind, by_id=self._by_id)
        # A question without a relation.
        return pa.nulls(len(ids), labels.type) if (ids < 0).any() else labels


def _print_rows(rows: int, path: Path, *, json: bool) -> None:
    """Prints how many rows a file has."""
    console.result({"rows": rows, "file": str(path)}, f"{rows:,} rows in {path}", as_json=json)
