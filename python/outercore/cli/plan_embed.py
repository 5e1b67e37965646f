"""`outercore plan embed`: what will live where, and what will an epoch cost?"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from outercore.cli import console, embed_options, options
from outercore.cli.embed_watch import EmbedWatch
from outercore.config.sizes import format_size, parse_size

_SWAPS = {"in-place": "in place", "in-turn": "in turn", "spare-slot": "spare"}


def plan_embed(
    context: typer.Context,
    data_set: options.DataSet,
    recipe: embed_options.Recipe = None,
    config: embed_options.Config = None,
    start_from: embed_options.StartFrom = None,
    from_data: embed_options.FromData = None,
    model: embed_options.Model = None,
    score: embed_options.Score = None,
    relation_dim: embed_options.RelationDim = None,
    dim: embed_options.Dim = None,
    norm: embed_options.Norm = None,
    reciprocal: embed_options.Reciprocal = None,
    loss: embed_options.Loss = None,
    negatives: embed_options.Negatives = None,
    degree_share: embed_options.DegreeShare = None,
    negative_filter: embed_options.NegativeFilter = None,
    correction: embed_options.Correction = None,
    optimiser: embed_options.Optimiser = None,
    relation_optimiser: embed_options.RelationOptimiser = None,
    batch_size: embed_options.BatchSize = None,
    chunk_size: embed_options.ChunkSize = None,
    memory: embed_options.Memory = None,
    partitions: embed_options.Partitions = None,
    slots: embed_options.Slots = None,
    order: embed_options.Order = None,
    swap: embed_options.Swap = None,
    sweeps: embed_options.Sweeps = None,
    spread: embed_options.Spread = None,
    rename: embed_options.Rename = None,
    group: embed_options.Group = None,
    held_out: embed_options.HeldOut = None,
    candidates: embed_options.Candidates = None,
    candidate_count: embed_options.CandidateCount = None,
    also: embed_options.Also = None,
    raw: embed_options.Raw = False,
    valid_triples: embed_options.ValidTriples = None,
    test_triples: embed_options.TestTriples = None,
    seed: embed_options.Seed = None,
    threads: embed_options.Threads = None,
    count_answers: Annotated[
        bool | None,
        typer.Option(
            "--count-answers/--no-count-answers",
            help="Count the true answers to held-out triples, as a run does, by a pass over all "
            "triples; by default those of 10 million triples at most.",
        ),
    ] = None,
    triples_per_second: Annotated[
        float | None,
        typer.Option(help="What this machine trains; measured for a second by default."),
    ] = None,
    read_bandwidth: Annotated[
        str | None,
        typer.Option(
            callback=options.size,
            help="Bytes a second, `2GB`; as probed, or measured, by default.",
        ),
    ] = None,
    write_bandwidth: Annotated[
        str | None,
        typer.Option(callback=options.size, help="Bytes a second; measured by default."),
    ] = None,
    json: options.Json = False,
) -> None:
    """Say what a memory budget will buy for embedding, before anything is embedded.

    How long a validation and the final figures take, and how often they read the table. For each
    order of partitions: buffer states, bytes that an epoch reads and writes, triples
    that it reads, swaps with something to train meanwhile, expected seconds, and whether the
    graph is dense enough for computing to hide the I/O (theorem 3 of Legend). Triples are taken to
    be spread evenly; a run that counts others may choose other partitions.

    **Examples**

        outercore plan embed friends --dim 64 --memory 2GiB

        outercore plan embed friends --triples-per-second 100000 --read-bandwidth 2GB \
