"""The records of the Kolmogorov-Smirnov study: comparisons of samplers with laws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy import stats  # type: ignore[import-untyped]
from torch import Tensor

from diffurn_studies.ks import kolmogorov
from diffurn_studies.ks.kolmogorov import Array, Counts
from diffurn_studies.ks.laws import joint_laws, marginals
from diffurn_studies.ks.options import Options
from diffurn_studies.ks.urns import Setting, draw_by_scipy, histograms
from diffurn_studies.merged_chain import merged_log_prob
from diffurn_studies.newton import minimiser

COMPARISONS = ("paper", "exact", "merged")
# The level of every test.
LEVEL = 0.05


def urn_record(setting: Setting, options: Options, rng: np.random.Generator) -> dict[str, Any]:
    """The three comparisons of an urn, with histograms of the three samplers."""
    urn = setting.urn
    with torch.no_grad():
        drawn = {"merged": urn.rsample((options.samples,)), "exact": urn.sample((options.samples,))}
    found = {name: histograms(counts.numpy(), setting) for name, counts in drawn.items()}
    found["scipy"] = histograms(draw_by_scipy(setting, options.samples, rng), setting)
    exact, merged = marginals(setting)
    distances = [
        kolmogorov.two_sample_distance(*both)
        for both in zip(found["merged"], found["scipy"], strict=True)
    ]
    p_values = [
        kolmogorov.two_sample_p_value(d, options.samples, options.samples) for d in distances
    ]
    return {
        "study": setting.study,
        "value": setting.value,
        "paper": _tests(distances, p_values),
        "exact": _against_law(found["exact"], exact),
        "merged": _against_law(found["merged"], exact),
        "levels": [kolmogorov.critical_distance(mass, options.samples, LEVEL)[1] for mass in exact],
        "laws_apart": [
            float(np.abs(np.cumsum(p - q)).max()) for p, q in zip(exact, merged, strict=True)
        ],
        "means": {
            name: [float(mass @ np.arange(len(mass))) for mass in law]
            for name, law in (("exact", exact), ("merged", merged))
        },
        "histograms": {
            name: [histogram.tolist() for histogram in groups] for name, groups in found.items()
        },
        "marginals": [[round(float(p), 9) for p in mass] for mass in exact],  # for the figure
    }


def _tests(distances: list[float], p_values: list[float]) -> dict[str, list[float]]:
    corrected = stats.false_discovery_control(np.clip(p_values, 0, 1)).tolist()
    return {"distances": distances, "p_values": p_values, "corrected": corrected}


def _against_law(found: list[Counts], law: list[Array]) -> dict[str, list[float]]:
    distances = [
        kolmogorov.distance(histogram, mass) for histogram, mass in zip(found, law, strict=True)
    ]
    return _tests(
        distances,
        [
            kolmogorov.p_value(d, p, int(x.sum()))
            for d, p, x in zip(distances, law, found, strict=True)
        ],
    )


def remark_record(setting: Setting) -> dict[str, Any]:
    """The distance of the chain from Fisher's law at the same ω, and at the closest ω̃."""
    outcomes, exact, same = joint_laws(setting)
    sizes, draws = torch.tensor(setting.group_sizes), setting.draws
    probabilities = exact.exp()

    def cross_entropy(log_weights: Tensor) -> Tensor:
        return -(probabilities * merged_log_prob(outcomes, sizes, draws, log_weights)).sum(-1)

    best = minimiser(cross_entropy, setting.urn.log_weights)
    closest = merged_log_prob(outcomes, sizes, draws, best)
    return {
        "remark": {
            "divergence": [
                max(0.0, float((probabilities * (exact - law)).sum())) for law in (same, closest)
            ],
            "total_variation": [
                float((probabilities - law.exp()).abs().sum() / 2) for law in (same, closest)
            ],
            "weights": (best - best[0]).exp().tolist(),
        }
    }


def level_record(setting: Setting, options: Options, rng: np.random.Generator) -> dict[str, Any]:
    """How often true null hypotheses are rejected, with and without the correction: by the test of
    the exact sampler, and by the paper's test.
    """
    exact, _ = marginals(setting)
    one_sample, two_samples = [], []
    joint = joint_laws(setting)
    outcomes, probabilities = joint[0].numpy(), torch.softmax(joint[2], -1).numpy()
    for _ in range(options.level_seeds):
        found = histograms(setting.urn.sample((options.samples,)).numpy(), setting)
        one_sample.append(_against_law(found, exact))
        # Two samples of one law. Multinomial counts of all outcomes are far faster to draw than
        # outcomes.
        pair = [
            histograms(outcomes, setting, rng.multinomial(options.samples, probabilities))
            for _ in range(2)
        ]
        distances = [kolmogorov.two_sample_distance(*both) for both in zip(*pair, strict=True)]
        two_samples.append(
            _tests(
                distances,
                [
                    kolmogorov.two_sample_p_value(d, options.samples, options.samples)
                    for d in distances
                ],
            )
        )
    return {
        "study": "level",
        "value": setting.value,
        "seeds": options.level_seeds,
        "levels": [kolmogorov.critical_distance(mass, options.samples, LEVEL)[1] for mass in exact],
        "exact": _rejections(one_sample),
        "paper": _rejections(two_samples),
    }


def _rejections(tests: Sequence[dict[str, list[float]]]) -> dict[str, list[int]]:
    """The number of rejected tests of every repetition, by plain and by corrected p-values."""
    return {
        kind: [sum(p <= LEVEL for p in test[kind]) for test in tests]
        for kind in ("p_values", "corrected")
    }
