"""`outercore embed`, `outercore plan embed`, and the report of embedding runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from outercore.embedding.epochs import Epochs
from outercore.runs.report import write_report
from outercore.runs.report.runs import EmbeddingRun, load_runs

RATES = ("--triples-per-second", "1e5", "--bandwidth", "1GB,500MB")
SMALL = (
    "--dim", "16", "--epochs", "2", "--set", "optimiser.validate_every=1", "--negatives", "20",
    "--batch-size", "32", "--set", "budget.threads=1", "--memory", "64MiB",
)  # fmt: skip


def triples(parts: int) -> str:
    return "".join(f"e{i}\tr{k}\te{(i + k + 1) % 50}\n" for i in range(50) for k in range(parts))


@pytest.fixture
def facts(tmp_path: Path, outcome: Any) -> Path:
    (tmp_path / "train.tsv").write_text(triples(3))
    (tmp_path / "test.tsv").write_text("e1\tr0\te2\ne5\tr2\te8\n")
    words = ("--triples", "--valid", "test.tsv", "--test", "test.tsv", "--out", "facts")
    code, _, err = outcome("import", "train.tsv", *words)
    assert code == 0, err
    return tmp_path / "facts"


def test_settings_of_relations_and_degrees_are_options(facts: Path, outcome: Any) -> None:
    more = (
        "--set", "optimiser.relations=adam", "--set", "optimiser.relation_learning_rate=0.01",
        "--set", "regulariser.kind=n3", "--set", "regulariser.weight=0.001",
        "--set", "regulariser.relation_weight=0", "--set", "negatives.degree_share=0.5",
        "--set", "negatives.degree_power=0.75",
    )  # fmt: skip
    code, out, err = outcome("embed", facts, *SMALL, *more, "--out", "run", "--json")
    assert code == 0, err
    config = json.loads(out)["config"]
    assert config["optimiser"]["relations"] == "adam"
    assert config["optimiser"]["relation_learning_rate"] == 0.01
    assert config["regulariser"]["relation_weight"] == 0
    assert config["negatives"]["degree_power"] == 0.75
    code, _, err = outcome(
        "embed", facts, *SMALL, "--set", "optimiser.relations=sgd", "--out", "other"
    )
    assert code == 1
    assert "optimiser.relations: expected one of adagrad, row-adagrad, adam" in err


def test_a_plan_takes_what_changes_the_placement(facts: Path, outcome: Any) -> None:
    needed = []
    for more in ((), ("--set", "negatives.filter=known")):
        code, out, err = outcome(
            "plan", "embed", facts, "--memory", "64MiB", "--set", "evaluation.valid_triples=1",
            "--set", "evaluation.candidates=uniform", *RATES, *more, "--json",
        )  # fmt: skip
        assert code == 0, err
        needed.append(json.loads(out)["needed_memory"])
    assert needed[0] < needed[1]


def test_a_plan_says_what_ranking_takes(facts: Path, outcome: Any) -> None:
    words = ("--triples-per-second", "1e5", "--dim", "16")
    code, out, err = outcome("plan", "embed", facts, *words)
    assert code == 0, err
    lines = [" ".join(line.split()) for line in out.splitlines()]
    found = {
        title: line
        for line in lines
        for title in ("one validation", "final figures")
        if line.startswith(title)
    }
    assert found["one validation"].endswith("s, 2 triples, 1 pass over the table")
    assert found["final figures"].endswith("s, 4 triples, 2 passes over the table")
    # One to each end of two triples in either part, which stand in all three.
    assert "true answers 24, 96 B" in lines
    cut = (
        "--set",
        "budget.partitions=5",
        "--set",
        "budget.slots=3",
        "--bandwidth",
        "1GB,1GB",
    )
    code, out, err = outcome("plan", "embed", facts, *words, *cut)
    assert code == 0, err
    assert "1 pass over the table, reads " in out


def test_a_plan_counts_the_rows_that_from_gives(facts: Path, outcome: Any) -> None:
    code, _, err = outcome("embed", facts, *SMALL, "--out", "run")
    assert code == 0, err
    words = ("--dim", "16", "--triples-per-second", "1e5", "--json")
    needed = []
    for more in ((), ("--from", "run"), ("--from", "run", "--from-data", facts)):
        code, out, err = outcome("plan", "embed", facts, *words, *more)
        assert code == 0, err
        needed.append(json.loads(out)["needed_memory"])
    assert needed[1] == needed[2] > needed[0]
    code, _, err = outcome("plan", "embed", facts, *words, "--from-data", facts)
    assert code == 1
    assert "--from-data" in err


@pytest.fixture
def friends(tmp_path: Path, outcome: Any) -> Path:
    code, _, err = outcome(
        "generate", "planted", "--nodes", "300", "--features", "4", "--out", "friends"
    )
    assert code == 0, err
    return tmp_path / "friends"


def test_embed_prints_every_figure_with_its_protocol(facts: Path, outcome: Any) -> None:
    code, out, err = outcome(
        "embed",
        facts,
        *SMALL,
        "--out",
        "run",
        "--set",
        "evaluation.also=uniform",
        "--set",
        "evaluation.count=30",
    )
    assert code == 0, err
    assert "test: 2 triples, heads and tails, among all 50 entities; filtered and raw" in out
    assert "test: 2 triples, heads and tails, among 30 entities drawn uniformly" in out
    assert out.count("  filtered  MRR ") == out.count("  raw       MRR ") == 4
    assert out.splitlines()[-1] == "run"
    started = "run run: complex of dimension 16, 848 numbers, on cpu\n  in memory  all partitions\n"
    assert started in err
    assert "triples/s" in err
    assert "epoch   1  loss" in err
    assert Path("run/entities.npy").exists()


def test_embed_in_partitions_says_what_moved(facts: Path, outcome: Any) -> None:
    code, _, err = outcome(
        "embed",
        facts,
        *SMALL,
        "--out",
        "run",
        "--set",
        "budget.partitions=5",
        "--set",
        "budget.slots=3",
    )
    assert code == 0, err
    assert "\n  in memory  3 of 5 partitions\n" in err
    assert "  read " in err
    assert "  waited " in err


@pytest.mark.parametrize("slots", [(), ("--set", "budget.partitions=5", "--set", "budget.slots=3")])
def test_a_rate_that_is_too_high_leaves_no_tables_and_a_lower_one_trains(
    tmp_path: Path, outcome: Any, slots: tuple[str, ...]
) -> None:
    (tmp_path / "train.tsv").write_text(triples(3))
    code, _, err = outcome("import", "train.tsv", "--triples", "--out", "facts")
    assert code == 0, err
    words = (*SMALL, *slots)
    code, _, err = outcome("embed", "facts", *words, "--learning-rate", "1e15", "--out", "run")
    assert code == 1
    assert "expected a finite loss and gradient" in err
    assert "no epoch was validated before" in err
    assert "lower the learning rate" in err
    assert not Path("run/embedding.json").exists()
    again = ("--resume", "run") if slots else ("facts", *words, "--out", "run")
    code, _, err = outcome("embed", *again, "--learning-rate", "0.1")
    assert code == 0, err


def test_embed_prints_its_record_as_json(facts: Path, outcome: Any) -> None:
    code, out, err = outcome("embed", facts, *SMALL, "--out", "run", "--json")
    assert (code, err) == (0, "")
    record = json.loads(out)
    assert record["job"] == "embedding"
    assert record["command"].startswith("outercore")
    assert record == json.loads(Path("run/record.json").read_text())


def test_a_plain_graph_is_embedded_by_its_links(friends: Path, outcome: Any) -> None:
    code, out, err = outcome("embed", friends, *SMALL, "--out", "run", "--held-out", "0.1")
    assert code == 0, err
    assert "run run: dot of dimension 16" in err
    record = json.loads(Path("run/record.json").read_text())
    counts = [record["data_set"][f"{part} triples"] for part in ("train", "valid", "test")]
    edges = json.loads((friends / "graph.json").read_text())["edge_types"]["edge"]
    assert sum(counts) == edges["count"] / (2 if edges.get("undirected") else 1)
    assert 0.06 < (counts[1] + counts[2]) / sum(counts) < 0.14
    assert "among all 300 entities" in out


def test_a_plain_graphs_run_is_not_ranked_without_its_configuration(
    friends: Path, outcome: Any
) -> None:
    assert outcome("embed", friends, *SMALL, "--out", "run", "--held-out", "0.1")[0] == 0
    Path("run/config.json").unlink()
    code, _, err = outcome("embedding", "evaluate", "run")
    assert code == 1
    assert "no `config.json` there, and it alone says which links were held out" in err
    assert "hint: give the run directory with all that was in it" in err


def test_a_rate_far_too_high_for_a_plain_graph_is_named(friends: Path, outcome: Any) -> None:
    words = ("--loss", "logistic", "--lr", "1e30", "--seed", "5", "--held-out", "0.3")
    code, _, err = outcome("embed", friends, *SMALL, *words, "--out", "run")
    assert code == 1
    assert "hint: lower the learning rate" in err


def test_nothing_held_out_means_no_figures(friends: Path, outcome: Any) -> None:
    code, out, err = outcome("embed", friends, *SMALL, "--out", "run", "--held-out", "0")
    assert code == 0, err
    assert out == "run\n"
    assert json.loads(Path("run/embedding.json").read_text())["metrics"] == []


@pytest.fixture
def one_file(tmp_path: Path, outcome: Any) -> Path:
    (tmp_path / "all.tsv").write_text(triples(6))
    code, _, err = outcome("import", "all.tsv", "--triples", "--out", "one")
    assert code == 0, err
    return tmp_path / "one"


@pytest.mark.parametrize(
    "budget", [(), ("--set", "budget.partitions=5", "--set", "budget.slots=3")]
)
def test_triples_of_one_file_are_held_out_and_ranked(
    budget: tuple[str, ...], one_file: Path, outcome: Any
) -> None:
    words = ("--held-out", "0.2", "--set", "optimiser.patience=1", "--out", "run")
    code, out, err = outcome("embed", one_file, *SMALL, *budget, *words)
    assert code == 0, err
    assert "nothing is validated" not in err
    assert "valid: " in out
    assert "test: " in out
    counts = json.loads(Path("run/record.json").read_text())["data_set"]
    assert counts["train triples"] + counts["valid triples"] + counts["test triples"] == 300
    again = outcome("embedding", "evaluate", "run")
    assert again[0] == 0, again[2]
    assert (
        out.partition("test: ")[2].splitlines()[:3]
        == (again[1].partition("test: ")[2].splitlines()[:3])
    )
    planned = outcome("plan", "embed", one_file, *SMALL[:2], *words[:2], *RATES, "--json")
    assert json.loads(planned[1])["triples"] == counts["train triples"]


def test_patience_without_validation_is_named_with_what_to_do(
    one_file: Path, friends: Path, outcome: Any
) -> None:
    code, out, err = outcome(
        "embed", one_file, *SMALL, "--set", "optimiser.patience=2", "--out", "run"
    )
    assert (code, out) == (0, "run\n")
    told = " ".join(err.split())
    assert "no triples as `valid`: nothing is validated" in told
    assert "`optimiser.patience` has no effect" in told
    assert "import it with `--valid`, or hold some out by `--held-out`" in told
    words = ("--held-out", "0", "--set", "optimiser.patience=2", "--out", "other")
    code, out, err = outcome("embed", friends, *SMALL, *words)
    assert (code, out) == (0, "other\n")
    assert "no links are held out: nothing is validated" in " ".join(err.split())


def test_no_triples_are_held_out_beside_parts_of_their_own(facts: Path, outcome: Any) -> None:
    code, out, err = outcome("embed", facts, *SMALL, "--held-out", "0.2", "--out", "run")
    assert (code, out) == (1, "")
    assert "brings `triples/valid` and `triples/test` of its own, which are ranked" in err
    assert "hint: leave out `--held-out`, or import the training triples alone" in err
    assert not Path("run").exists()


def test_ctrl_c_says_how_to_go_on_and_that_goes_on(
    facts: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_batch = Epochs._after_batch

    def interrupted(self: Epochs, pool: Any, loss: float, some: int) -> bool:
        if self.progress.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return after_batch(self, pool, loss, some)

    with monkeypatch.context() as patched:
        patched.setattr(Epochs, "_after_batch", interrupted)
        code, out, err = outcome("embed", facts, *SMALL, "--out", "run")
    assert code == 130
    assert out == ""
    assert "stopped: in epoch 2 after 30 triples" in err
    assert "hint: go on with `outercore embed --resume run`" in err
    code, out, err = outcome("embed", "--resume", "run")
    assert code == 0, err
    assert "resumed in epoch 2 after 30 triples" in err
    assert "test: 2 triples" in out


def test_a_run_goes_on_with_its_own_configuration_only(facts: Path, outcome: Any) -> None:
    assert outcome("embed", facts, *SMALL, "--out", "run")[0] == 0
    for word, option in (
        (("--dim", "3"), "--dim (model.dim)"),
        (("--set", "evaluation.filtered=false"), "evaluation.filtered"),
        (("--seed", "1"), "--seed (run.seed)"),
        (("--out", "x"), "--out"),
        (("--from", "y"), "--from"),
        (("--from-data", "y"), "--from-data"),
    ):
        code, _, err = outcome("embed", "--resume", "run", *word)
        assert code == 1
        assert f"error: {option}: a run is resumed with its own options" in err
        assert "`memory`, `epochs`, `patience`, `learning_rate`" in " ".join(err.split())


def test_a_finished_run_is_given_more_epochs(facts: Path, outcome: Any) -> None:
    assert outcome("embed", facts, *SMALL, "--out", "run")[0] == 0
    for words, message in (
        (("--lr", "0.05"), "error: optimiser.epochs: 2 are done, expected more"),
        (("--epochs", "1"), "error: --epochs (optimiser.epochs): 2 are done, expected more"),
        (
            ("--set", "regulariser.weight=0.1"),
            "error: regulariser.weight: the run has no regulariser",
        ),
        (("--lr", "0"), "error: --learning-rate (optimiser.learning_rate): expected a positive"),
    ):
        code, _, err = outcome("embed", "--resume", "run", *words)
        assert code == 1
        assert message in " ".join(err.split())
    code, out, err = outcome("embed", "--resume", "run", "--epochs", "3", "--lr", "0.05")
    assert code == 0, err
    assert "resumed in epoch 3 after 0 triples" in err
    assert "note: optimiser.learning_rate is 0.05 from here on, 0.1 before" in err
    assert "test: 2 triples" in out
    record = json.loads(Path("run/record.json").read_text())
    assert (len(record["epochs"]), record["status"]) == (3, "finished")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--negatives", "many"), "Invalid value for '--negatives'"),
        (("--dim", "7"), "--dim (model.dim): `complex` needs an even number, found 7"),
        (("--memory", "1MiB"), "needs at least"),
        (("--set", "budget.partitions=5", "--set", "budget.slots=9"), "there is no such order"),
        (("--from", "nowhere"), "nowhere"),
        (("--config", "nowhere.json"), "configuration `nowhere.json`"),
    ],
)
def test_a_mistake_is_told_and_leaves_no_run(
    facts: Path, outcome: Any, words: tuple[str, ...], message: str
) -> None:
    code, out, err = outcome("embed", facts, *words, "--out", "run")
    assert (code, out) == (1, "")
    assert message in err
    assert "Traceback" not in err
    assert not Path("run").exists()


def test_plan_embed_says_that_all_fits(facts: Path, outcome: Any) -> None:
    code, out, err = outcome("plan", "embed", facts, "--triples-per-second", "100")
    assert code == 0, err
    assert "placement                   everything in memory" in out
    assert "expected epoch              1.5 s" in out


def test_plan_embed_compares_the_orders(facts: Path, outcome: Any) -> None:
    words = (
        "plan",
        "embed",
        facts,
        "--set",
        "budget.partitions=12",
        "--set",
        "budget.slots=3",
        "--set",
        "budget.swap=in-place",
    )
    code, out, err = outcome(*words, *RATES)
    assert code == 0, err
    chosen = next(line for line in out.splitlines() if "optimal, in place *" in line)
    assert "33" in chosen.split()
    assert "32/32" in chosen
    assert "3 of 12 partitions in memory, in-place" in out
    assert "(theorem 3)" in out
    code, out, err = outcome(*words, *RATES, "--json")
    planned = json.loads(out)
    by_kind = {(one["kind"], one["swap"]): one for one in planned["orders"]}
    assert by_kind["optimal", "in-place"]["states"] == 33
    assert by_kind["legend", "in-place"]["states"] == 36
    assert by_kind["beta", "in-place"]["states"] == 35
    in_turn, meanwhile = (by_kind["optimal", swap] for swap in ("in-turn", "in-place"))
    assert (in_turn["states"], in_turn["prefetchable"]) == (33, 0)
    assert in_turn["epoch_seconds"] > meanwhile["epoch_seconds"]
    assert [one["kind"] for one in planned["orders"] if one["chosen"]] == ["optimal"]
    assert planned["rates"]["triples_per_second"] == 1e5
    assert planned["rates"]["read_bandwidth"] == 1e9


def test_plan_embed_of_two_slots_takes_turns(facts: Path, outcome: Any) -> None:
    words = (
        "plan",
        "embed",
        facts,
        "--set",
        "budget.partitions=12",
        "--set",
        "budget.slots=2",
        *RATES,
    )
    code, out, err = outcome(*words)
    assert code == 0, err
    assert "2 of 12 partitions in memory, in-turn" in out
    assert any("optimal, in turn *" in line for line in out.splitlines())
    assert "not offered: order `legend`: 2 partitions in memory, expected 3" in out
    assert "nothing can be trained during a swap" in out


def test_plan_embed_measures_what_it_is_not_told(facts: Path, outcome: Any) -> None:
    words = (
        "--set",
        "budget.partitions=6",
        "--set",
        "budget.slots=3",
        "--dim",
        "8",
        "--negatives",
        "5",
        "--json",
    )
    code, out, err = outcome("plan", "embed", facts, *words)
    assert code == 0, err
    rates = json.loads(out)["rates"]
    assert rates["triples_measured"]
    assert rates["write_measured"]
    assert min(rates["triples_per_second"], rates["read_bandwidth"], rates["write_bandwidth"]) > 0
    assert not list(facts.glob(".bandwidth*"))


def test_the_report_shows_protocols_and_the_order(
    facts: Path, outcome: Any, tmp_path: Path
) -> None:
    assert outcome("embed", facts, *SMALL, "--out", "first")[0] == 0
    cut = ("--set", "budget.partitions=5", "--set", "budget.slots=3")
    assert outcome("embed", facts, *SMALL, *cut, "--out", "second")[0] == 0
    code, _, err = outcome("report", "first", "second", "--out", "page.html")
    assert code == 0, err
    page = Path("page.html").read_text()
    assert "<h1>Embedding by complex on facts</h1>" in page
    assert "50 entities, 3 relations, 150 triples" in page
    assert "among all 50 entities; filtered and raw" in page
    assert "buffer states" in page
    assert "Partitions moved: second" in page
    runs = load_runs([Path("first"), Path("second")])
    assert all(isinstance(run, EmbeddingRun) for run in runs)


def test_a_run_that_has_no_figures_yet_is_shown(facts: Path, outcome: Any) -> None:
    assert outcome("embed", facts, *SMALL, "--out", "run")[0] == 0
    record = json.loads(Path("run/record.json").read_text())
    Path("run/record.json").write_text(json.dumps({**record, "status": "running", "result": {}}))
    write_report(["run"], "page.html")
    assert "run (running)" in Path("page.html").read_text()
