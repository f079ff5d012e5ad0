"""Triton's compiler takes the kernels for an H100 or H200, which it needs no GPU for.

The interpreter takes programs that the compiler refuses: changing types in loops, and shapes that
are not known before a launch.
"""

from __future__ import annotations

from typing import Any

import pytest

from support.kernels import INTERPRETED

pytest.importorskip("triton", reason="the kernels need triton, which is not installed")
if INTERPRETED:
    pytest.skip("TRITON_INTERPRET=1 replaces the compiler", allow_module_level=True)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from diffurn._kernels import chain, covariance, fisher, operands, subsets

pytestmark = [pytest.mark.needs("triton"), pytest.mark.slow]

TYPES = {"seed": "*i64", "temperature": "i64", "group_sizes": "*fp64", "draws": "*fp64"}
NUMBERS = {"rows", "urns", "groups", "number", "width", "place", "rounds", "start"}
TILE = {"GROUPS": 64, "TILES": 1}
SHORT = {"GROUPS": 64, "T": fisher.PADDED_NODES}
BLOCKS = {**SHORT, "TILES": 1, "BLOCKS": 13}
KERNELS: dict[str, tuple[Any, dict[str, Any], dict[str, str]]] = {
    "merged": (chain._merged_kernel, {"HARD": True, "SLOPES": True, **chain.OF_MERGED}, {}),
    "merged, relaxed": (
        chain._merged_kernel,
        {"HARD": False, "SLOPES": False, **chain.OF_MERGED},
        {},
    ),
    "exact": (
        chain._exact_kernel,
        {"HARD": True, "SLOPES": True, **chain.OF_EXACT, "TILTED": 64, "TILES": 1},
        {},
    ),
    "exact, drawn alone": (
        chain._exact_kernel,
        {"HARD": True, "SLOPES": False, **chain.OF_EXACT, "TILTED": 64, "TILES": 1},
        {},
    ),
    "slopes of merged": (
        chain._merged_slopes_kernel,
        {"THROUGH": True, **chain.OF_MERGED_SLOPES},
        {},
    ),
    "slopes of exact": (
        chain._exact_slopes_kernel,
        {"THROUGH": True, **chain.OF_EXACT_SLOPES},
        {},
    ),
    "noise": (chain._noise_kernel, dict(chain.OF_NOISE), {}),
    "operands": (
        operands._operands_kernel,
        {"LOG": True, "TILTED": True, "CENTRING": True, "ROWS": 1, **TILE, "num_warps": 1},
        {"given": "*fp32", "group_sizes": "*i64", "draws": "*i64"},
    ),
    "subsets": (
        subsets._subsets_kernel,
        dict(subsets._tile(784, subsets.PROPOSED)),
        {"counts": "*fp32"},
    ),
    **{
        f"covariance product, {name}{', single balls' if single else ''}": (
            kernel,
            {"SINGLE": single, **options, **quadrature, "num_warps": 8},
            {"vectors": "*fp32", "values": "*fp32"},
        )
        for single in (False, True)
        for name, kernel, options, quadrature in (
            ("one tile", covariance._short_kernel, {"VARIANCE": False}, SHORT),
            ("factors", covariance._factors_kernel, {"WIDE": 1024, "WIDES": 1}, BLOCKS),
            ("sums", covariance._sums_kernel, {"VARIANCE": False}, BLOCKS),
            ("products", covariance._products_kernel, {"VARIANCE": False}, BLOCKS),
        )
    },
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_compile_for_a_gpu(name: str) -> None:
    kernel, options, types = KERNELS[name]
    constants = {key: value for key, value in options.items() if key != "num_warps"}
    names, signature = kernel.arg_names, {}
    for argument in names:
        is_number = argument in NUMBERS or argument.endswith("_stride")
        default = "constexpr" if argument in constants else "i32" if is_number else "*fp64"
        signature[argument] = {**TYPES, **types}.get(argument, default)
    places = {(names.index(key),): value for key, value in constants.items()}
    compiled = triton.compile(
        ASTSource(kernel, signature, places),
        target=GPUTarget("cuda", 90, 32),
        options={"num_warps": options["num_warps"]},
    )
    assert compiled.asm["cubin"]
