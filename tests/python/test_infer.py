"""The core's inference against the networks as PyTorch computes them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

from outercore import _core
from outercore.errors import InternalError
from outercore.training import ModelConfig, SamplingConfig, TrainConfig
from outercore.training import export as check
from outercore.training.export import export_model
from outercore.training.model_files import save_model
from outercore.training.models import build_model
from outercore.training.tasks import Task

FEATURES, OUTPUTS = 11, 5
KINDS = ("sage", "gcn", "gin", "gat", "mlp")
VARIANTS = list(
    itertools.product(("none", "batch", "layer"), ("none", "cat", "max"), (False, True))
)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_the_network_with_every_part(kind: str, tmp_path: Path) -> None:
    for number, (norm, jumping, residual) in enumerate(VARIANTS):
        heads, fanout = (1, 3, 4)[number % 3], ((4,), (3, -1), (3, 2, 4))[number // 3 % 3]
        shape = ModelConfig(
            kind=kind,  # type: ignore[arg-type]
            hidden=6 * heads,
            heads=heads,
            norm=norm,  # type: ignore[arg-type]
            jumping=jumping,  # type: ignore[arg-type]
            residual=residual,
        )
        model = network(shape, len(fanout), number)
        exported = tmp_path / str(number)
        config = TrainConfig(model=shape, sampling=SamplingConfig(fanout=fanout))
        export(model, config, exported)
        batch = check.example(model, seed=number)
        found = check.core_logits(exported, model, batch)
        error = check.difference(found, check.network_logits(model, batch))
        assert error < check.TOLERANCE, f"{shape}: {error}"


def test_an_export_that_says_something_else_leaves_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "core_logits", lambda *_: torch.full((20, OUTPUTS), 9.0).numpy())
    shape = ModelConfig(kind="sage", hidden=6)
    config = TrainConfig(model=shape, sampling=SamplingConfig(fanout=(3, 2)))
    with pytest.raises(InternalError, match="its logits differ by"):
        export(network(shape, 2, 0), config, tmp_path / "out")
    assert not (tmp_path / "out" / "model.json").exists()
    with pytest.raises(Exception, match=r"model\.json"):
        _core.Model(str(tmp_path / "out"))


def network(shape: ModelConfig, layers: int, seed: int) -> torch.nn.Module:
    """A network whose weights hide nothing: fresh biases and eps would be 0."""
    torch.manual_seed(seed)
    model = build_model(shape, layers, FEATURES, OUTPUTS)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.add_(torch.randn_like(tensor).mul_(0.3))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            assert module.running_var is not None
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


def export(model: torch.nn.Module, config: TrainConfig, out: Path) -> None:
    trained = out.with_name(f"{out.name}-trained")
    task = Task("classes", OUTPUTS, "accuracy")
    save_model(trained, model, model.state_dict(), task, config, {})  # type: ignore[arg-type]
    export_model(trained, out)
