"""Do the draws follow the law they should? Kolmogorov-Smirnov tests of the paper's sampler and of
the exact one.

The paper draws 50,000 times from m = (200, 200, 200), n = 180, ω = (1, ω₂, 1) for ω₂ = 1, …, 10,
tests every group's counts and corrects the three p-values of an urn by Benjamini and Hochberg; then
again for other n and other m₂. Three comparisons stand side by side here:

- *paper*: the chain of merged groups against SciPy's univariate law merged in the same way, two
  samples, as in the paper;
- *exact*: the exact sampler against Fisher's law;
- *merged*: the chain of merged groups against Fisher's law, which is what the paper's conclusion is
  about.

The latter two are tests of one sample against a known discrete law, with exact p-values
(`kolmogorov`). A level study counts how often true nulls are rejected, so that "none of 30
rejected" can be read against what to expect. And since the paper says that a different ω makes up
for the merge, the divergence that is left after choosing the best ω̃ is computed exactly.

Run it with ``diffurn reproduce ks``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy import stats  # type: ignore[import-untyped]
from torch import Tensor

from diffurn._fisher.merged import merged_log_prob
from diffurn_studies.harness import runner as harness
from diffurn_studies.harness.paper import paper
from diffurn_studies.harness.runner import Engine, Progress, Results, Table, Workspace
from diffurn_studies.ks import figure as ks_figure
from diffurn_studies.ks import kolmogorov
from diffurn_studies.ks.kolmogorov import Array, Counts
from diffurn_studies.ks.laws import LEVEL, Setting, draw_by_scipy, histograms, joint_laws, marginals
from diffurn_studies.minimal.optimum import minimiser

NAME = "ks"
COMPARISONS = ("paper", "exact", "merged")


@dataclass(frozen=True)
class Options:
    """What `run` draws and tests.

    Attributes:
        samples: draws per urn and sampler.
        second_weights: ω₂ of the main study.
        draws: n of the first sensitivity study; the paper gives its values in a plot only, so these
            are ours.
        second_sizes: m₂ of the second, likewise.
        level_seeds: repetitions of the level study, per ω₂.
        seed: of all draws.
    """

    samples: int = 50_000
    second_weights: tuple[float, ...] = tuple(float(weight) for weight in range(1, 11))
    draws: tuple[int, ...] = tuple(range(50, 501, 50))
    second_sizes: tuple[int, ...] = tuple(range(50, 501, 50))
    level_seeds: int = 200
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1 or self.level_seeds < 2:
            raise ValueError(
                f"samples is {self.samples} and level_seeds {self.level_seeds}, but they must be "
                "at least 1 and 2"
            )
        if not self.second_weights or min(self.second_weights) <= 0:
            raise ValueError(
                f"second_weights are {self.second_weights}, but must be one or more numbers above 0"
            )
        if not self.draws or not 1 <= min(self.draws) <= max(self.draws) <= 599:
            raise ValueError(
                f"draws are {self.draws}, but must be one or more whole numbers from 1 to 599, one "
                "less than there are balls"
            )
        if not self.second_sizes or min(self.second_sizes) < 1:
            raise ValueError(
                f"second_sizes are {self.second_sizes}, but must be one or more whole numbers "
                "above 0"
            )

    @classmethod
    def quick(cls) -> Options:
        return cls(
            samples=5_000,
            second_weights=(1.0, 2.0, 5.0, 10.0),
            draws=(50, 200, 500),
            second_sizes=(50, 200, 500),
            level_seeds=40,
        )


def settings(options: Options) -> dict[str, Setting]:
    """Every urn under the name of its unit; the level study looks at those of the main study
    again.
    """
    sizes, weights = (200, 200, 200), (1.0, 5.0, 1.0)
    main = [Setting("weight", w, sizes, 180, (1.0, w, 1.0)) for w in options.second_weights]
    other_draws = [Setting("draws", n, sizes, n, weights) for n in options.draws]
    other_sizes = [Setting("size", m, (200, m, 200), 200, weights) for m in options.second_sizes]
    level = [replace(setting, study="level") for setting in main]
    return {
        f"{setting.study}-{setting.value:g}": setting
        for setting in main + other_draws + other_sizes + level
    }


def units(options: Options) -> list[str]:
    return list(settings(options))


def run_unit(options: Options, unit: str, workspace: Workspace) -> dict[str, Any]:
    setting = settings(options)[unit]
    seed = options.seed * 100_003 + units(options).index(unit)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    if setting.study == "level":
        return level_record(setting, options, rng)
    return {
        **urn_record(setting, options, rng),
        **(remark_record(setting) if setting.study == "weight" else {}),
    }


def urn_record(setting: Setting, options: Options, rng: np.random.Generator) -> dict[str, Any]:
    """Histograms of the three samplers, and the three comparisons."""
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
    """How far the chain is from Fisher's law at the same ω, and at the ω̃ that brings it
    closest.
    """
    outcomes, exact, same = joint_laws(setting)
    sizes, draws = torch.tensor(setting.group_sizes), torch.tensor(setting.draws)
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
    """How often true nulls are rejected, with and without the correction: the exact sampler, and
    the paper's test of equal laws.
    """
    exact, _ = marginals(setting)
    one_sample, two_samples = [], []
    joint = joint_laws(setting)
    outcomes, probabilities = joint[0].numpy(), torch.softmax(joint[2], -1).numpy()
    for _ in range(options.level_seeds):
        found = histograms(setting.urn.sample((options.samples,)).numpy(), setting)
        one_sample.append(_against_law(found, exact))
        # Any two samples of one law will do; drawing how often each outcome occurs is far faster
        # than drawing outcomes.
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
    """Of every repetition, how many of its tests were rejected, by plain and by corrected
    p-values.
    """
    return {
        kind: [sum(p <= LEVEL for p in test[kind]) for test in tests]
        for kind in ("p_values", "corrected")
    }


def table(results: Results) -> list[Table]:
    return [
        _verdicts(results),
        *(_study(results, study, *heading) for study, heading in ks_figure.STUDIES.items()),
        _remark(results),
        _levels(results),
    ]


def of_study(results: Results, study: str) -> list[dict[str, Any]]:
    return [record for record in results.records.values() if record["study"] == study]


def _verdicts(results: Results) -> Table:
    """Rejections of the main study, beside those to expect by chance."""
    main, level = of_study(results, "weight"), of_study(results, "level")
    stated = paper("ks")
    names = {
        "paper": "merged chain against SciPy, merged alike (the paper's test)",
        "exact": "exact sampler against Fisher's law",
        "merged": "merged chain against Fisher's law",
    }
    rows = []
    for comparison in COMPARISONS:
        rejected = {
            kind: sum(p <= LEVEL for record in main for p in record[comparison][kind])
            for kind in ("p_values", "corrected")
        }
        null = "paper" if comparison == "paper" else "exact"
        chance = {
            kind: sum(float(np.mean(record[null][kind])) for record in level)
            for kind in ("p_values", "corrected")
        }
        if comparison != "paper":
            chance["p_values"] = sum(sum(record["levels"]) for record in main)
        theirs = (
            stated["rejected_after_correction"]
            if comparison == "paper" and len(main) * 3 == stated["tests"]
            else None
        )
        difference = None if theirs is None else rejected["corrected"] - theirs
        row = [
            rejected["p_values"],
            f"{chance['p_values']:.2f}",
            rejected["corrected"],
            f"{chance['corrected']:.2f}",
            theirs,
            difference,
        ]
        rows.append([names[comparison], 3 * len(main), *row])
    columns = [
        "comparison",
        "tests",
        "rejected at 5 %",
        "expected",
        "rejected, corrected",
        "expected, corrected",
        "paper",
        "difference",
    ]
    notes = [
        f"{results.options.samples:,} draws per urn; m = (200, 200, 200), n = 180, ω = (1, ω₂, 1). "
        "Corrected: by Benjamini and Hochberg "
        "over the three groups of an urn, as in the paper. Expected: if the two laws compared were "
        "the same.",
        "What to expect of plain p-values against Fisher's law is exact; the rest was measured "
        "with samples of equal laws, "
        f"{results.options.level_seeds} per urn. The two-sample test takes whole counts for "
        "continuous ones, so it rejects less often than "
        "it says.",
        "The paper's 30 of 30 compares the chain of merged groups with a reference that merges "
        "groups as well. It shows that the chain is "
        "implemented as intended, not that it draws from Fisher's law.",
    ]
    return Table("Kolmogorov-Smirnov tests, ω₂ varied", columns, rows, notes)


def _study(results: Results, study: str, symbol: str, urn: str) -> Table:
    rows: list[list[str | float]] = []
    for record in of_study(results, study):
        row: list[str | float] = [f"{record['value']:g}"]
        for comparison in COMPARISONS:
            row += [
                f"{max(record[comparison]['distances']):.4f}",
                _probability(min(record[comparison]["corrected"])),
            ]
        row += [" / ".join(f"{distance:.3f}" for distance in record["laws_apart"])]
        row += [" / ".join(f"{record['means'][law][0]:.1f}" for law in ("exact", "merged"))]
        rows.append(row)
    columns = [symbol]
    for name in ("paper's test", "exact sampler", "merged chain"):
        columns += [f"{name}: distance", f"{name}: p"]
    columns += ["laws apart, groups 1 / 2 / 3", "mean of group 1: Fisher / merged"]
    notes = [
        f"{urn} Distance: the largest of the three groups. p: the smallest of the three after "
        "correction. Laws apart: max |F - G| "
        "between Fisher's law and the chain's, computed without any draws.",
    ]
    if study != "weight":
        notes.append(f"The paper shows its values of {symbol} in a plot only; these are ours.")
    return Table(f"Kolmogorov-Smirnov distances, {symbol} varied", columns, rows, notes)


def _probability(p: float) -> str:
    return f"{p:.3f}" if p >= 5e-4 else "< 0.001"


def _remark(results: Results) -> Table:
    rows = []
    for record in of_study(results, "weight"):
        remark = record["remark"]
        row = [
            f"{value:.2g}" if value > 1e-12 else "0"
            for pair in zip(remark["divergence"], remark["total_variation"], strict=True)
            for value in pair
        ]
        rows.append(
            [
                f"{record['value']:g}",
                *row,
                "1, " + ", ".join(f"{weight:.3f}" for weight in remark["weights"][1:]),
            ]
        )
    columns = [
        "ω₂",
        "KL at ω",
        "total variation at ω",
        "smallest KL",
        "total variation there",
        "ω̃ that attains it",
    ]
    notes = [
        "KL(Fisher(ω) ‖ merged chain(ω̃)) in nats, summed over all outcomes. Smallest over ω̃, "
        "which Newton's method finds.",
        "The paper says that a different ω makes up for the merge. It nearly does, as far as the "
        "law of the draws goes; but that ω̃ is not "
        "the urn's ω, and groups 1 and 3, equal in the urn, get different weights: they depend on "
        "the order in which groups are drawn.",
    ]
    return Table("Can a different ω make up for the merge?", columns, rows, notes)


def _levels(results: Results) -> Table:
    rows: list[list[str | int]] = []
    for record in of_study(results, "level"):
        row: list[str | int] = [f"{record['value']:g}", 3 * record["seeds"]]
        expected = record["seeds"] * sum(record["levels"])
        plain = np.array(record["exact"]["p_values"])
        # The three counts of an urn sum to n, so its three tests are not independent: the error
        # comes from whole repetitions.
        error = float(plain.std(ddof=1) * np.sqrt(len(plain)))
        row += [int(plain.sum()), f"{expected:.1f}", f"{error:.1f}"]
        row += [sum(found > 0 for found in record["exact"]["corrected"])]
        row += [
            sum(record["paper"]["p_values"]),
            sum(found > 0 for found in record["paper"]["corrected"]),
        ]
        rows.append(row)
    columns = [
        "ω₂",
        "tests",
        "exact sampler: rejected",
        "expected",
        "± error",
        "exact sampler: urns, corrected",
    ]
    columns += ["paper's test: rejected", "paper's test: urns, corrected"]
    notes = [
        f"{results.options.level_seeds} repetitions of {results.options.samples:,} draws, tests at "
        "5 %; an urn is rejected if any of its "
        "three corrected p-values is. Expected: from the exact probability of rejecting by chance, "
        "just below 5 % for a discrete law.",
        "Paper's test: two samples of the merged chain's own law, drawn as multinomial counts of "
        "all outcomes.",
    ]
    return Table("How often true nulls are rejected", columns, rows, notes)


def figure(results: Results) -> dict[str, Figure]:
    figures = {
        f"ks-{study}": ks_figure.study(of_study(results, study), *heading)
        for study, heading in ks_figure.STUDIES.items()
    }
    return {**figures, "ks-remark": ks_figure.remark(of_study(results, "weight"))}


def run(
    options: Options,
    out: Path | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Results:
    return harness.run(sys.modules[__name__], options, out, engine, progress)
