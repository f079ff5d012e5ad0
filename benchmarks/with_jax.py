"""Times of `diffurn` in PyTorch and of `diffurn.jax`, compiled, in one run on one device.

``python -m benchmarks.with_jax`` prints a table; with ``--device cuda`` both run on the GPU. Only
time of the device is compared: JAX's functions are compiled before, PyTorch's are not compiled.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch

from diffurn import FisherHypergeometric
from diffurn.jax import FisherHypergeometric as JaxFisher
from diffurn.jax import straight_through

# c, m and B: groups, balls in each of them, and urns of a batch.
URNS = [(2, 100, 1), (3, 200, 1), (3, 200, 1000), (3, 200, 100_000), (10, 10_000, 1000)]
_SECONDS = 0.3  # in which a job is repeated, at least three times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=_SECONDS)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    device = torch.device(options.device)
    print(f"torch {torch.__version__} on {device}, jax {jax.__version__} on {jax.devices()[0]}\n")
    print("| c | m | B | operation | PyTorch (µs) | JAX (µs) | PyTorch / JAX |")
    print("| --: | --: | --: | :-- | --: | --: | --: |")
    for c, m, batch in URNS:
        in_torch, in_jax = _torch_jobs(c, m, batch, device), _jax_jobs(c, m, batch)
        for name, job in in_torch.items():
            ours, theirs = (_best(each, options.seconds) for each in (job, in_jax[name]))
            ratio = f"{ours / theirs:.2g}"
            times = f"{ours * 1e6:,.0f} | {theirs * 1e6:,.0f}"
            print(f"| {c} | {m} | {batch:,} | {name} | {times} | {ratio} |", flush=True)


def _best(job: Callable[[], None], seconds: float) -> float:
    """The smallest time of a call, after one that compiles."""
    job()
    best, repeats, end = float("inf"), 0, time.perf_counter() + seconds
    while repeats < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        job()
        best, repeats = min(best, time.perf_counter() - start), repeats + 1
    return best


def _torch_jobs(c: int, m: int, batch: int, device: torch.device) -> dict[str, Callable[[], None]]:
    sizes, draws = torch.full((c,), m), torch.tensor(c * m // 3)
    torch.manual_seed(0)
    log_weights = torch.randn(batch, c, dtype=torch.float64, device=device, requires_grad=True)

    def urn(weights: torch.Tensor) -> FisherHypergeometric:
        return FisherHypergeometric(sizes.to(device), draws.to(device), log_weights=weights)

    counts = urn(log_weights.detach()).sample()

    def gradient(value: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(value.sum(), log_weights)[0]

    def finished(value: Any) -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    fixed = log_weights.detach()
    return {
        "log_prob": lambda: finished(urn(fixed).log_prob(counts)),
        "log_prob and gradient": lambda: finished(gradient(urn(log_weights).log_prob(counts))),
        "mean": lambda: finished(urn(fixed).mean),
        "covariance": lambda: finished(urn(fixed).covariance_matrix),
        "sample": lambda: finished(urn(fixed).sample()),
        "straight-through gradient": lambda: finished(gradient(urn(log_weights).rsample())),
    }


def _jax_jobs(c: int, m: int, batch: int) -> dict[str, Callable[[], None]]:
    log_weights, key = jax.random.normal(jax.random.PRNGKey(0), (batch, c)), jax.random.PRNGKey(1)

    def urn(weights: Any) -> Any:
        return JaxFisher([m] * c, c * m // 3, log_weights=weights)

    counts = jax.jit(lambda weights: urn(weights).sample(key))(log_weights)

    def job(function: Callable[[Any], Any]) -> Callable[[], None]:
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(log_weights))

    def score(weights: Any) -> Any:
        return urn(weights).log_prob(counts).sum()

    def drawn(weights: Any) -> Any:
        return straight_through(key, urn(weights)).sum()

    return {
        "log_prob": job(lambda weights: urn(weights).log_prob(counts)),
        "log_prob and gradient": job(jax.value_and_grad(score)),
        "mean": job(lambda weights: urn(weights).mean),
        "covariance": job(lambda weights: urn(weights).covariance_matrix),
        "sample": job(lambda weights: jnp.asarray(urn(weights).sample(key))),
        "straight-through gradient": job(jax.value_and_grad(drawn)),
    }


if __name__ == "__main__":
    main()
