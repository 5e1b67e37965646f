"""Convert a workload folder to a GraphBolt `OnDiskDataset`; features are shared, not copied.

    <dgl environment>/bin/python benchmarks/peers/dgl_prepare.py WORKLOAD OUT

GraphBolt preprocesses the topology. The features and the split are added to its output as links to
the workload's files. The preprocessing would copy them, but all programs must read the same file.
"""

import json
import shutil
import sys
from pathlib import Path

import dgl.graphbolt as gb
import numpy as np
import yaml


def prepare(workload: Path, out: Path) -> Path:
    """Build `out` unless it is complete; returns it."""
    if (out / "ready").exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    about = json.loads((workload / "workload.json").read_text())
    edges = np.load(workload / "edges.npy", mmap_mode="r")
    np.save(out / "edges.npy", np.ascontiguousarray(edges.T))
    described = {
        "dataset_name": about["name"],
        "graph": {
            "nodes": [{"num": 1 << about["scale"]}],
            "edges": [{"format": "numpy", "path": "edges.npy"}],
        },
    }
    (out / "metadata.yaml").write_text(yaml.dump(described))
    made = Path(gb.preprocess_ondisk_dataset(str(out)))
    (out / "edges.npy").unlink()

    seeds = np.load(workload / "splits.npz")["train"].astype(np.int32)
    np.save(made.parent / "train.npy", seeds)
    entered = yaml.safe_load(made.read_text())
    entered["tasks"] = [
        {
            "name": "node_classification",
            "train_set": [
                {
                    "data": [
                        {
                            "name": "seed_nodes",
                            "format": "numpy",
                            "path": "preprocessed/train.npy",
                            "in_memory": True,
                        }
                    ]
                }
            ],
        }
    ]
    if about["width"]:
        (made.parent / "x.npy").symlink_to((workload / "x.npy").resolve())
        entered["feature_data"] = [
            {
                "domain": "node",
                "name": "x",
                "format": "numpy",
                "path": "preprocessed/x.npy",
                "in_memory": False,
            }
        ]
    made.write_text(yaml.dump(entered))
    (out / "ready").touch()
    return out


if __name__ == "__main__":
    print(prepare(Path(sys.argv[1]), Path(sys.argv[2])))
