"""The models of `numpyro_importance.py` in Pyro: the same posteriors, by NUTS without compilation.

It needs Pyro: ``pip install pyro-ppl``.
"""

import time
from typing import Any

import pyro
import torch
from pyro.distributions import HalfNormal, Normal
from pyro.distributions.torch_distribution import TorchDistributionMixin
from pyro.infer import MCMC, NUTS
from pyro.ops.stats import effective_sample_size
from torch import Tensor

import diffurn

# First, second and third class and the crew: aboard, and saved. The crew has importance 1.
ABOARD, SAVED = [325, 285, 706, 885], [203, 118, 178, 212]
# Men and women of departments A to F: applicants, and admitted ones. Women have importance 1.
APPLICANTS = [[825, 108], [560, 25], [325, 593], [417, 375], [191, 393], [373, 341]]
ADMITTED = [[512, 89], [353, 17], [120, 202], [138, 131], [53, 94], [22, 24]]


class FisherHypergeometric(diffurn.FisherHypergeometric, TorchDistributionMixin):
    """Fisher's urn with the methods that Pyro adds to torch's distributions."""


def one_importance_each(group_sizes: Tensor, counts: Tensor) -> None:
    """A table with the last group as reference."""
    groups = counts.shape[-1]
    prior = Normal(torch.zeros(groups - 1), 5.0).to_event(1)
    log_weights = torch.cat([pyro.sample("log_weights", prior), torch.zeros(1)])
    urn = FisherHypergeometric(group_sizes, counts.sum(-1), log_weights=log_weights)
    pyro.sample("counts", urn.to_event(counts.ndim - 1), obs=counts)


def importances_of_rows(group_sizes: Tensor, counts: Tensor) -> None:
    """A table of two groups whose rows have random effects."""
    mean = pyro.sample("mean", Normal(0.0, 5.0))
    spread = pyro.sample("spread", HalfNormal(1.0))
    with pyro.plate("rows", len(counts)):
        effect = pyro.sample("effect", Normal(0.0, 1.0))
        log_weight = mean + spread * effect
        log_weights = torch.stack([log_weight, torch.zeros_like(log_weight)], -1)
        urn = FisherHypergeometric(group_sizes, counts.sum(-1), log_weights=log_weights)
        pyro.sample("counts", urn, obs=counts)


def draw(
    model: Any, group_sizes: Any, counts: Any, warmup: int = 200, samples: int = 400
) -> tuple[dict[str, Tensor], float]:
    """Samples of the posterior by name, and the seconds that NUTS took."""
    pyro.set_rng_seed(0)
    chain = MCMC(NUTS(model), samples, warmup_steps=warmup, disable_progbar=True)
    start = time.perf_counter()
    chain.run(torch.tensor(group_sizes), torch.tensor(counts, dtype=torch.float64))
    return chain.get_samples(), time.perf_counter() - start


def report(name: str, samples: Tensor, seconds: float) -> None:
    """One line: the posterior of a parameter and the effective samples of a second."""
    effective = float(effective_sample_size(samples[None], 0, 1))
    rate = effective / seconds
    print(f"{name:12} {samples.mean():7.3f} ± {samples.std():.3f} {effective:9.0f} {rate:11.1f}")


def main() -> None:
    torch.set_default_dtype(torch.float64)
    print(f"{'log ω':12} {'posterior':>15} {'effective':>9} {'a second':>11}")
    samples, seconds = draw(one_importance_each, ABOARD, SAVED)
    for j, group in enumerate(["1st class", "2nd class", "3rd class"]):
        report(group, samples["log_weights"][:, j], seconds)
    print(f"Titanic: {seconds:.1f} s")

    samples, seconds = draw(one_importance_each, APPLICANTS, ADMITTED)
    report("men", samples["log_weights"][:, 0], seconds)
    print(f"Berkeley, one importance: {seconds:.1f} s")

    samples, seconds = draw(importances_of_rows, APPLICANTS, ADMITTED)
    report("mean of men", samples["mean"], seconds)
    report("spread", samples["spread"], seconds)
    print(f"Berkeley, random effects: {seconds:.1f} s")


if __name__ == "__main__":
    main()
