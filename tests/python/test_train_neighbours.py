"""Sums over neighbours: the sparse products give what a loop over the arcs does, to the bit."""

from __future__ import annotations

import pytest
import torch

from outercore.training import ModelConfig
from outercore.training.models import Arcs, Hop, build_model

TARGETS, SOURCES, WIDTH = 5, 9, 3


def random_arcs(count: int, seed: int, *, by_target: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(SOURCES, (count,), generator=generator)
    # The last target has no arc.
    target = torch.randint(TARGETS - 1, (count,), generator=generator)
    return torch.stack([source, target.sort().values if by_target else target])


@pytest.mark.parametrize("count", [0, 1, 40])
@pytest.mark.parametrize("by_target", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_sums_and_gradients_are_those_of_a_loop(
    count: int, by_target: bool, weighted: bool
) -> None:
    arcs = random_arcs(count, 3, by_target=by_target)
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(SOURCES, WIDTH, generator=generator, requires_grad=True)
    weight = torch.rand(count, generator=generator) if weighted else None
    slope = torch.randn(TARGETS, WIDTH, generator=generator)
    found = Arcs(arcs, TARGETS, SOURCES, weight).sum(x)
    found.backward(slope)
    summed, gradient = torch.zeros(TARGETS, WIDTH), torch.zeros(SOURCES, WIDTH)
    for place, (source, target) in enumerate(arcs.T.tolist()):
        by = 1.0 if weight is None else weight[place]
        summed[target] += by * x.detach()[source]
        gradient[source] += by * slope[target]
    torch.testing.assert_close(found.detach(), summed, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(x.grad, gradient, rtol=1e-6, atol=1e-6)
    assert x.grad is not None
    if not weighted:
        # A product and a sum may be rounded together; sums alone are the same to the bit.
        assert torch.equal(found.detach(), summed)
        assert torch.equal(x.grad, gradient)


@pytest.mark.parametrize("kind", ["sage", "gin"])
def test_a_layer_is_the_convolution_of_pyg(kind: str) -> None:
    torch.manual_seed(1)
    network = build_model(ModelConfig(kind=kind, hidden=4), 1, WIDTH, 2)  # type: ignore[arg-type]
    arcs, x = random_arcs(40, 5, by_target=True), torch.randn(SOURCES, WIDTH)
    degrees = torch.bincount(arcs[1], minlength=SOURCES).float()
    hop = Hop(arcs, TARGETS, torch.arange(SOURCES), degrees)
    expected = network.gnn.convs[0]((x, x[:TARGETS]), arcs, size=(SOURCES, TARGETS))
    torch.testing.assert_close(network.layer(0, x, hop), expected, rtol=1e-6, atol=1e-6)


def test_gcn_is_the_convolution_of_pyg_over_a_whole_graph() -> None:
    from torch_geometric.nn import GCNConv

    torch.manual_seed(1)
    network = build_model(ModelConfig(kind="gcn", hidden=4), 1, WIDTH, 2)
    expected = GCNConv(WIDTH, 2)
    expected.load_state_dict(network.gnn.convs[0].state_dict())
    arcs = random_arcs(40, 6, by_target=True)
    arcs = arcs[:, (arcs[0] != arcs[1])]
    x, degrees = torch.randn(SOURCES, WIDTH), torch.bincount(arcs[1], minlength=SOURCES).float()
    hop = Hop(arcs, SOURCES, torch.arange(SOURCES), degrees)
    torch.testing.assert_close(network.layer(0, x, hop), expected(x, arcs), rtol=1e-5, atol=1e-6)
