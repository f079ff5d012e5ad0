"""The laws that the samplers' own tables and acceptance ratios imply, without chance, against the
exact one.

Chi-square tests of draws, in test_sampling.py, cannot see a bias much below a percent; here a total
variation of 1e-10 is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor

from diffurn._fisher.sampling import rejection
from diffurn._fisher.sampling.alias import Alias
from diffurn._fisher.sampling.tree import Outcomes, Split, Tree
from support import oracles
from support.goodness import Mass, binomial, tilted_log_odds
from support.samplers import (
    FEW_OUTCOMES,
    TABLED,
    Chance,
    by_rejection,
    outcomes_and_probabilities,
    tilted,
)
from support.urns import Urn, by_name

# --------------------------------------------------------------------------------------------------
# Splits and proposals
# --------------------------------------------------------------------------------------------------

LARGEST_DISTANCE = 1e-10  # in total variation
MEDIUM = (
    by_name("paper-200x3-odds-10"),
    Urn("2000x3", (2000, 2000, 2000), 2300, (0.0, 1.3, -0.6)),
    Urn(
        "20000x3", (20_000, 20_000, 20_000), 23_000, (0.0, 1.3, -0.6)
    ),  # nearly as many cells as the distribution ever builds
)


def conditional_probabilities(split: Split) -> np.ndarray:
    """P(left = lookup.lowest + column | total = lowest_total + row), as the table at a split has
    it.
    """
    lookup = split.lookup
    steps = (
        lookup.steps.cpu().numpy().reshape(lookup.rows, lookup.columns)
        - np.arange(lookup.rows)[:, None]
    )
    return np.diff(steps, axis=1, prepend=0.0)


def splits(node: Split | None, first: int = 0) -> Iterator[tuple[Split, range, range]]:
    """All splits, the topmost first, with the groups to their left and to their right."""
    if node is not None:
        middle = first + leaves(node.left)
        yield node, range(first, middle), range(middle, middle + leaves(node.right))
        yield from splits(node.left, first)
        yield from splits(node.right, middle)


def leaves(node: Split | None) -> int:
    return 1 if node is None else leaves(node.left) + leaves(node.right)


@pytest.mark.parametrize("urn", FEW_OUTCOMES, ids=str)
def test_tables_imply_the_enumerated_law(urn: Urn, device: torch.device) -> None:
    outcomes, exact = outcomes_and_probabilities(urn)
    implied = np.ones(len(outcomes))
    for split, left_groups, right_groups in splits(Tree.build(*tilted(urn, device)).root):
        left = outcomes[:, left_groups].sum(1)
        row, column = (
            left + outcomes[:, right_groups].sum(1) - split.lowest_total,
            left - split.lookup.lowest,
        )
        table = conditional_probabilities(split)
        known = (row >= 0) & (row < table.shape[0]) & (column >= 0) & (column < table.shape[1])
        implied *= np.where(known, table[np.where(known, row, 0), np.where(known, column, 0)], 0.0)
    distance = 0.5 * (
        np.abs(implied - exact).sum() + abs(1 - implied.sum())
    )  # what is missing went to impossible outcomes
    assert distance <= LARGEST_DISTANCE


def distance_of_tables(urn: Urn, tree: Tree) -> float:
    """A bound on the total variation: Σ over the splits of E[distance between conditional laws],
    the totals having their exact law.
    """
    groups = [binomial(m, eta) for m, eta in zip(urn.drawable, tilted_log_odds(urn), strict=True)]
    totals = {
        range(urn.groups): Mass(urn.draws, np.ones(1))
    }  # P(total of a node), given n at the root
    distance = 0.0
    for split, left_groups, right_groups in splits(tree.root):
        left, right = (
            sum((groups[j] for j in chosen), start=Mass(0, np.ones(1)))
            for chosen in (left_groups, right_groups)
        )
        node = totals.pop(range(left_groups.start, right_groups.stop))
        table = conditional_probabilities(split)
        of_left, of_right = np.zeros(len(left.mass)), np.zeros(len(right.mass))
        for count, probability in zip(node.counts, node.mass, strict=True):
            if probability < 1e-25:
                continue
            exact = left.mass * right.at(count - left.counts)
            exact *= probability / exact.sum()
            of_left += exact
            right_counts = count - left.counts - right.lowest
            possible = exact > 0
            of_right[right_counts[possible]] += exact[possible]
            row = count - split.lowest_total
            known = 0 <= row < len(table)
            implied = (
                probability * Mass(split.lookup.lowest, table[row]).at(left.counts)
                if known
                else np.zeros_like(exact)
            )
            distance += 0.5 * (np.abs(implied - exact).sum() + abs(probability - implied.sum()))
        totals |= {
            left_groups: Mass(left.lowest, of_left),
            right_groups: Mass(right.lowest, of_right),
        }
    return float(distance)


@pytest.mark.parametrize("urn", [*MEDIUM, *TABLED], ids=str)
def test_tables_imply_the_exact_conditionals(urn: Urn, device: torch.device) -> None:
    assert distance_of_tables(urn, Tree.build(*tilted(urn, device))) <= LARGEST_DISTANCE


class EveryProposal(Chance):
    """Stands in for chance in the rejection sampler: row i is proposed the i-th of all counts.

    The group that is not proposed decides. The uniform number that it compares with the acceptance
    probability Bin(left)/Bin(peak) is that probability, from SciPy's gamma function, times `luck`.
    With luck just below one the sampler accepts all possible proposals, just above one it accepts
    none. Rows that are left over then get a proposal and a number that end the loop.
    """

    def __init__(self, log_odds: Tensor, group_sizes: Tensor, draws: Tensor, luck: float) -> None:
        super().__init__({torch.binomial: self.propose, torch.rand: self.decide})
        self.log_odds, self.group_sizes = log_odds.tolist(), group_sizes.to(torch.int64).tolist()
        self.draws, self.luck, self.rounds = int(draws), luck, 0

    def propose(self, sizes: Tensor, probabilities: Tensor, generator: None) -> Tensor:
        self.rounds += 1
        if self.rounds > 1:
            return self.proposals[self.accepted.argmax()].expand_as(sizes)
        self.sizes, self.probabilities = (
            sizes[0].to(torch.int64).tolist(),
            probabilities[0].tolist(),
        )
        index = np.arange(len(sizes)) % math.prod(size + 1 for size in self.sizes)
        counts = np.stack(np.unravel_index(index, [size + 1 for size in self.sizes]), 1)
        self.proposals = torch.tensor(counts, dtype=sizes.dtype, device=sizes.device)
        return self.proposals

    def decide(self, shape: torch.Size, generator: None, **options: Any) -> Tensor:
        if self.rounds > 1:
            return torch.zeros(shape, **options)
        log_ratio = self._log_ratio(self._left())
        self.accepted = np.exp(log_ratio)
        # Below e^-600 the ratio underflows.
        uniform = np.where(log_ratio > -600.0, self.accepted * self.luck, 1.0)
        return torch.tensor(uniform, **options)

    def _left(self) -> np.ndarray:
        """The draws left to the group that decides; of common balls those left are proposed."""
        rarer = self.proposals.cpu().numpy().astype(np.int64)
        drawn = np.where(np.array(self.log_odds) > 0, np.array(self.sizes) - rarer, rarer)
        return self.draws - drawn.sum(1)

    def _log_ratio(self, left: np.ndarray) -> np.ndarray:
        """log Bin(left) - log Bin(peak) of the group that decides, which is proposed no balls."""
        pairs = enumerate(zip(self.group_sizes, self.sizes, strict=True))
        deciding = [j for j, (own, proposed) in pairs if own > proposed] or [0]  # an empty urn: any
        assert len(deciding) == 1
        size, log_odds = self.group_sizes[deciding[0]], self.log_odds[deciding[0]]
        counts = np.arange(size + 1)
        log_mass = -special.gammaln(counts + 1) - special.gammaln(size - counts + 1)
        log_mass = log_mass + counts * log_odds
        possible = (left >= 0) & (left <= size)
        own = np.where(possible, log_mass[np.where(possible, left, 0)], -np.inf)
        return own - log_mass.max()

    def proposed_and_accepted(self) -> np.ndarray:
        """The probability of each proposal, times that of its acceptance."""
        different = math.prod(size + 1 for size in self.sizes)  # later rows are repetitions
        proposed = np.ones(different)
        for column, size, p in zip(
            self.proposals[:different].cpu().numpy().T, self.sizes, self.probabilities, strict=True
        ):
            proposed *= (
                binomial(size, float(special.logit(p))).at(column.astype(np.int64)) if size else 1.0
            )
        return proposed * self.accepted[:different]


def number_of_proposals(urn: Urn) -> int:
    """At most, whichever group decides."""
    return math.prod(m + 1 for m in urn.group_sizes) // (min(urn.group_sizes) + 1)


CLOSE = 1e-11  # relative, of the acceptance probability to the one that the tests compute
PROPOSABLE = [
    urn for urn in (*FEW_OUTCOMES, MEDIUM[0]) if urn.groups * number_of_proposals(urn) <= 1 << 18
]  # tried in one go


@pytest.mark.parametrize("urn", PROPOSABLE, ids=str)
def test_acceptance_implies_the_exact_law(urn: Urn, device: torch.device) -> None:
    """∏ Bin(proposed) · Bin(left)/Bin(peak), normalised: wrong if, for one, the peak is not the
    largest mass.
    """
    parameters, number = tilted(urn, device), max(number_of_proposals(urn), 32)
    with EveryProposal(*parameters, luck=1 - CLOSE) as proposals:
        counts = by_rejection(parameters, number).to(torch.int64).cpu().numpy()
    weights = proposals.proposed_and_accepted()
    implied: dict[tuple[int, ...], float] = {}
    for outcome, weight in zip(map(tuple, counts.tolist()), weights / weights.sum(), strict=False):
        implied[outcome] = implied.get(outcome, 0.0) + weight
    exact = exact_probabilities(urn, np.array(list(implied)))
    assert (
        0.5 * (np.abs(np.array(list(implied.values())) - exact).sum() + abs(1 - exact.sum()))
        <= LARGEST_DISTANCE
    )


@pytest.mark.parametrize("urn", PROPOSABLE, ids=str)
def test_nothing_is_accepted_more_often(urn: Urn, device: torch.device) -> None:
    """Than Bin(left)/Bin(peak), which the test above took the acceptance probability to be."""
    parameters, number = tilted(urn, device), max(number_of_proposals(urn), 32)
    with EveryProposal(*parameters, luck=1 + CLOSE) as proposals:
        counts = by_rejection(parameters, number)
    assert proposals.rounds > 1, "accepted in the first round"
    assert (counts == counts[0]).all(), "accepted in the first round"


MANY_DECIDE = (
    by_name("medium-spread1-c50-N1e4-n6e3-46"),
    by_name("subset-spread3-c50-N5e1-n2e1-129"),
    by_name("almost-sure-ladder"),
    by_name("large-spread1-c5-N1e9-n1e3-76"),
    Urn("300x40", (300,) * 40, 7000, tuple(0.1 * j for j in range(40))),
)


@pytest.mark.parametrize("urn", MANY_DECIDE, ids=str)
def test_blocks_accept_by_the_mass_of_their_sum(urn: Urn, device: torch.device) -> None:
    """All groups as the block: of whatever is left, from far below its mean to far above, the ratio
    to the largest mass.
    """
    log_odds, group_sizes, _ = (operand.unsqueeze(0) for operand in tilted(urn, device))
    groups = [
        binomial(int(m), float(eta))
        for m, eta in zip(group_sizes[0].tolist(), log_odds[0].tolist(), strict=True)
    ]
    exact = sum(groups[1:], start=groups[0])
    left = np.arange(max(-5, exact.lowest - 500), exact.lowest + len(exact.mass) + 500)
    block = rejection._Block.of(log_odds, group_sizes)
    rows = torch.zeros(len(left), dtype=torch.int64, device=device)
    ratio = (
        block.log_ratio(torch.tensor(left, dtype=torch.float64, device=device), rows)
        .exp()
        .cpu()
        .numpy()
    )
    assert np.abs(ratio - exact.at(left) / exact.mass.max()).max() <= 1e-11


def exact_probabilities(urn: Urn, outcomes: np.ndarray) -> np.ndarray:
    if urn in FEW_OUTCOMES:
        return np.exp([float(oracles.enumeration(urn).log_prob(x)) for x in outcomes.tolist()])
    groups = [binomial(m, eta) for m, eta in zip(urn.drawable, tilted_log_odds(urn), strict=True)]
    everything = sum(groups, start=Mass(0, np.ones(1)))
    return np.prod(
        [group.at(x) for group, x in zip(groups, outcomes.T, strict=True)], 0
    ) / everything.at(np.array(urn.draws))


# --------------------------------------------------------------------------------------------------
# Alias tables, chains and tables of all outcomes
# --------------------------------------------------------------------------------------------------


def some_masses(device: torch.device) -> dict[str, Tensor]:
    """Rows of every kind that a prefix sum may stumble over."""
    steep = torch.rand(40, 50, device=device) ** 30 * (torch.rand(40, 50, device=device) < 0.7)
    steep[:, 17] += 1e-3
    x = torch.linspace(-8.0, 8.0, 1000, device=device)
    return {
        "steep": steep,
        "bells": torch.exp(
            -0.5 * (x - torch.linspace(-3.0, 3.0, 20, device=device).unsqueeze(-1)) ** 2
        ),
        "one-column": torch.rand(5, 1, device=device),
        "equal": torch.ones(3, 8, device=device),
        "equal-not-a-power-of-two": torch.ones(3, 7, device=device),
        "halves": torch.tensor(
            [
                [0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
                [0.0, 0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0],
            ],
            device=device,
        ),
        "sure": torch.eye(9, device=device),
        "tiny": torch.tensor([[1e-300, 3e-300, 0.0], [1.0, 1e-12, 1e-15]], device=device),
    }


@pytest.mark.parametrize(
    "kind",
    ["steep", "bells", "one-column", "equal", "equal-not-a-power-of-two", "halves", "sure", "tiny"],
)
def test_aliases_have_the_law_of_their_masses(kind: str, device: torch.device) -> None:
    """Counted from the limits, places and choices themselves; what is rare is right in
    proportion.
    """
    mass = some_masses(device)[kind]
    alias = Alias.build(mass, lowest=3)
    whole, places = 2**63, alias.places
    implied = np.zeros(mass.shape)
    limits, choices = (
        alias.limits.reshape(len(mass), places).tolist(),
        alias.choices.reshape(len(mass), places, 2).tolist(),
    )
    for row in range(len(mass)):
        for place in range(places):
            start, limit, end = (
                place * (whole // places),
                limits[row][place],
                (place + 1) * (whole // places),
            )
            assert start <= limit <= end
            for column, length in zip(
                choices[row][place], (limit - start, end - limit), strict=True
            ):
                implied[row, column - 3] += length / whole
    exact = (mass / mass.sum(-1, keepdim=True)).cpu().numpy()
    np.testing.assert_allclose(implied, exact, rtol=1e-11, atol=2.0**-62)
    steps = alias.steps.reshape(mass.shape).cpu().numpy() - np.arange(len(mass))[:, None]
    np.testing.assert_allclose(steps, implied.cumsum(-1), atol=1e-12)


@pytest.mark.parametrize("end", [0, 2**63 - 1], ids=["no-bits", "all-bits"])
@pytest.mark.parametrize(
    "kind", ["steep", "one-column", "equal", "equal-not-a-power-of-two", "halves", "sure", "tiny"]
)
def test_aliases_never_choose_what_has_no_mass(kind: str, end: int, device: torch.device) -> None:
    mass = some_masses(device)[kind]
    with Chance({Tensor.random_: lambda bits: bits.fill_(end)}):
        column = Alias.build(mass).draw(torch.arange(len(mass), device=device))
    assert (mass.gather(-1, column.unsqueeze(-1)) > 0).all()


@pytest.mark.parametrize(
    "urn",
    [MEDIUM[0], *(urn for urn in TABLED if urn.groups <= 20 and urn.population <= 10**4)],
    ids=str,
)
def test_chains_imply_the_exact_conditionals(urn: Urn, device: torch.device) -> None:
    assert distance_of_tables(urn, Tree.build(*tilted(urn, device), chain=True)) <= LARGEST_DISTANCE


@pytest.mark.parametrize("urn", [urn for urn in PROPOSABLE if urn.groups > 1], ids=str)
def test_tables_of_all_outcomes_imply_the_exact_law(urn: Urn, device: torch.device) -> None:
    outcomes = Outcomes.build(*tilted(urn, device), torch.float64)
    own = (outcomes.lookup.limits % (1 << outcomes.lookup.shift)).double() / 2.0**63
    shares = torch.stack([own, 1 / outcomes.lookup.places - own], -1).flatten()
    listed, index = outcomes.counts.unique(dim=0, return_inverse=True)
    implied = shares.new_zeros(len(listed)).scatter_add(0, index, shares).cpu().numpy()
    possible = (
        ((listed >= 0) & (listed <= torch.tensor(urn.drawable, device=device)))
        .all(-1)
        .cpu()
        .numpy()
    )
    assert implied[~possible].sum() == 0.0
    exact = exact_probabilities(urn, listed[torch.tensor(possible)].to(torch.int64).cpu().numpy())
    assert (
        0.5 * (np.abs(implied[possible] - exact).sum() + abs(1 - exact.sum())) <= LARGEST_DISTANCE
    )
