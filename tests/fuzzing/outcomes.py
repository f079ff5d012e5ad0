"""Outcomes of many urns at once: near the centre, at its sides, in the far tails and at the ends of
the support.
"""

from __future__ import annotations

import numpy as np

from fuzzing.families import Batch, Floats, Integers
from fuzzing.reference import Extended, Reference


def complete(near: Floats, sizes: Integers, draws: Integers, order: Integers) -> Integers:
    """Whole counts next to ``near`` within the sizes; what is missing from n, or too much, is
    settled group by group in ``order``.
    """
    counts = np.clip(np.rint(near), 0, sizes).astype(np.int64)
    for place in range(order.shape[1]):
        group = order[:, place : place + 1]
        missing = (draws - counts.sum(-1))[:, None]
        held, room = (
            np.take_along_axis(counts, group, 1),
            np.take_along_axis(sizes - counts, group, 1),
        )
        np.put_along_axis(counts, group, held + np.clip(missing, -held, room), 1)
    return counts


def fluid(batch: Batch) -> tuple[Floats, Floats]:
    """Wallenius' means, roughly: m (1 - e^{-ωs}) at the s where they sum to n; and the variances of
    independent binomials there.
    """
    sizes, draws = batch.drawable, batch.draws
    log_weights = np.where(sizes > 0, batch.exact_log_weights, 0.0)

    def drawn(log_time: Extended) -> Extended:
        return -sizes * np.expm1(-np.exp(np.minimum(log_weights + log_time[:, None], 9.0)))

    low, high = (
        np.full(len(draws), -3000.0, np.longdouble),
        np.full(len(draws), 3000.0, np.longdouble),
    )
    for _ in range(60):
        middle = (low + high) / 2
        too_low = drawn(middle).sum(-1) < draws
        low, high = np.where(too_low, middle, low), np.where(too_low, high, middle)
    mean = drawn(low).astype(float)
    return mean, mean * (1 - mean / np.maximum(sizes, 1))


def probes(batch: Batch, mean: Floats, spread: Floats, rng: np.random.Generator) -> Integers:
    """Counts (B, K, c): the centre, two typical outcomes, some at 6 and 40 deviations, and the two
    extremes.
    """
    sizes, draws = batch.drawable, batch.draws
    widest = np.argsort(-spread, axis=1, kind="stable")
    heaviest = np.argsort(-batch.log_weights, axis=1, kind="stable")
    pull = spread / np.maximum(spread.sum(-1, keepdims=True), 1e-300)
    found = [complete(mean, sizes, draws, widest)]
    for deviations in (1.0, 1.0, 6.0, 40.0):
        step = deviations * np.sqrt(spread) * rng.standard_normal(mean.shape)
        found.append(
            complete(mean + step - pull * step.sum(-1, keepdims=True), sizes, draws, widest)
        )
    found.extend(
        complete(np.zeros_like(mean), sizes, draws, order)
        for order in (heaviest, heaviest[:, ::-1])
    )
    return np.stack(found, 1)


def exchange(
    batch: Batch, counts: Integers, rng: np.random.Generator
) -> tuple[Integers, Integers, Integers]:
    """Urns in which a ball can change its group, the group that gains it and the one that loses it,
    chosen at random.
    """
    room, held = counts < batch.drawable, counts > 0
    keys = rng.random((2, *counts.shape))
    to = np.where(room, keys[0], -1.0).argmax(1)
    held = held & (np.arange(counts.shape[1]) != to[:, None])
    source = np.where(held, keys[1], -1.0).argmax(1)
    possible = room.any(1) & held.any(1)
    return np.flatnonzero(possible), to[possible], source[possible]


def centre_and_spread(batch: Batch, law: str) -> tuple[Floats, Floats]:
    """Where the outcomes of a law lie."""
    if law == "wallenius":
        return fluid(batch)
    reference = Reference(batch)
    return reference.mean, reference.spread
