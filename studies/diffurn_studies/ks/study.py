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

The latter two test one sample against a known discrete law, with exact p-values (`kolmogorov`). A
level study counts how often true null hypotheses are rejected: "none of 30 rejected" has to be
compared with that. The paper says that a different ω makes up for the merge, so the divergence at
the best ω̃ is computed, too, exactly.

Run it with ``diffurn reproduce ks``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from diffurn_studies.harness.study import Results
from diffurn_studies.harness.tables import Table
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.ks.comparisons import level_record, remark_record, urn_record
from diffurn_studies.ks.figure import CAPTIONS as CAPTIONS
from diffurn_studies.ks.figure import figures_of
from diffurn_studies.ks.options import Options
from diffurn_studies.ks.tables import tables_of, verdict_of
from diffurn_studies.ks.urns import settings

NAME = "ks"


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


def table(results: Results) -> list[Table]:
    return tables_of(results)


def verdict(results: Results) -> list[str]:
    return verdict_of(results)


def figure(results: Results) -> dict[str, Figure]:
    return figures_of(results)
