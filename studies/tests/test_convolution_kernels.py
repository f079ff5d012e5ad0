"""Triton kernels against the plain path, in small whole numbers: every sum is exact, so results
must be equal.
"""

import os

import pytest
import torch

from diffurn_studies.stacked.convolutions import StackedConvolution, StackedTransposedConvolution

pytest.importorskip("triton", reason="the kernels need triton, which is not installed")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip(
        "the kernels need a CUDA device, or TRITON_INTERPRET=1 to run without one",
        allow_module_level=True,
    )

from diffurn_studies.stacked import convolution_kernels as kernels  # noqa: E402 (without triton there is nothing to import)

pytestmark = pytest.mark.needs("triton")
DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPES = (
    [torch.float32] if INTERPRETED else [torch.float32, torch.bfloat16]
)  # the interpreter multiplies bfloat16 as if it were integers
MODELS = 2

# inputs, outputs, size of the larger picture, pictures (three do not fill a block of rows), ReLU
CONVOLUTIONS = [
    (3, 32, 64, 1, True),
    (32, 32, 32, 1, True),
    (5, 7, 8, 3, False),
    (5, 7, 8, 3, True),
]
TRANSPOSED = [
    (64, 64, 8, 3, True),
    (64, 32, 16, 3, True),
    (32, 32, 32, 1, True),
    (32, 3, 64, 1, False),
    (7, 5, 8, 3, False),
    (7, 5, 8, 3, True),
]


def _whole(*shape, seed=0):
    """From -2 to 2, so that products and their sums have no rounding error in any dtype."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, shape, generator=generator).to(torch.get_default_dtype())


def _compare(kernel, layer, x, relu, dtype):
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(_whole(*parameter.shape, seed=seed))
    expected = layer(x)
    upstream = _whole(*expected.shape, seed=4)
    leaves = [x, *layer.parameters()] if x.requires_grad else list(layer.parameters())
    wanted = torch.autograd.grad(expected, leaves, upstream)

    own_x = x.detach().to(DEVICE, dtype).requires_grad_(x.requires_grad)
    weight, bias = (
        parameter.detach().to(DEVICE, torch.float32).requires_grad_()
        for parameter in layer.parameters()
    )
    y = kernel(own_x, weight, bias, relu)
    found = torch.autograd.grad(
        y, [own_x, weight, bias] if x.requires_grad else [weight, bias], upstream.to(DEVICE, dtype)
    )
    assert y.dtype == dtype
    torch.testing.assert_close(y.cpu(), expected.to(dtype), rtol=0, atol=0)
    for own, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(own.cpu(), want.to(own.dtype), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("needs_gradient", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "size", "batch", "relu"), CONVOLUTIONS)
def test_convolutions_are_those_of_the_plain_path(
    inputs, outputs, size, batch, relu, needs_gradient, dtype
):
    x = _whole(MODELS, batch, size, size, inputs, seed=3).requires_grad_(needs_gradient)
    _compare(
        kernels.convolved,
        StackedConvolution(MODELS, inputs, outputs, kernel=4, relu=relu),
        x,
        relu,
        dtype,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inputs", "outputs", "size", "batch", "relu"), TRANSPOSED)
def test_transposed_convolutions_are_those_of_the_plain_path(
    inputs, outputs, size, batch, relu, dtype
):
    x = _whole(MODELS, batch, size // 2, size // 2, inputs, seed=3).requires_grad_()
    _compare(
        kernels.transposed,
        StackedTransposedConvolution(MODELS, inputs, outputs, relu),
        x,
        relu,
        dtype,
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile's own making
@pytest.mark.filterwarnings(
    "ignore:TensorFloat32 tensor cores:UserWarning"
)  # an advice for newer devices
def test_layers_compile_as_one_graph():
    def there_and_back(x, *parameters):
        return (
            kernels.transposed(kernels.convolved(x, *parameters[:2], True), *parameters[2:], False)
            .square()
            .sum()
        )

    x = _whole(MODELS, 3, 8, 8, 3, seed=3).to(DEVICE, torch.float32)
    shapes = [(MODELS, 48, 16), (MODELS, 1, 1, 1, 16), (MODELS, 16, 48), (MODELS, 1, 1, 1, 3)]
    parameters = [
        _whole(*shape, seed=seed).to(DEVICE, torch.float32).requires_grad_()
        for seed, shape in enumerate(shapes)
    ]
    compiled = torch.compile(
        there_and_back, fullgraph=True, backend="aot_eager" if INTERPRETED else "inductor"
    )
    expected = torch.autograd.grad(there_and_back(x, *parameters), parameters)
    for own, want in zip(
        torch.autograd.grad(compiled(x, *parameters), parameters), expected, strict=True
    ):
        torch.testing.assert_close(own, want)


def test_shapes_that_do_not_belong_together_are_refused():
    x, bias = torch.zeros(2, 3, 8, 8, 5, dtype=torch.float32), torch.zeros(2, 1, 1, 1, 7)
    for layer, weight in (
        (kernels.convolved, (2, 5, 7)),
        (kernels.transposed, (2, 5, 7)),
        (kernels.convolved, (1, 80, 7)),
    ):
        with pytest.raises(ValueError, match="do not belong together"):
            layer(x, torch.zeros(weight), bias, True)
    with pytest.raises(ValueError, match="7 × 8 cannot be halved"):
        kernels.convolved(x[:, :, :7], torch.zeros(2, 80, 7), bias, True)
    with pytest.raises(ValueError, match="must be bfloat16"):
        kernels.convolved(x.double(), torch.zeros(2, 80, 7), bias, True)
