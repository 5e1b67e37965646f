"""Writes docs/options.md from the configurations of the jobs: `python docs/options.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outercore.analytics.config import RunConfig
from outercore.analytics.scheduling.measure import TuneConfig
from outercore.base.options import Field, fields
from outercore.embedding.config import EmbedConfig
from outercore.training.config import TrainConfig

PAGE = Path(__file__).with_suffix(".md")
_JOBS: tuple[tuple[str, type[Any]], ...] = (
    ("train", TrainConfig),
    ("embed", EmbedConfig),
    ("run", RunConfig),
    ("tune", TuneConfig),
)
_HEAD = """# Options

```
outercore train papers --lr 0.01 --set model.norm=batch --set budget.threads=4
outercore train papers --config options.json --epochs 40
```

Each option of a job is a field of its configuration. It is set in three ways:

- on the command line by its flag, or by `--set` with its path;
- from Python by its keyword: `oc.train("papers", learning_rate=0.01, norm="batch", threads=4)`;
- in a JSON file for `--config`: `{"model": {"norm": "batch"}, "budget": {"threads": 4}}`. The
  `config.json` of a run is such a file.

Flags and keywords override the file. `outercore plan JOB` takes the options of the job.

For `run`, the keywords are those of `oc.pagerank` and the other algorithms. `tune` is a command
only, without `--config`.

This page is written by `docs/options.py`.
"""


_TABLE = ("| path | flag | keyword | default | what |", "|---|---|---|---|---|")


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for job, kind in _JOBS:
        parts += [f"## {job}\n", *_TABLE]
        parts += [*(_row(field) for field in fields(kind)), ""]
    return "\n".join(parts)


def _row(field: Field) -> str:
    flag = f"`{field.flag}`" if field.option.common else ""
    short = f", `{field.option.short}`" if field.option.short else ""
    # A bar ends a cell of a table.
    text = field.option.help.replace("|", "\\|")
    cells = (f"`{field.path}`", flag + short, f"`{field.name}`", _default(field.default), text)
    return f"| {' | '.join(cells)} |"


def _default(value: Any) -> str:
    match value:
        case None | () | "":
            return ""
        case bool():
            return f"`{str(value).lower()}`"
        case tuple():
            return f"`{','.join(map(str, value))}`"
    return f"`{value}`"


if __name__ == "__main__":
    PAGE.write_text(page())
