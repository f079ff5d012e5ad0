"""Exact draws by rejection sampling, in one loop that can be compiled.

Every group but the widest proposes a binomial count, and the widest one gets the rest of n, as in
`diffurn._fisher.sampling.rejection`, which derives the acceptance rate. Counts of a variance that
is not small are proposed by transformed rejection (W. Hörmann, *The generation of binomial random
variates*, 1993), others by inversion. Acceptance compares exact log-masses.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax, random, tree_util
from jax.nn import sigmoid

from diffurn._fisher.accuracy import ROUNDS_PER_ROOT
from diffurn.jax._binomial import log_pmf, variance

# Transformed rejection needs an expectation of at least so many successes.
_FEWEST_EXPECTED = 10.0
# With a smaller expectation, and p ≤ ½, more successes have a probability below 1e-30.
_MOST_INVERTED = 100
# A count is accepted with a probability above ¾, so this many steps for each round suffice.
_STEPS_PER_ROUND = 4
# So many rows are drawn side by side, or a part of many rows. Fewer lanes wait less for the row
# that takes longest.
_FEWEST_LANES = 256
_ROWS_OF_A_LANE = 16


class _State(NamedTuple):
    """Each of the W lanes works on one row; one that is done goes on to the next waiting row."""

    step: Array
    started: Array  # how many rows were given to lanes
    row: Array  # (W,); the number of rows if the lane has nothing to do
    counts: Array  # of the rarer outcome, (W, c)
    filled: Array  # whether the count of this proposal is there, (W, c)
    result: Array  # (R, c)


class _Binomial(NamedTuple):
    """Binomial(size, p) with p ≤ ½, and what its samplers need; all of one shape."""

    size: Array
    log_odds: Array
    p: Array
    mode: Array
    log_peak: Array

    @classmethod
    def of(cls, size: Array, log_odds: Array) -> _Binomial:
        p = sigmoid(log_odds)
        mode = jnp.minimum(jnp.floor((size + 1) * p), size)
        return cls(size, log_odds, p, mode, log_pmf(mode, size, log_odds))

    def log_ratio(self, count: Array) -> Array:
        """The log-mass of a count, relative to the largest one."""
        return log_pmf(count, self.size, self.log_odds) - self.log_peak

    @property
    def is_wide(self) -> Array:
        return self.size * self.p >= _FEWEST_EXPECTED

    def proposal(self, u: Array, v: Array, pending: Array) -> tuple[Array, Array]:
        """Counts, and whether each was accepted, where they are pending."""
        wide = self.is_wide & pending
        # Each way is taken only if some count needs it.
        counts, accepted = lax.cond(
            wide.any(),
            lambda: self._by_transformed_rejection(u, v),
            lambda: (jnp.zeros_like(u), jnp.zeros_like(wide)),
        )
        narrow = self._by_inversion(u, pending & ~wide)
        return jnp.where(wide, counts, narrow), accepted | ~wide

    def _by_transformed_rejection(self, u: Array, v: Array) -> tuple[Array, Array]:
        """A proposal, and whether it is accepted."""
        mean = jnp.maximum(self.size * self.p, _FEWEST_EXPECTED)
        deviation = jnp.sqrt(mean * (1 - self.p))
        b = 1.15 + 2.53 * deviation
        a = -0.0873 + 0.0248 * b + 0.01 * self.p
        u = u - 0.5
        distance = jnp.maximum(0.5 - jnp.abs(u), jnp.finfo(u.dtype).eps)
        count = jnp.floor((2 * a / distance + b) * u + (mean + 0.5))
        hat = (2.83 + 5.1 / b) * deviation / (a / (distance * distance) + b)
        return count, jnp.log(v * hat) <= self.log_ratio(count)

    def _by_inversion(self, u: Array, wanted: Array) -> Array:
        """The smallest count whose distribution function exceeds u, where it is wanted."""
        size = jnp.where(wanted, self.size, 0.0)
        odds = jnp.exp(self.log_odds)

        def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            count, mass, left = state
            goes_on = (left >= mass) & (count < size)
            following = mass * odds * (size - count) / (count + 1)
            return (
                jnp.where(goes_on, count + 1, count),
                jnp.where(goes_on, following, mass),
                jnp.where(goes_on, left - mass, -1.0),
            )

        def goes_on(state: tuple[Array, Array, Array]) -> Array:
            count, _, left = state
            return ((left >= 0) & (count < size) & (count < _MOST_INVERTED)).any()

        start = jnp.zeros_like(size), jnp.exp(size * jnp.log1p(-self.p)), u
        return lax.while_loop(goes_on, body, start)[0]


def draw(key: Array, log_odds: Array, group_sizes: Array, draws: Array, num_samples: int) -> Array:
    """Draws ``(num_samples, B, c)`` of urns with tilted log-odds ``(B, c)``; NaN if n is NaN."""
    urns, groups = log_odds.shape
    rows = num_samples * urns
    if not rows:
        return jnp.zeros((num_samples, urns, groups), log_odds.dtype)
    lanes = min(rows, max(_FEWEST_LANES, rows // _ROWS_OF_A_LANE))
    all_urns = _Urns.of(log_odds, group_sizes, draws)

    def body(state: _State) -> _State:
        urn = all_urns.at(state.row % urns)
        key_of_step = random.fold_in(key, state.step)
        u, v = random.uniform(key_of_step, (2, lanes, groups), log_odds.dtype)
        v = 1 - v  # never 0, whose logarithm would accept everything
        pending = ~(state.filled | urn.widest)
        counts, filled = urn.law.proposal(u, v, pending)
        counts = jnp.where(pending, counts, state.counts)
        filled = filled | ~pending
        left = urn.draws - urn.in_balls(counts).sum(-1)
        decided, impossible = filled.all(-1), jnp.isnan(urn.draws)
        accepted = jnp.log(urn.of_widest(v)) < urn.decider.log_ratio(left)
        accepted = (decided & accepted) | impossible
        balls = jnp.where(urn.widest, left[:, None], urn.in_balls(counts))
        balls = jnp.where(impossible[:, None], jnp.nan, balls)
        result = state.result.at[jnp.where(accepted, state.row, rows)].set(balls, mode="drop")
        following = jnp.minimum(state.started + jnp.cumsum(accepted) - 1, rows)
        return _State(
            state.step + 1,
            jnp.minimum(state.started + accepted.sum(), rows),
            jnp.where(accepted, following, state.row),
            counts,
            filled & ~decided[:, None],
            result,
        )

    # Lanes of impossible urns would go on for ever.
    rounds = ROUNDS_PER_ROOT * (math.isqrt(groups) + 1)
    most_steps = _STEPS_PER_ROUND * rounds * -(-rows // lanes)
    start = _State(
        jnp.zeros((), int),
        jnp.full((), lanes, int),
        jnp.arange(lanes),
        jnp.zeros((lanes, groups), log_odds.dtype),
        jnp.zeros((lanes, groups), bool),
        jnp.full((rows, groups), jnp.nan, log_odds.dtype),
    )

    def goes_on(state: _State) -> Array:
        return (state.step < most_steps) & (state.row < rows).any()

    result = lax.while_loop(goes_on, body, start).result
    return result.reshape(num_samples, urns, groups)


class _Urns(NamedTuple):
    """Urns of `draw`, with the laws of their proposals."""

    draws: Array  # (B,)
    often: Array  # whether balls of the group are drawn with p > ½, (B, c)
    widest: Array  # whether the group is the widest one, which decides, (B, c)
    law: _Binomial  # of the rarer outcome of each group but the widest, (B, c)
    decider: _Binomial  # of the widest group, (B,)

    @classmethod
    def of(cls, log_odds: Array, group_sizes: Array, draws: Array) -> _Urns:
        groups = log_odds.shape[-1]
        widest = jnp.arange(groups) == variance(group_sizes, log_odds).argmax(-1)[:, None]
        of_widest = (jnp.where(widest, each, 0.0).sum(-1) for each in (group_sizes, log_odds))
        # The rarer of success and failure is drawn, so that its probability is accurate.
        law = _Binomial.of(jnp.where(widest, 0.0, group_sizes), -jnp.abs(log_odds))
        return cls(draws, log_odds > 0, widest, law, _Binomial.of(*of_widest))

    def at(self, place: Array) -> _Urns:
        urns: _Urns = tree_util.tree_map(lambda each: each[place], self)
        return urns

    def of_widest(self, values: Array) -> Array:
        return jnp.where(self.widest, values, 0.0).sum(-1)

    def in_balls(self, counts: Array) -> Array:
        """The balls that are drawn of each group but the widest."""
        counts = jnp.where(self.widest, 0.0, counts)
        return jnp.where(self.often, self.law.size - counts, counts)
