"""Each concept has one owner: a second copy of its code elsewhere in the package fails here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, BINDINGS = ROOT / "python/outercore", ROOT / "crates/outercore-py/src"


def owners(pattern: str) -> set[str]:
    """The files of the package with a match of the pattern."""
    files = {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}
    return {name for name, text in files.items() if re.search(pattern, text, re.MULTILINE)}


def lines_of(pattern: str, *owners: str) -> Iterator[str]:
    """Lines of the package that match, outside the files and directories of the owners."""
    wanted = re.compile(pattern)
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(owners):
            for number, line in enumerate(path.read_text().splitlines(), 1):
                if wanted.search(line):
                    yield f"{name}:{number}: {line.strip()}"


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


def test_only_the_console_prints_and_only_the_report_draws() -> None:
    assert list(lines_of(r"^\s*(import|from) rich\b|^\s*print\(", "cli/console.py")) == []
    assert list(lines_of(r"^\s*(import|from) typer\b", "cli/")) == []
    assert list(lines_of(r"^\s*(import|from) plotly\b", "runs/report/")) == []


def test_plans_have_one_view_and_flags_one_reader() -> None:
    assert list(lines_of(r"class \w*Plan\(.*dict|return \"Plan\"", "base/plan_display.py")) == []
    assert list(lines_of(r"def \w+_rows\(planned", "base/plan_display.py")) == []
    readers = r"get_parameter_source|parse_settings\(|typer\.Option\(\s*f?\"--(set|config)\""
    assert list(lines_of(readers, "cli/options.py", "base/options.py")) == []


def test_the_parts_of_an_import_have_one_owner_for_one_type_and_several() -> None:
    for pattern, files in {
        r"\bImporter\(|\badd_array\(": {"build/graph.py"},
        r"\bTripleImporter\(": {"build/triples.py"},
        r"\bDictionaryImporter\(": {"keys.py"},
        r"^class \w*(Graph|Typed)Source\b": {"source.py"},
        r"\bAddition\(": {"build/additions.py"},
        r"^def (open|split)_(split|splits|choice|columns)\b": {"splits.py"},
        r"^def (label|class)_(arrays|columns|names)\b": {"labels.py"},
        r"^def (open_texts|text_arrays)\b": {"texts.py"},
        r"^def edge_(arrays|rows)\b": {"edge_arrays.py", "format/graphbolt.py"},
        r"^def (times_of|times_in_memory|time_values)\b": {"table/times.py"},
        r"^class \w*EdgeArray\w*\b": {"table/edge_array.py"},
        r"^class Format\b": {"source.py"},
    }.items():
        found = {name for name in owners(pattern) if name.startswith("importing/")}
        assert found == {f"importing/{file}" for file in files}


def test_each_kind_of_input_file_has_one_reader() -> None:
    for pattern, owner in {
        r"_core\.(TextTable|detect_text)\(": "importing/table/text.py",
        r"\bParquetFile\(|\bunify_schemas\(": "importing/table/parquet.py",
        r"^(import|from) pickle|_Unpickler\b": "importing/table/torch_file.py",
        r"^(import|from) yaml\b": "importing/format/description.py",
        r"pa\.array\(values, from_pandas=True\)": "importing/table/exact.py",
        r"warnings\.warn\(note": "importing/format/pyg.py",
    }.items():
        assert owners(pattern) == {owner}


def test_every_format_of_a_file_is_in_the_registry() -> None:
    registry = (PACKAGE / "importing/format/registry.py").read_text()
    formats = [
        f"{Path(name).stem}.{constant}"
        for name in owners(r"^[A-Z0-9]+ = Format\(")
        for constant in re.findall(
            r"^([A-Z0-9]+) = Format\(", (PACKAGE / name).read_text(), re.MULTILINE
        )
    ]
    assert len(formats) == 13
    assert all(f"{name}," in registry for name in formats)


def test_only_files_writes_whole_files_and_npy() -> None:
    # Python's own renames, and the names of files that are not complete yet.
    renames = r"os\.(replace|rename)\(|\bpath\.(replace|rename)\(|[\"'`.](tmp|partial)[\"'`]"
    # NumPy's writers of `.npy`, and the header that our writer makes.
    arrays = r"(?<!`)np\.save\(|write_array|open_memmap|lib\.format|\bnpy_header\b|x93NUMPY\\x0"
    assert list(lines_of(f"{renames}|{arrays}", "files/")) == []
    # Mapped readers; the core's result without a name is below `files`.
    mapped = r"np\.load\(.*mmap_mode"
    assert list(lines_of(mapped, "files/", "base/native.py")) == []
    # A sync anywhere else than in a writer measures the device.
    assert list(lines_of(r"\bfsync\(", "files/", "embedding/forecast.py")) == []


def test_only_runs_decides_about_resuming_and_opens_records() -> None:
    assert list(lines_of("resumed with its own options", "runs/resume.py")) == []
    assert list(lines_of(r"are done, expected more|epochs >= ", "runs/")) == []
    assert list(lines_of(r'"device_profile":|"machine":', "runs/")) == []
    assert list(lines_of("has another text", "runs/custom_code.py")) == []


def test_values_cross_to_the_core_as_values() -> None:
    """JSON is for files, records and HTTP; `values.rs` turns values of the core into Python's."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and _is_of_core_as_json(call)
    ]
    text_of_json = re.compile(r"serde_json::(?:from_(?:str|slice|reader)|to_(?:string|vec|writer))")
    found += [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted(BINDINGS.rglob("*.rs"))
        for match in text_of_json.finditer(path.read_text())
    ]
    assert not found
    conversions = ("pythonize", "serde_json::from_value")
    converters = {
        path.name
        for path in BINDINGS.rglob("*.rs")
        if any(name in path.read_text() for name in conversions)
    }
    assert converters == {"values.rs"}


