"""Parts that stacks of models share: layers, batches, steps that are replayed, and Adam with a rate
for each model.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from diffurn_studies.stacked.modules import (
    StackedLinear,
    glorot_,
    half_copies,
    stacked_layers,
    through,
)
from diffurn_studies.stacked.steps import Batches, Replayed, StackedAdam


def test_a_stacked_layer_is_one_layer_per_model() -> None:
    layer = StackedLinear(3, 5, 2)
    glorot_(layer.weight, [1, 2, 1])
    x = torch.randn(3, 4, 5)
    for s in range(3):
        torch.testing.assert_close(layer(x)[s], x[s] @ layer.weight[s])
    assert torch.equal(layer.weight[0], layer.weight[2])
    assert layer.weight.abs().max() <= math.sqrt(6 / 7)
    assert not torch.equal(layer.weight[0], layer.weight[1])


def test_the_padding_of_half_copies_does_not_change_results() -> None:
    layers = stacked_layers(2, (5, 7, 3))
    for layer in layers:
        glorot_(layer.weight, [1, 2])
        torch.nn.init.normal_(layer.bias)
    copies, x = half_copies(layers), torch.randn(2, 4, 5)
    assert copies["0.weight"].shape == (2, 8, 8)
    hidden = torch.relu(x.bfloat16() @ layers[0].weight.bfloat16() + layers[0].bias.bfloat16())
    expected = (hidden @ layers[1].weight.bfloat16() + layers[1].bias.bfloat16()).double()

    def result() -> Tensor:
        return torch.func.functional_call(
            _Through(layers), {f"layers.{name}": copy for name, copy in copies.items()}, x
        )

    torch.testing.assert_close(
        result(), expected, rtol=0.02, atol=0.02
    )  # other roundings to 8 bits
    names, parameters = zip(*layers.named_parameters(), strict=True)
    optimizer = StackedAdam(
        parameters, torch.full((2,), 0.1), copies=[copies[name] for name in names]
    )
    for _ in range(5):
        optimizer.step(result().square().sum())
    for name, parameter in layers.named_parameters():
        own = torch.zeros_like(copies[name])
        own[tuple(slice(size) for size in parameter.shape)] = parameter.detach().bfloat16()
        assert torch.equal(copies[name].detach(), own), name


class _Through(torch.nn.Module):
    def __init__(self, layers: torch.nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        return through(self.layers, x)


def test_an_epoch_shows_every_item_of_a_models_own_data_once() -> None:
    items = [torch.arange(0, 50), torch.arange(100, 137)]
    batches = Batches(items, [0, 1], batch_size=4, block=7, normals=2, gumbels=1)
    seen: list[list[int]] = [[], []]
    for _ in range(12):
        batches.refill(7)
        for _ in range(7):
            numbers, normal, gumbel = batches.next()
            assert normal.shape == (2, 4, 2)
            assert gumbel.isfinite().all()
            for s in range(2):
                seen[s] += numbers[s].tolist()
    for s, own in enumerate(items):
        per_epoch = len(own) // 4 * 4
        for start in range(0, len(seen[s]) - per_epoch, per_epoch):
            epoch = seen[s][start : start + per_epoch]
            assert len(set(epoch)) == per_epoch
            assert set(epoch) <= set(own.tolist())
    assert seen[0][:48] != seen[0][48:96]


def test_batches_do_not_depend_on_neighbours_and_can_be_resumed() -> None:
    alone = Batches([torch.arange(20)], [5], 3, 4, normals=2, gumbels=2)
    beside = Batches([torch.arange(9), torch.arange(20)], [4, 5], 3, 4, normals=2, gumbels=2)
    for _ in range(3):
        alone.refill(4)
        beside.refill(4)
        for one, many in zip(alone.next(), beside.next(), strict=True):
            assert torch.equal(one[0], many[1])
    resumed = Batches([torch.arange(20)], [77], 3, 4, normals=2, gumbels=2)
    resumed.load_state(alone.state())
    alone.refill(3)
    resumed.refill(3)
    assert all(
        torch.equal(one, other) for one, other in zip(alone.next(), resumed.next(), strict=True)
    )


def test_gumbel_noise_follows_gumbels_law() -> None:
    """Kolmogorov-Smirnov distance of 40,000 variates; false alarm about 1e-5."""
    batches = Batches([torch.arange(100)], [0], 100, 40, normals=1, gumbels=10)
    batches.refill(40)
    values = batches.gumbel.flatten().sort().values
    law = torch.exp(-torch.exp(-values))
    ranks = torch.arange(1, len(values) + 1) / len(values)
    assert (law - ranks).abs().max() < 2.5 / math.sqrt(len(values))


def test_a_block_has_a_limit_and_data_must_fill_a_batch() -> None:
    with pytest.raises(ValueError, match="does not fill"):
        Batches([torch.arange(3)], [0], 4, 4, 1, 1)
    with pytest.raises(ValueError, match="1 to 4 steps"):
        Batches([torch.arange(9)], [0], 4, 4, 1, 1).refill(5)


def test_a_step_runs_as_often_as_asked(device: torch.device) -> None:
    total = torch.zeros((), device=device)
    replayed = Replayed(lambda: total.add_(1), device)
    replayed.run(2)
    replayed.run(5)
    assert float(total) == 7


def test_stacked_adam_is_torchs_adam_with_a_rate_for_each_model():
    generator = torch.Generator().manual_seed(0)
    rates = torch.tensor([1e-2, 1e-3])
    stacked = torch.nn.Parameter(torch.randn(2, 3, 4, generator=generator))
    single = [torch.nn.Parameter(own.detach().clone()) for own in stacked]
    ours, theirs = (
        StackedAdam([stacked], rates),
        [torch.optim.Adam([own], lr=float(rate)) for own, rate in zip(single, rates, strict=True)],
    )
    for _ in range(30):
        x = torch.randn(4, generator=generator)
        ours.step((stacked @ x).sin().sum())
        for own, optimizer in zip(single, theirs, strict=True):
            optimizer.zero_grad()
            (own @ x).sin().sum().backward()
            optimizer.step()
    torch.testing.assert_close(
        stacked.detach(), torch.stack(list(single)).detach(), rtol=1e-10, atol=1e-12
    )


def test_stacked_adam_takes_gradients_from_copies_and_lets_them_follow():
    generator = torch.Generator().manual_seed(1)
    parameter = torch.nn.Parameter(torch.randn(2, 3, 4, generator=generator))
    single = torch.nn.Parameter(parameter.detach().clone())
    copy = parameter.detach().bfloat16().requires_grad_()
    ours, theirs = (
        StackedAdam([parameter], torch.full((2,), 1e-3), copies=[copy]),
        torch.optim.Adam([single], lr=1e-3),
    )
    for _ in range(30):
        loss = (copy.double() * torch.randn(2, 3, 4, generator=generator)).sin().sum()
        (gradient,) = torch.autograd.grad(loss, copy, retain_graph=True)
        single.grad = gradient.double()
        ours.step(loss)
        theirs.step()
    torch.testing.assert_close(parameter.detach(), single.detach(), rtol=1e-10, atol=1e-12)
    assert torch.equal(copy.detach(), parameter.detach().bfloat16())