--write-bandwidth 1GB --json
    """
    from outercore import open as open_graph
    from outercore.embedding.custom import own_score
    from outercore.embedding.data import has_triples
    from outercore.embedding.forecast import forecast
    from outercore.embedding.options import configuration
    from outercore.embedding.warm_start import require_its_run, warm_start

    require_its_run(start_from, from_data)
    graph = open_graph(data_set)
    with embed_options.named(context):
        chosen = configuration(
            config,
            recipe=recipe,
            plain_graph=not has_triples(graph),
            model=embed_options.model(model, score),
            relation_dim=relation_dim,
            dim=dim,
            norm=norm,
            reciprocal=reciprocal,
            loss=loss,
            **embed_options.negatives(negatives),
            degree_share=degree_share,
            negative_filter=negative_filter,
            correction=correction,
            optimiser=optimiser,
            relation_optimiser=relation_optimiser,
            batch_size=batch_size,
            chunk_size=chunk_size,
            memory=memory,
            partitions=partitions,
            slots=slots,
            order=order,
            swap=swap,
            sweeps=sweeps,
            spread=spread,
            rename=rename,
            group=group,
            held_out=held_out,
            candidates=candidates,
            candidate_count=candidate_count,
            also=also or None,
            filtered=False if raw else None,
            valid_triples=valid_triples,
            test_triples=test_triples,
            seed=seed,
            threads=threads,
        )
    warm = None
    if start_from is not None:
        warm = warm_start(start_from, graph, chosen.model, data_set=from_data)
    with EmbedWatch(quiet=json) as watch:
        planned = forecast(
            graph,
            chosen,
            triples_per_second=triples_per_second,
            read_bandwidth=_rate(read_bandwidth),
            write_bandwidth=_rate(write_bandwidth),
            score=None if score is None else own_score(score).function,
            warm=warm,
            count=count_answers,
            told=watch.preparing,
        )
    if json:
        console.json_data(planned)
        return
    orders, missing = planned.pop("orders", []), planned.pop("no_orders", {})
    warning = planned.pop("warning", None)
    console.table("plan", _rows(planned))
    if orders:
        console.data("")
        Console(highlight=False).print(_table(orders))
        for reason in missing.values():
            console.data(f"not offered: {reason}")
        console.data(_theorem(orders))
    if warning is not None:
        console.note(warning)


def _rate(text: str | None) -> float | None:
    return None if text is None else float(parse_size(text))


def _rows(planned: dict[str, Any]) -> list[tuple[str, str]]:
    rates = planned["rates"]
    rows = [
        ("entities", f"{planned['entities']:,}"),
        ("relations", f"{planned['relations']:,}"),
        ("triples", f"{planned['triples']:,}"),
        ("budget", format_size(planned["budget_memory"])),
        ("everything in memory takes", format_size(planned["everything_memory"])),
        ("needed", format_size(planned["needed_memory"])),
    ]
    rows += [(f"  {name}", format_size(size)) for name, size in planned["parts_memory"].items()]
    if planned["all_in_memory"]:
        rows.append(("placement", "everything in memory"))
    else:
        count, slots = planned["partitions"], planned["slots"]
        rows.append(("placement", f"{slots} of {count} partitions in memory, {planned['swap']}"))
        sweeps = planned["walks"]["sweeps"]
        mixed = [name for name in ("spread", "rename") if planned["walks"][name]]
        group = planned["walks"]["group"]
        if group > 1:
            mixed.append(f"partitions of {group} parts")
        walks = "one walk" if sweeps == 1 else f"{sweeps} walks"
        rows.append(("epoch", ", ".join([f"{walks} through the order", *mixed])))
    measured = ", measured" if rates.get("triples_measured") else ""
    rows.append(("trains", f"{rates['triples_per_second']:,.0f} triples/s{measured}"))
    if "read_bandwidth" in rates:
        how = ", probed" if rates.get("read_probed") else ""
        rows.append(("device reads", f"{format_size(rates['read_bandwidth'])}/s{how}"))
        how = ", measured" if rates.get("write_measured") else ""
        rows.append(("device writes", f"{format_size(rates['write_bandwidth'])}/s{how}"))
    rows.append(("expected epoch", _seconds(planned["epoch_seconds"])))
    for name, title in (("validation", "one validation"), ("final", "final figures")):
        if (ranking := planned["ranking"].get(name)) is not None:
            rows.append((title, _of_ranking(ranking)))
    if (answers := planned.get("answers")) is not None:
        how = "" if answers["counted"] else ", estimated"
        memory = format_size(answers["memory"])
        rows.append(("true answers", f"{answers['count']:,}, {memory}{how}"))
    return rows


def _of_ranking(ranking: dict[str, Any]) -> str:
    passes = ranking["passes"]
    parts = [
        _seconds(ranking["seconds"]),
        f"{ranking['triples']:,} triples",
        f"{passes:,} {'pass' if passes == 1 else 'passes'} over the table",
    ]
    if ranking["bytes_read"]:
        parts.append(f"reads {format_size(ranking['bytes_read'])}")
    return ", ".join(parts)


def _table(orders: list[dict[str, Any]]) -> Table:
    """One row an order; the one that a run would take is bold."""
    table = Table(
        *("order", "states", "moved", "triples", "prefetch", "hidden", "epoch"),
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for column in table.columns:
        column.no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for one in orders:
        table.add_row(
            f"{one['kind']}, {_SWAPS[one['swap']]}" + (" *" if one["chosen"] else ""),
            f"{one['states']:,}",
            format_size(one["bytes_between"]),
            format_size(one["bytes_of_triples"]) if one["bytes_of_triples"] else "in memory",
            f"{one['prefetchable']:,}/{one['swaps']:,}",
            f"{one['hidden']:,}",
            _seconds(one["epoch_seconds"]),
            style="bold" if one["chosen"] else "",
        )
    return table


def _theorem(orders: list[dict[str, Any]]) -> str:
    chosen = next(one for one in orders if one["chosen"])
    density, least = chosen["density"], chosen["least_density"]
    if least is None:
        return "I/O does not hide (theorem 3): nothing can be trained during a swap"
    verdict = "hides" if chosen["hides"] else "does not hide"
    relation = "at least" if chosen["hides"] else "below"
    return f"I/O {verdict} (theorem 3): density {density:.3g} is {relation} {least:.3g}"


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"
