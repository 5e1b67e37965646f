"""Real graphs with several types, from their files alone."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

DATA = Path(os.environ.get("OUTERCORE_DATA") or Path(__file__).parents[3] / "shared" / "data")
DBLP = DATA / "hetero-dblp"


@pytest.mark.skipif(not DBLP.exists(), reason="the data set is not here")
def test_dblp_is_imported_and_learnt_by_the_command_line(outcome: Any, tmp_path: Path) -> None:
    splits = {"train": "train_20", "valid": "val_20", "test": "test_20"}
    code, out, _ = outcome(
        *("import", "--nodes", f"author={DBLP / 'a_feat.npz'}"),
        *("--nodes", f"paper={DBLP / 'p_feat.npz'}", "--feature-dtype", "float16"),
        *("--nodes", "conference=20", "--nodes", "term=7723"),
        *("--edges", f"paper,by,author={DBLP / 'pa.txt.xz'}"),
        *("--edges", f"paper,in,conference={DBLP / 'pc.txt.xz'}"),
        *("--edges", f"paper,has,term={DBLP / 'pt.txt.xz'}"),
        *("--add-reverse", "--label", f"author={DBLP / 'labels.npy'}"),
        *(
            part
            for name, file in splits.items()
            for part in ("--split", f"{name}={DBLP / file}.npy")
        ),
        *("--out", tmp_path / "dblp", "--json"),
    )
    assert code == 0
    assert json.loads(out)["edges"] == 2 * (19_645 + 14_328 + 85_810)
    code, _, _ = outcome(
        *("train", tmp_path / "dblp", "--model", "rgcn", "--fanout", "10,10", "--hidden", "32"),
        *("--epochs", "8", "--patience", "0", "--metric", "f1_macro", "--memory", "1GiB"),
        *("--set", "model.norm=layer", "--set", "run.validation=sampled"),
        *("--out", tmp_path / "run"),
    )
    assert code == 0
    scores = json.loads((tmp_path / "run/record.json").read_text())["result"]["scores"]
    assert scores["test"] > 0.6
