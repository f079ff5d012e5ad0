"""Bayesian importances by NUTS in NumPyro: who got into the Titanic's boats, and whether Berkeley's
departments preferred men.

The first model has one importance for each group. The second one is for tables in which rows differ
more than chance allows: every row has an importance of its own, drawn from a normal distribution
whose mean and spread are learned. `pyro_importance.py` has the same models in Pyro. It needs
NumPyro: ``pip install 'diffurn[jax]'``.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpyro
from numpyro.diagnostics import effective_sample_size
from numpyro.distributions import HalfNormal, Normal
from numpyro.infer import MCMC, NUTS

from diffurn.jax import FisherHypergeometric

# First, second and third class and the crew: aboard, and saved. The crew has importance 1.
ABOARD, SAVED = [325, 285, 706, 885], [203, 118, 178, 212]
# Men and women of departments A to F: applicants, and admitted ones. Women have importance 1.
APPLICANTS = [[825, 108], [560, 25], [325, 593], [417, 375], [191, 393], [373, 341]]
ADMITTED = [[512, 89], [353, 17], [120, 202], [138, 131], [53, 94], [22, 24]]


def one_importance_each(group_sizes: Any, counts: Any) -> None:
    """A table with the last group as reference."""
    counts = jnp.asarray(counts)
    groups = counts.shape[-1]
    log_weights = numpyro.sample("log_weights", Normal(0.0, 5.0).expand([groups - 1]).to_event(1))
    log_weights = jnp.append(log_weights, 0.0)
    urn = FisherHypergeometric(group_sizes, counts.sum(-1), log_weights=log_weights)
    numpyro.sample("counts", urn, obs=counts)


def importances_of_rows(group_sizes: Any, counts: Any) -> None:
    """A table of two groups whose rows have random effects."""
    counts = jnp.asarray(counts)
    mean = numpyro.sample("mean", Normal(0.0, 5.0))
    spread = numpyro.sample("spread", HalfNormal(1.0))
    with numpyro.plate("rows", len(counts)):
        effect = numpyro.sample("effect", Normal(0.0, 1.0))
        log_weight = numpyro.deterministic("log_weight", mean + spread * effect)
        log_weights = jnp.stack([log_weight, jnp.zeros_like(log_weight)], -1)
        urn = FisherHypergeometric(group_sizes, counts.sum(-1), log_weights=log_weights)
        numpyro.sample("counts", urn, obs=counts)


def draw(
    model: Any, group_sizes: Any, counts: Any, warmup: int = 1000, samples: int = 2000
) -> tuple[dict[str, Any], float]:
    """Samples of the posterior by name, and the seconds that NUTS took after its compilation."""

    def run(key: Any, *data: Any) -> Any:
        chain = MCMC(NUTS(model), num_warmup=warmup, num_samples=samples, progress_bar=False)
        chain.run(key, *data)
        return chain.get_samples()

    operands = jax.random.PRNGKey(0), jnp.array(group_sizes), jnp.array(counts)
    compiled = jax.jit(run).lower(*operands).compile()
    start = time.perf_counter()
    posterior = jax.block_until_ready(compiled(*operands))
    return posterior, time.perf_counter() - start


def report(name: str, samples: Any, seconds: float, estimate: str = "") -> None:
    """One line: the posterior of a parameter and the effective samples of a second."""
    effective = float(effective_sample_size(samples[None]))
    print(
        f"{name:12} {samples.mean():7.3f} ± {samples.std():.3f} {estimate:>16}"
        f" {effective:9.0f} {effective / seconds:11.0f}"
    )


def main() -> None:
    from diffurn import fit  # by maximum likelihood, in torch

    jax.config.update("jax_enable_x64", True)
    print(f"{'log ω':12} {'posterior':>15} {'fit':>16} {'effective':>9} {'a second':>11}")
    found = fit(SAVED, ABOARD, reference=3)
    samples, seconds = draw(one_importance_each, ABOARD, SAVED)
    for j, group in enumerate(["1st class", "2nd class", "3rd class"]):
        estimate = f"{found.log_weights[j]:.3f} ± {found.standard_errors[j]:.3f}"
        report(group, samples["log_weights"][:, j], seconds, estimate)
    print(f"Titanic: {seconds:.2f} s")

    found = fit(ADMITTED, APPLICANTS, reference=1)
    estimate = f"{found.log_weights[0]:.3f} ± {found.standard_errors[0]:.3f}"
    samples, seconds = draw(one_importance_each, APPLICANTS, ADMITTED)
    report("men", samples["log_weights"][:, 0], seconds, estimate)
    print(f"Berkeley, one importance: {seconds:.2f} s")

    samples, seconds = draw(importances_of_rows, APPLICANTS, ADMITTED)
    report("mean of men", samples["mean"], seconds)
    report("spread", samples["spread"], seconds)
    for row, department in enumerate("ABCDEF"):
        own = fit(ADMITTED[row], APPLICANTS[row], reference=1)
        estimate = f"{own.log_weights[0]:.3f} ± {own.standard_errors[0]:.3f}"
        report(f"department {department}", samples["log_weight"][:, row], seconds, estimate)
    print(f"Berkeley, random effects: {seconds:.2f} s")


if __name__ == "__main__":
    main()
