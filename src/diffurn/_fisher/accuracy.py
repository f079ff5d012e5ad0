"""The numbers that decide how accurate Fisher's law is, for PyTorch, for JAX and for kernels.

No module of a framework is imported here.
"""

from __future__ import annotations

# By Bernstein's inequality P(|S - ES| ≥ half_width) ≤ 2 e^-33. Aliased terms are masses of single
# totals, which are smaller.
TAIL_NATS = 33.0
# Nodes where |φ| is at most e^-36 do not matter.
NODE_NATS = 36.0
# The most nodes at which |φ| can exceed e^-36 if K is `span` half-widths. The maximum over all
# variances is at σ² ≈ 17.
NODES = {1: 25, 2: 49}
# Counts whose log-weight is this far below the largest are negligible for a softmax at temperature
# τ ≤ 1. At a higher temperature it is τ times as far.
WINDOW_NATS = 38.0
# Within so many nats of the peak one set of nodes gives the masses of all counts. A softmax of a
# high temperature needs more of the tails, where every count has its own nodes.
NEAR_NATS = 40.0
# Up to this many groups a c × c matrix product is faster than two cumulative sums.
FEW_GROUPS = 64

# The schedule of `tilt.log_tilt`; its docstring derives the numbers.
HASTY_STEPS, BISECTIONS, NEWTON_STEPS = 8, 10, 5
# Newton's method takes its last step when the mean is this close to its target, in standard
# deviations of the sum.
SETTLED = 0.01
# The smallest rounding error of a difference of two sums of positive float64 numbers, relative to
# the numbers.
ROUNDING = 1e-17

# The points of a grid over typical counts. With this many, a stride above one implies a variance
# ≥ 18, at which |φ(π)| ≤ e^-36: the marginal is smooth up to rounding.
GRID = 128

# A proposal of rejection sampling is accepted with a probability of at least 1/√c. So a row is
# still pending after 300 √c rounds with a probability below e^-300.
ROUNDS_PER_ROOT = 300
