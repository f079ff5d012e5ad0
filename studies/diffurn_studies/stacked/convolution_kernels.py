r"""Triton kernels for the 4 × 4 convolutions of `convolutions`, which write no window to memory.

A layer relates *pictures* ``(S, B, H, W, P)`` and *places* ``(S, B, H/2, W/2, Q)`` by weights ``(S,
16 P, Q)``: the window of place (i, j) holds pixel (2i + a − 1, 2j + e − 1) at entry (a, e). Three
products compute both kinds of layers and their gradients:

- *to places* sums over the pixels in the window of a place: a convolution, and the gradient of a
  transposed convolution with respect to its input;
- *to picture* sums over the places whose windows hold a pixel: a transposed convolution, and the
  gradient of a convolution with respect to its input;
- *of weights* sums over all places: the gradient of either with respect to its weights.

Sums are in float32 for every dtype of the pictures and have a fixed order, so results are
reproducible bit for bit.
"""

# Type checkers cannot read Triton kernels, and triton may be missing.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False, warn-return-any=False
# mypy: disable-error-code="arg-type, assignment, call-arg, misc, import-not-found, import-untyped"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

# Launch parameters of each kernel by (P, Q), tuned for the layers of the studies; other shapes take
# the entry None.
#   ROWS      places per program; in the gradient of the weights, places per iteration
#   INNER     terms of the sum per iteration
#   TOGETHER  compute the pixels of all four parities in one program, with zeros among the weights;
#             this pays for small P, which is padded in any case
#   COLUMNS   rows of the weights per program; each program sums over PART places
# With one stage, loads go through the L1 cache, where neighbouring windows overlap; with more
# stages, loads are prefetched and bypass that cache.
TO_PLACES: dict[Any, dict[str, Any]] = {
    (3, 32): {"ROWS": 128, "INNER": 64, "num_warps": 4, "num_stages": 1},
    (32, 32): {"ROWS": 128, "INNER": 32, "num_warps": 4, "num_stages": 4},
    (32, 64): {"ROWS": 128, "INNER": 64, "num_warps": 4, "num_stages": 3},
    (64, 64): {"ROWS": 64, "INNER": 64, "num_warps": 4, "num_stages": 3},
    None: {"ROWS": 64, "INNER": 32, "num_warps": 4, "num_stages": 2},
}
TO_PICTURE: dict[Any, dict[str, Any]] = {
    (3, 32): {"ROWS": 256, "INNER": 32, "TOGETHER": True, "num_warps": 8, "num_stages": 1},
    (32, 32): {"ROWS": 128, "INNER": 32, "TOGETHER": False, "num_warps": 4, "num_stages": 4},
    (32, 64): {"ROWS": 128, "INNER": 64, "TOGETHER": True, "num_warps": 8, "num_stages": 3},
    (64, 64): {"ROWS": 64, "INNER": 64, "TOGETHER": False, "num_warps": 4, "num_stages": 3},
    None: {"ROWS": 64, "INNER": 32, "TOGETHER": False, "num_warps": 4, "num_stages": 2},
}
OF_WEIGHTS: dict[Any, dict[str, Any]] = {
    (3, 32): {"ROWS": 128, "COLUMNS": 64, "PART": 2048, "num_warps": 4, "num_stages": 1},
    (32, 32): {"ROWS": 64, "COLUMNS": 128, "PART": 2048, "num_warps": 4, "num_stages": 3},
    (32, 64): {"ROWS": 64, "COLUMNS": 128, "PART": 1024, "num_warps": 4, "num_stages": 3},
    (64, 64): {"ROWS": 64, "COLUMNS": 128, "PART": 512, "num_warps": 4, "num_stages": 3},
    None: {"ROWS": 32, "COLUMNS": 64, "PART": 1024, "num_warps": 4, "num_stages": 2},
}
GATED_ROWS, GATED_PART = 64, 1024

# For float32: three products in tensor cores, nearly exact. Other dtypes are not affected.
PRECISION = tl.constexpr("tf32x3")