def _is_of_core_as_json(call: ast.Call) -> bool:
    """Whether a call has both text of JSON and the core, one around the other."""
    nodes = list(ast.walk(call))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    of_core = "_core" in attributes or not names.isdisjoint({"_core", "native"})
    return of_core and not attributes.isdisjoint({"loads", "dumps"})


def test_only_the_schema_knows_how_the_manifest_names_things() -> None:
    manifest = r'"(roles|provenance)"|graph\.manifest\b'
    # `outercore info --json` prints the whole manifest.
    assert list(lines_of(manifest, "data/schema.py", "data/data_set.py", "cli/info.py")) == []


def test_loaders_have_one_list_of_options_and_one_table_of_values() -> None:
    # The public signature repeats the options; whatever is behind it passes `LoaderOptions`.
    public = ("loading/options.py", "loading/loader.py", "training/", "embedding/", "serving/")
    assert list(lines_of(r"^\s+look_ahead(: int)? ?=|look_ahead=look_ahead", *public)) == []
    assert owners(r"^RESERVED\b") == owners(r"\"dst_neg_index\"") == {"data/batch_arrays.py"}
    # The core divides budgets and knows the cost of reads.
    formulas = r"seconds_per_(request|byte)|\bbudget // \d|PINNED"
    assert list(lines_of(formulas, "embedding/", "cli/", "analytics/")) == []


def test_options_are_declared_by_option_and_reports_draw_by_one_set_of_charts() -> None:
    # Typer's own for a callback, and for names that a parameter of Python cannot have.
    special = ("cli/__init__.py", "cli/memory_server.py", "cli/import_.py", "cli/embed.py")
    others = ("cli/options.py", "cli/plan.py", "cli/embedding.py")
    assert list(lines_of(r"typer\.Option\(", *special, *others)) == []
    assert owners(r"\.add_bar\(") <= {"runs/report/charts.py", "runs/report/embedding.py"}
    assert owners(r"<table class") == {"runs/report/elements.py"}


def test_a_training_has_one_schema_one_identity_and_one_base_of_networks() -> None:
    assert owners(r"\bSchema\.of_nodes\(") == {"data/many_graphs.py"}
    identity = (PACKAGE / "training/run_directory.py").read_text()
    assert identity.count("Identity.of(") == 1
    works = r"^    def prepare\(self, timeline"
    assert [line.split(":")[0] for line in lines_of(works)] == ["training/work.py"]
    assert owners(r"^class (Model|Network|LinkModel|TypedNetwork)\(nn\.Module\)") == {
        "training/models.py"
    }
    assert owners(r"\bmmap_mode=") == {"base/native.py"}
    assert owners(r"metrics_of_ranks\(1 \+|mrr_optimistic") == {"training/metrics.py"}


def test_scores_of_embeddings_have_one_gradient_and_runs_one_reader_of_their_inputs() -> None:
    models = {"embedding/gradients/models.py"}
    assert owners(r"autograd\.grad\(") == models
    assert owners(r"def \w+_backward\(") == set()
    assert owners(r"\.norm == [12]") == {"embedding/config.py"}
    assert owners(r"from_data is not None and start_from is None") == {"embedding/preparation.py"}
    assert owners(r"sum\(dim=1, dtype=torch\.int32\)") == {"embedding/ranking/ranks.py"}


def test_rust_names_options_as_values_and_the_command_line_renders_them() -> None:
    named = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(ROOT.glob("crates/*/src/**/*.rs"))
        if path.name != "tests.rs" and "outercore-testkit" not in path.parts
        for number, line in enumerate(path.read_text().partition("#[cfg(test)]")[0].splitlines(), 1)
        if re.search(r"--[a-z]", line.partition("//")[0]) and "pip install" not in line
    ]
    assert named == []


def test_only_the_command_line_makes_commands_of_hints() -> None:
    translators = r"re\.\w+\(.*(--\[|hint: )|[\"']`--[\w-]+`?[\"'] (not )?in "
    assert list(lines_of(translators, "errors.py", "cli/")) == []
    assert owners(r"_NOTATION\b") == {"errors.py"}
    assert owners(r"^def with_command\b") == {"cli/next_step.py"}
