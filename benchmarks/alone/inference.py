"""Cells of exact tests, of fits of whole tables and of conditional logistic regression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from benchmarks import survival
from benchmarks.cells import short
from benchmarks.ours import Cell, Inputs, Run
from diffurn import FisherHypergeometric, clogit, exact_test, fit


def exact_tests() -> Iterator[Cell]:
    """Fisher's exact test of a hundred thousand 2×2 tables."""
    for alternative in ("two-sided", "less"):
        for largest in (30, 10**6):

            def prepare(
                inputs: Inputs, alternative: Any = alternative, largest: int = largest
            ) -> Run:
                generator = torch.Generator().manual_seed(0)
                tables = torch.randint(0, largest, (100_000, 2, 2), generator=generator)
                tables = tables.to(inputs.device)
                return lambda: exact_test(tables, alternative=alternative)

            name = f"exact_test, {alternative}: 100,000 tables with counts below {short(largest)}"
            yield Cell(name, 100_000, prepare)


def fits() -> Iterator[Cell]:
    """Fits of whole tables: rows with sizes of their own, many data sets at once, repeated rows,
    other laws and penalties, covariates.
    """
    yield _fit_of_rows("fit", 10_000, 10)
    yield _fit_of_rows("fit", 1_000_000, 4)
    yield _fit_of_rows("fit", 2000, 3)
    yield _fit_of_rows("fit, wallenius", 2000, 3, model="wallenius")
    yield _fit_of_rows("fit, Firth's penalty", 2000, 3, penalty="firth")
    yield _fit_with_covariates(2000, 3)
    many = [4000, 3000, 5000, 2500], 6000, [0.0, 1.0, -0.5, 0.5]
    for interval in ("wald", "profile"):
        name = f"fit, {interval} intervals: 20,000 data sets of one row, 4 groups"
        yield _fit_of_draws(name, *many, (20_000, 1), interval=interval, read="lower")
    one = [20, 30, 25], 30, [0.0, 1.0, -0.5]
    yield _fit_of_draws("fit: 1,000,000 draws of one urn", *one, (1_000_000,))


def strata() -> Iterator[Cell]:
    """Conditional logistic regression of one stratum with three covariates; a tenth of a long one
    are cases.
    """
    yield _of_stratum("diffurn", 784, 50)
    yield _of_stratum("R's survival", 784, 50)
    yield _of_stratum("diffurn", 1_000_000, 100_000)


def _of_stratum(name: str, rows: int, number: int) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        generator = torch.Generator().manual_seed(0)
        covariates = torch.randn(rows, 3, dtype=torch.float64, generator=generator)
        cases = torch.zeros(rows)
        cases[torch.randperm(rows, generator=generator)[:number]] = 1.0
        if name != "diffurn":
            return survival.fits(cases, covariates)
        cases, covariates = cases.to(inputs.device), covariates.to(inputs.device)
        return lambda: clogit(cases, covariates).coefficients

    return Cell(f"clogit, one stratum, {name}: {number:,} of {rows:,} rows", rows, prepare)


def _rows(inputs: Inputs, rows: int, groups: int) -> tuple[Tensor, Tensor]:
    """Counts and group sizes of rows with m and n of their own, for log ω between -1 and 1."""

    def draw() -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        sizes = torch.randint(5, 100, (rows, groups), generator=generator)
        draws = 1 + ((sizes.sum(-1) - 2) * torch.rand(rows, generator=generator)).long()
        log_weights = torch.linspace(-1, 1, groups, dtype=torch.float64)
        torch.manual_seed(0)
        return FisherHypergeometric(sizes, draws, log_weights=log_weights).sample(), sizes

    counts, sizes = inputs.kept(f"rows-{rows}-{groups}", draw)
    return counts.to(inputs.device), sizes.to(inputs.device)


def _fit_of_rows(name: str, rows: int, groups: int, **options: Any) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        counts, sizes = _rows(inputs, rows, groups)
        return lambda: fit(counts, sizes, **options)

    return Cell(f"{name}: {rows:,} rows, {groups} groups", rows, prepare)


def _fit_with_covariates(rows: int, groups: int) -> Cell:
    def prepare(inputs: Inputs) -> Run:
        counts, sizes = _rows(inputs, rows, groups)
        generator = torch.Generator().manual_seed(1)
        covariates = torch.randn(rows, groups, 2, dtype=torch.float64, generator=generator)
        covariates = covariates.to(inputs.device)
        return lambda: fit(counts, sizes, covariates=covariates)

    return Cell(f"fit, two covariates: {rows:,} rows, {groups} groups", rows, prepare)


def _fit_of_draws(
    name: str,
    sizes: list[int],
    draws: int,
    log_weights: list[float],
    shape: tuple[int, ...],
    read: str = "coefficients",
    **options: Any,
) -> Cell:
    """A fit and one of its results, since some are computed when they are read."""

    def prepare(inputs: Inputs) -> Run:
        group_sizes = torch.tensor(sizes, device=inputs.device)
        weights = torch.tensor(log_weights, dtype=torch.float64, device=inputs.device)

        def draw() -> Tensor:
            torch.manual_seed(0)
            return FisherHypergeometric(group_sizes, draws, log_weights=weights).sample(shape)

        counts = inputs.kept("draws-" + "-".join(map(str, (*sizes, draws))), draw)
        return lambda: getattr(fit(counts, group_sizes, **options), read)

    return Cell(name, shape[0], prepare)