@triton.jit
def _seen(
    picture,
    m,
    k,
    rows,
    H: tl.constexpr,
    W: tl.constexpr,
    P: tl.constexpr,
    RUN: tl.constexpr,
    GRAIN: tl.constexpr,
):
    """Entry k of the windows of places m. A row of a window is contiguous in memory (a run). For
    odd P the read starts one value earlier, because grains are aligned.
    """
    FIRST: tl.constexpr = P + P % 2
    i, j = m // (W // 2) % (H // 2), m % (W // 2)
    row = 2 * i[:, None] - 1 + (k // RUN)[None, :]
    grain = (j * (2 * P // GRAIN))[:, None] + (k // GRAIN % (RUN // GRAIN) - FIRST // GRAIN)[
        None, :
    ]
    inside = (row >= 0) & (row < H) & (grain >= 0) & (grain < W * P // GRAIN) & (m < rows)[:, None]
    pixel = 4 * m - 2 * j - W  # (2i - 1, 2j), counted through the pictures
    return tl.load(
        picture + pixel[:, None] * P + (k // RUN * (W * P) + k % RUN - FIRST)[None, :],
        mask=inside,
        other=0.0,
    )


@triton.jit
def _row_of_weights(k, P: tl.constexpr, RUN: tl.constexpr):
    """The row of the weights for k, and whether it exists: values read beside the window have
    none.
    """
    entry = k % RUN - P % 2
    return k // RUN * (4 * P) + entry, (entry >= 0) & (entry < 4 * P)


@triton.jit
def _finished(total, bias, n, model, N: tl.constexpr, WITH_BIAS: tl.constexpr, RELU: tl.constexpr):
    if WITH_BIAS:
        total += tl.load(bias + model * N + n % N)[None, :]
    if RELU:
        total = tl.where(total < 0, 0.0, total)  # keeps NaN
    return total


@triton.jit
def _to_places_kernel(
    picture, weight, bias, places, rows,
    H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, K_STRIDE: tl.constexpr, Q_STRIDE: tl.constexpr,
    RUN: tl.constexpr, GRAIN: tl.constexpr, WITH_BIAS: tl.constexpr, RELU: tl.constexpr, Q_BLOCK: tl.constexpr,
    ROWS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    model = tl.program_id(1).to(tl.int64)
    m, q = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, Q_BLOCK)
    picture += model * rows * (4 * P)
    weight += model * (16 * P * Q)
    total = tl.zeros((ROWS, Q_BLOCK), tl.float32)
    for start in range(0, 4 * RUN, INNER):
        k = start + tl.arange(0, INNER)
        x = _seen(picture, m, k, rows, H, W, P, RUN, GRAIN)
        row, exists = _row_of_weights(k, P, RUN)
        w = tl.load(
            weight + row[:, None] * K_STRIDE + q[None, :] * Q_STRIDE,
            mask=exists[:, None] & (q < Q)[None, :],
            other=0.0,
        )
        total = tl.dot(x, w, total, input_precision=PRECISION)
    total = _finished(total, bias, q, model, Q, WITH_BIAS, RELU)
    target = places + model * rows * Q + m[:, None] * Q + q[None, :]
    tl.store(target, total.to(places.dtype.element_ty), mask=(m < rows)[:, None] & (q < Q)[None, :])


@triton.jit
def _to_picture_kernel(
    places, weight, bias, picture, rows,
    H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, K_STRIDE: tl.constexpr, Q_STRIDE: tl.constexpr,
    WITH_BIAS: tl.constexpr, RELU: tl.constexpr, P_BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr, ROWS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """A pixel (2i + α, 2j + β) of one parity (α, β) lies in 2 × 2 windows; the pixels of all four
    parities together lie in 3 × 3.
    """
    model = tl.program_id(2).to(tl.int64)
    m, n = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, P_BLOCK)
    span: tl.constexpr = 3 if TOGETHER else 2
    columns: tl.constexpr = 4 * P if TOGETHER else P
    if TOGETHER:
        alpha, beta, first_row, first_column = (
            (n // (2 * P))[None, :],
            (n // P % 2)[None, :],
            -1,
            -1,
        )
    else:
        alpha, beta = tl.program_id(0) // 2, tl.program_id(0) % 2
        first_row, first_column = alpha - 1, beta - 1
    i, j = m // (W // 2) % (H // 2), m % (W // 2)
    places += model * rows * Q
    weight += model * (16 * P * Q)
    total = tl.zeros((ROWS, P_BLOCK), tl.float32)
    for start in range(0, span * span * Q, INNER):
        k = start + tl.arange(0, INNER)
        # offset of the window from place (i, j)
        down, right = k // (span * Q) + first_row, k // Q % span + first_column
        row, column = i[:, None] + down[None, :], j[:, None] + right[None, :]
        inside = (
            (row >= 0)
            & (row < H // 2)
            & (column >= 0)
            & (column < W // 2)
            & (m < rows)[:, None]
            & (k < span * span * Q)[None, :]
        )
        x = tl.load(
            places + m[:, None] * Q + ((down * (W // 2) + right) * Q + k % Q)[None, :],
            mask=inside,
            other=0.0,
        )
        # the pixel's entry in that window
        a, e = alpha + 1 - 2 * down[:, None], beta + 1 - 2 * right[:, None]
        used = (
            (a >= 0)
            & (a < 4)
            & (e >= 0)
            & (e < 4)
            & (n < columns)[None, :]
            & (k < span * span * Q)[:, None]
        )
        w = tl.load(
            weight + ((4 * a + e) * P + (n % P)[None, :]) * K_STRIDE + (k % Q)[:, None] * Q_STRIDE,
            mask=used,
            other=0.0,
        )
        total = tl.dot(x, w, total, input_precision=PRECISION)
    total = _finished(total, bias, n, model, P, WITH_BIAS, RELU)
    pixel = (4 * m - 2 * j)[:, None] + alpha * W + beta
    target = picture + model * rows * (4 * P) + pixel * P + (n % P)[None, :]
    tl.store(
        target,
        total.to(picture.dtype.element_ty),
        mask=(m < rows)[:, None] & (n < columns)[None, :],
    )


@triton.jit
def _of_weights_kernel(
    picture, places, gate, of_weights, of_bias, rows,
    H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, K_STRIDE: tl.constexpr, Q_STRIDE: tl.constexpr,
    RUN: tl.constexpr, GRAIN: tl.constexpr, GATED: tl.constexpr, Q_BLOCK: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """The contribution of PART places to the gradient of COLUMNS rows of the weights. If GATED,
    `places` is the gradient after a ReLU, which is multiplied by the ReLU's derivative here.
    """
    part, model = tl.program_id(1), tl.program_id(2).to(tl.int64)
    k, q = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, Q_BLOCK)
    picture += model * rows * (4 * P)
    places += model * rows * Q
    gate += model * rows * Q
    total = tl.zeros((COLUMNS, Q_BLOCK), tl.float32)
    gated = tl.zeros((ROWS, Q_BLOCK), tl.float32)
    for start in range(0, PART, ROWS):
        m = part * PART + start + tl.arange(0, ROWS)
        x = _seen(picture, m, k, rows, H, W, P, RUN, GRAIN)
        here, existing = m[:, None] * Q + q[None, :], (m < rows)[:, None] & (q < Q)[None, :]
        g = tl.load(places + here, mask=existing, other=0.0)
        if GATED:
            g = tl.where(tl.load(gate + here, mask=existing, other=0.0) <= 0, 0.0, g)
            gated += g
        total = tl.dot(tl.trans(x), g, total, input_precision=PRECISION)
    share = part * tl.num_programs(2) + model
    row, exists = _row_of_weights(k, P, RUN)
    target = of_weights + share * (16 * P * Q) + row[:, None] * K_STRIDE + q[None, :] * Q_STRIDE
    tl.store(target, total, mask=exists[:, None] & (q < Q)[None, :])
    if GATED:
        tl.store(of_bias + share * Q + q, tl.sum(gated, 0), mask=(q < Q) & (tl.program_id(0) == 0))


@triton.jit
def _gated_kernel(
    upstream,
    gate,
    gated,
    of_bias,
    rows,
    N: tl.constexpr,
    N_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PART: tl.constexpr,
):
    part, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.arange(0, N_BLOCK)
    upstream += model * rows * N
    gate += model * rows * N
    gated += model * rows * N
    total = tl.zeros((ROWS, N_BLOCK), tl.float32)
    for start in range(0, PART, ROWS):
        m = part * PART + start + tl.arange(0, ROWS)
        here, existing = m[:, None] * N + n[None, :], (m < rows)[:, None] & (n < N)[None, :]
        g = tl.load(upstream + here, mask=existing, other=0.0)
        g = tl.where(tl.load(gate + here, mask=existing, other=0.0) <= 0, 0.0, g)
        tl.store(gated + here, g, mask=existing)
        total += g
    tl.store(of_bias + (part * tl.num_programs(1) + model) * N + n, tl.sum(total, 0), mask=n < N)


def _padded(channels: int) -> int:
    """The sides of a product must be powers of two and at least 16."""
    return max(16, triton.next_power_of_2(channels))


def _runs(channels: int) -> dict[str, int]:
    """How a row of a window is read: the padded length of its run, and the alignment of its
    ends.
    """
    return {"RUN": triton.next_power_of_2(4 * channels), "GRAIN": max(2, channels & -channels)}


def _strides(weight: Tensor) -> dict[str, int]:
    return {"K_STRIDE": weight.stride(1), "Q_STRIDE": weight.stride(2)}


@custom_op("diffurn::to_places", mutates_args=())
def _to_places(picture: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """Pictures to places; ``weight`` may be a transposed view."""
    models, batch, height, width, P = picture.shape
    rows, Q = batch * height * width // 4, weight.shape[-1]
    places, tile = _new_places(picture, weight, bias, relu), TO_PLACES.get((P, Q), TO_PLACES[None])
    with torch.cuda.device_of(picture):
        _to_places_kernel[triton.cdiv(rows, tile["ROWS"]), models](
            picture, weight, picture if bias is None else bias, places, rows, height, width, P, Q, **_strides(weight),
            **_runs(P), WITH_BIAS=bias is not None, RELU=relu, Q_BLOCK=_padded(Q), **tile,
        )  # fmt: skip
    return places


@_to_places.register_fake
def _new_places(picture: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    models, batch, height, width, _ = picture.shape
    return picture.new_empty(models, batch, height // 2, width // 2, weight.shape[-1])


@custom_op("diffurn::to_picture", mutates_args=())
def _to_picture(places: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """Places to pictures; ``weight`` may be a transposed view."""
    models, batch, height, width, Q = places.shape
    rows, P = batch * height * width, weight.shape[1] // 16
    picture, tile = (
        _new_picture(places, weight, bias, relu),
        TO_PICTURE.get((P, Q), TO_PICTURE[None]),
    )
    columns, parities = (4 * P, 1) if tile["TOGETHER"] else (P, 4)
    with torch.cuda.device_of(places):
        _to_picture_kernel[parities, triton.cdiv(rows, tile["ROWS"]), models](
            places, weight, places if bias is None else bias, picture, rows, 2 * height, 2 * width, P, Q, **_strides(weight),
            WITH_BIAS=bias is not None, RELU=relu, P_BLOCK=_padded(columns), **tile,
        )  # fmt: skip
    return picture


@_to_picture.register_fake
def _new_picture(places: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    models, batch, height, width, _ = places.shape
    return places.new_empty(models, batch, 2 * height, 2 * width, weight.shape[1] // 16)


@custom_op("diffurn::of_weights", mutates_args=())
def _of_weights(
    picture: Tensor, places: Tensor, gate: Tensor | None, transposed: bool
) -> tuple[Tensor, Tensor]:
    """The gradient of the weights in the layer's own order. With a gate for `places` also the sum
    of the gated places, which is the gradient of the bias.
    """
    models, batch, height, width, P = picture.shape
    rows, Q = batch * height * width // 4, places.shape[-1]
    tile = OF_WEIGHTS.get((P, Q), OF_WEIGHTS[None])
    parts = triton.cdiv(rows, tile["PART"])
    shares = [
        picture.new_empty(parts, *new.shape, dtype=torch.float32)
        for new in _new_gradients(picture, places, gate, transposed)
    ]
    with torch.cuda.device_of(picture):
        _of_weights_kernel[triton.cdiv(4 * _runs(P)["RUN"], tile["COLUMNS"]), parts, models](
            picture, places, places if gate is None else gate, *shares, rows, height, width, P, Q,
            **_strides(shares[0][0].mT if transposed else shares[0][0]), **_runs(P), GATED=gate is not None, Q_BLOCK=_padded(Q), **tile,
        )  # fmt: skip
    return shares[0].sum(0), shares[1].sum(0)


@_of_weights.register_fake
def _new_gradients(
    picture: Tensor, places: Tensor, gate: Tensor | None, transposed: bool
) -> tuple[Tensor, Tensor]:
    models, P, Q = picture.shape[0], picture.shape[-1], places.shape[-1]
    weights = picture.new_empty(
        (models, Q, 16 * P) if transposed else (models, 16 * P, Q), dtype=torch.float32
    )
    return weights, weights.new_empty(models, 0 if gate is None else Q)


@custom_op("diffurn::gated", mutates_args=())
def _gated(upstream: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient before a ReLU, from the gradient after it and its results, and the sum of that
    gradient over the pixels, for the bias.
    """
    models, N = upstream.shape[0], upstream.shape[-1]
    rows = upstream.numel() // (models * N)
    parts, gated = triton.cdiv(rows, GATED_PART), torch.empty_like(upstream)
    shares = upstream.new_empty(parts, models, N, dtype=torch.float32)
    with torch.cuda.device_of(upstream):
        _gated_kernel[parts, models](
            upstream,
            gate,
            gated,
            shares,
            rows,
            N,
            triton.next_power_of_2(N),
            GATED_ROWS,
            GATED_PART,
        )
    return gated, shares.sum(0)


@_gated.register_fake
def _new_gated(upstream: Tensor, gate: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(upstream), upstream.new_empty(
        upstream.shape[0], upstream.shape[-1], dtype=torch.float32
    )


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool, transposed: bool
    ) -> Tensor:
        x, weight, bias = x.contiguous(), weight.to(x.dtype).contiguous(), bias.contiguous()
        y: Tensor = (
            _to_picture(x, weight.mT, bias, relu)
            if transposed
            else _to_places(x, weight, bias, relu)
        )
        ctx.save_for_backward(x, weight, y if relu else None)
        ctx.transposed = transposed
        return y

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        x, weight, y = ctx.saved_tensors
        upstream, gate, of_x = upstream.contiguous(), None, None
        if y is None:
            of_bias = upstream.sum((1, 2, 3), dtype=torch.float32)
        elif ctx.transposed or ctx.needs_input_grad[0]:
            upstream, of_bias = _gated(upstream, y)
        else:
            gate = y  # only one kernel reads `upstream`, so it also applies the gate
        if ctx.transposed:
            of_weight, _ = _of_weights(upstream, x, None, True)
        else:
            of_weight, of_gated = _of_weights(x, upstream, gate, False)
            of_bias = of_bias if gate is None else of_gated
        if ctx.needs_input_grad[0]:
            of_x = (
                _to_places(upstream, weight.mT, None, False)
                if ctx.transposed
                else _to_picture(upstream, weight, None, False)
            )
        return of_x, of_weight, of_bias[:, None, None, None], None, None


def _checked(x: Tensor, weight: Tensor, bias: Tensor, rows: int, columns: int) -> None:
    """Refuses shapes for which a kernel would read outside its inputs."""
    if x.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise ValueError(f"x is {x.dtype}, but must be bfloat16, float16 or float32")
    if weight.shape != (x.shape[0], rows, columns * bias.shape[-1]) or bias.shape != (
        x.shape[0],
        1,
        1,
        1,
        bias.shape[-1],
    ):
        raise ValueError(
            f"x {tuple(x.shape)}, weight {tuple(weight.shape)} and bias {tuple(bias.shape)} do not "
            "belong together"
        )


def convolved(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """A convolution of every model, followed by a ReLU if `relu`: ``(S, B, H, W, C)`` to ``(S, B,
    H/2, W/2, O)``, in the dtype of x.

    Args:
        x: bfloat16, float16 or float32, on a CUDA device; H and W even.
        weight: float32, ``(S, 16 C, O)``, ordered by row of the kernel, column of the kernel and
            channel.
        bias: float32, ``(S, 1, 1, 1, O)``.
    """
    _checked(x, weight, bias, 16 * x.shape[-1], 1)
    if x.shape[2] % 2 or x.shape[3] % 2:
        raise ValueError(
            f"a picture of {x.shape[2]} × {x.shape[3]} cannot be halved: both must be even"
        )
    y: Tensor = _Layer.apply(x, weight, bias, relu, False)
    return y


def transposed(x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
    """A transposed convolution, ``(S, B, h, w, C)`` to ``(S, B, 2h, 2w, O)``, with weights ``(S, C,
    16 O)``; otherwise like `convolved`.
    """
    _checked(x, weight, bias, x.shape[-1], 16)
    y: Tensor = _Layer.apply(x, weight, bias, relu, True)
    return y
