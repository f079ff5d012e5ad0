"""The exact laws of an urn of the study: Fisher's, and that of the chain of merged groups."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from diffurn_studies.ks.kolmogorov import Array
from diffurn_studies.ks.urns import Setting, largest_counts
from diffurn_studies.merged_chain import merged_log_prob


def joint_laws(setting: Setting) -> tuple[Tensor, Tensor, Tensor]:
    """All outcomes, and the log-probability of each by Fisher's law and by the chain of merged
    groups.
    """
    urn = setting.urn
    outcomes = urn.enumerate_support()
    sizes = torch.tensor(setting.group_sizes)
    merged = merged_log_prob(outcomes, sizes, setting.draws, urn.log_weights)
    return outcomes, urn.log_prob(outcomes), merged


def marginals(setting: Setting) -> tuple[list[Array], list[Array]]:
    """P(X_j = 0), P(X_j = 1), … of every group by Fisher's law and by the chain."""
    outcomes, exact, merged = (values.numpy() for values in joint_laws(setting))

    def of_each_group(law: Array) -> list[Array]:
        columns = outcomes.astype(np.int64).T
        return [
            np.bincount(x, np.exp(law), size + 1).astype(np.float64)
            for x, size in zip(columns, largest_counts(setting), strict=True)
        ]

    return of_each_group(exact), of_each_group(merged)
