"""Stacked convolutions against torch's own, model by model."""

import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d

from diffurn_studies.stacked.convolutions import StackedConvolution, StackedTransposedConvolution

MODELS, BATCH, INPUTS, OUTPUTS = 2, 3, 5, 7


def _randomised(layer):
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return layer


def _picture(size, channels=INPUTS):
    return torch.randn(
        MODELS,
        BATCH,
        size,
        size,
        channels,
        generator=torch.Generator().manual_seed(1),
        requires_grad=True,
    )


def _channels_first(x):
    return x.permute(0, 3, 1, 2)


def _compare(outputs, expected, leaves):
    torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(2))
    ours = torch.autograd.grad(outputs, leaves, upstream)
    theirs = torch.autograd.grad(expected, leaves, upstream)
    for own, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own, their, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("kernel", [2, 4])
@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_convolution_is_torchs_with_its_gradients(kernel, size):
    layer, x = (
        _randomised(StackedConvolution(MODELS, INPUTS, OUTPUTS, kernel, relu=False)),
        _picture(size),
    )
    expected = []
    for model in range(MODELS):
        weight = layer.weight[model].reshape(kernel, kernel, INPUTS, OUTPUTS).permute(3, 2, 0, 1)
        y = conv2d(
            _channels_first(x[model]),
            weight,
            layer.bias[model].flatten(),
            stride=2,
            padding=kernel // 2 - 1,
        )
        expected.append(y.permute(0, 2, 3, 1))
    _compare(layer(x), torch.stack(expected), [x, layer.weight, layer.bias])


@pytest.mark.parametrize("size", [2, 4, 16])
def test_a_transposed_convolution_is_torchs_with_its_gradients(size):
    layer, x = (
        _randomised(StackedTransposedConvolution(MODELS, INPUTS, OUTPUTS, relu=False)),
        _picture(size // 2),
    )
    expected = []
    for model in range(MODELS):
        weight = layer.weight[model].reshape(INPUTS, 4, 4, OUTPUTS).permute(0, 3, 1, 2)
        y = conv_transpose2d(
            _channels_first(x[model]), weight, layer.bias[model].flatten(), stride=2, padding=1
        )
        expected.append(y.permute(0, 2, 3, 1))
    _compare(layer(x), torch.stack(expected), [x, layer.weight, layer.bias])


def test_a_relu_follows_unless_it_is_left_out():
    x = _picture(4)
    for kind, extra in (
        (StackedConvolution, {"kernel": 2}),
        (StackedConvolution, {"kernel": 4}),
        (StackedTransposedConvolution, {}),
    ):
        with_relu, without = (
            _randomised(kind(MODELS, INPUTS, OUTPUTS, relu=relu, **extra)) for relu in (True, False)
        )
        assert (without(x) < 0).any()
        assert torch.equal(with_relu(x), without(x).relu())


def test_impossible_layers_are_refused():
    with pytest.raises(ValueError, match="kernel is 3"):
        StackedConvolution(1, 1, 1, 3)
    with pytest.raises(ValueError, match="7 × 8 cannot be halved"):
        StackedConvolution(1, 1, 1, 4)(torch.zeros(1, 1, 7, 8, 1))
