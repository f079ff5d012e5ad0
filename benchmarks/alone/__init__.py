"""Jobs of this package that no peer offers, as cells.

Every cell uses the public interface only; see `benchmarks.ours`.
"""

from benchmarks.alone import inference, operations, partitions, steps, subsets
from benchmarks.ours import Cell


def cells() -> list[Cell]:
    """All cells of this folder."""
    parts = (
        operations.constructors,
        operations.operations,
        operations.kept_urns,
        operations.many_draws,
        operations.wide_urns,
        operations.wallenius,
        operations.cdf_along_m,
        subsets.draws,
        subsets.normalisers,
        subsets.wallenius,
        partitions.values,
        partitions.gradients,
        steps.estimators,
        steps.training_steps,
        steps.compiled_steps,
        inference.exact_tests,
        inference.fits,
        inference.strata,
    )
    return [cell for part in parts for cell in part()]
