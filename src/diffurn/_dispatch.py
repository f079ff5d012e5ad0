"""Which algorithm computes an urn: the only code that compares costs.

Each function takes an urn and returns a law (`diffurn._law`). It looks at the sizes, at the device,
at the number of draws, and at what torch is doing: reading a value is impossible while it compiles
or transforms, and a GPU would have to be waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from diffurn._composition import Composition
from diffurn._fisher.equal_weights import EqualWeights
from diffurn._fisher.quadrature import FisherLaw, Quadrature
from diffurn._fisher.sampling.rejection import FEWEST_GROUPS_FOR_BLOCKS, counts_proposed
from diffurn._fisher.sampling.tables import AliasTables, PlainUrns
from diffurn._fisher.single_balls import SingleBalls as FisherSingleBalls
from diffurn._fisher.tabulated import Tabulated
from diffurn._kernels.dispatch import can_call, has_kernels, is_eager
from diffurn._numerics.autograd import asks_for_derivative, is_transforming
from diffurn._numerics.enumeration import enumerate_counts
from diffurn._numerics.tracing import can_check, can_read
from diffurn._wallenius.integral import FARTHEST, Integral
from diffurn._wallenius.outcomes import OutcomeTable
from diffurn._wallenius.sequential import Sequential, States
from diffurn._wallenius.single_balls import SingleBalls

if TYPE_CHECKING:
    from diffurn._urn import Urn

# --------------------------------------------------------------------------------------------------
# Fisher's law
# --------------------------------------------------------------------------------------------------

# Tables over the support pay up to this many cells of a batch, measured on one CPU core. Beyond it,
# tables of so many cells an urn still pay; those of more than two groups, which are convolved, do
# not. Where operations wait for their launch rather than for memory, more cells pay.
_CELLS_OF_A_BATCH = 1 << 17
_CELLS_OF_EACH = {2: 160, 3: 0}
_CELLS_PER_LAUNCH = 32

# Alias tables pay if filling them costs less than it saves. In the time that rejection proposes one
# count, three cells are filled, or a hundredth where kernels propose. Setting up a split costs five
# thousand. Earlier calls must not matter, or seeds would not decide draws.
_CELLS_PER_PROPOSED_COUNT = 3.0
_CELLS_PER_COUNT_OF_KERNELS = 0.01
_CELLS_PER_SPLIT = 5000
_MOST_CELLS = 1 << 22
# One table of all outcomes pays while it fits the cache, and from so many draws per outcome on.
_MOST_OUTCOMES = 1 << 16
_DRAWS_PER_OUTCOME = 8
# Kernels walk a chain, whose cells grow like c^1.5; beyond, a balanced tree without them is faster.
_LONGEST_CHAIN = 64


# C kernels for quadratures pay up to so many draws of all urns, where tables wait for their
# operations; further draws of two groups take a third of the time. For three and more groups they
# also pay up to so many draws of each urn.
_DRAWS_BY_KERNELS = {2: 64, 3: 512}
_FURTHER_DRAWS = {2: 3, 3: 1}
_DRAWS_OF_EACH_BY_KERNELS = {2: 0, 3: 4}
# For many draws they prepare strips of an urn of fewer than 128 groups. They always draw a single
# urn, and a batch from so many draws of each urn on.
_DRAWS_OF_EACH_PREPARED_URN = 200
# For three and more groups one table of all outcomes is faster still, from so many draws on.
_DRAWS_OF_A_TABLE_IN_C = 300_000


def fisher(urn: Urn) -> Quadrature:
    """By quadratures, which suit every urn."""
    return _quadrature(urn)(*urn._operands())


def _quadrature(urn: Urn) -> type[Quadrature]:
    return FisherSingleBalls if urn._has_single_balls() else Quadrature


def fisher_for_values(urn: Urn, *inputs: Tensor) -> FisherLaw:
    """For probabilities and moments; derivatives in the inputs may be asked for."""
    facts = urn._facts()
    if (
        facts is not None
        and facts.equal_weights
        and not any(map(asks_for_derivative, (urn._given, *inputs)))
    ):
        return EqualWeights(_rows_in_memory(urn.group_sizes).double(), urn.draws.double())
    if _kernels_pay(urn, 0):
        return fisher(urn)
    return _tabulated(urn, 0) or fisher(urn)


def _rows_in_memory(rows: Tensor) -> Tensor:
    """One row if all are the same row in memory."""
    for dimension in range(rows.ndim - 1):
        if rows.shape[dimension] > 1 and rows.stride(dimension) == 0:
            rows = rows.narrow(dimension, 0, 1)
    return rows


def fisher_for_draws(urn: Urn, num_samples: int) -> FisherLaw:
    """For so many draws of each urn."""
    if _kernels_pay(urn, num_samples):
        if num_samples >= _DRAWS_OF_A_TABLE_IN_C and urn.event_shape[0] > 2:
            table = _alias_tables(urn._operands(), num_samples)
            if table is not None and table.kind == "outcomes":
                return table
        return fisher(urn)
    small = _tabulated(urn, num_samples)
    if small is not None:
        return small
    operands = urn._operands()
    return _alias_tables(operands, num_samples) or _quadrature(urn)(*operands)


def fisher_for_chains(urn: Urn, num_samples: int) -> FisherLaw:
    """For so many draws of each urn, group after group."""
    return _tabulated(urn, num_samples) or fisher(urn)


def draws_are_fused(urn: Urn, num_samples: int) -> bool:
    """Whether kernels draw from an urn's arguments, which saves launches, and no tables pay."""
    given = urn._given
    if not has_kernels(given.device) or not is_eager():
        return False
    if given.dtype not in (torch.float32, torch.float64):
        return False
    if not urn._is_log and asks_for_derivative(given):
        return False
    sizes = urn._composition
    if sizes is not None and _tables_pay(sizes, urn.batch_shape.numel(), num_samples, given.device):
        return False
    return _affordable_cells(urn.event_shape[0], num_samples, by_kernels=True) <= 0


def _kernels_pay(urn: Urn, num_samples: int) -> bool:
    """Whether quadratures by C kernels are faster than tables."""
    if not _has_kernels_on_cpu(urn):
        return False
    kind, urns = (3 if urn.event_shape[0] > 2 else 2), urn.batch_shape.numel()
    if urns * max(1, num_samples // _FURTHER_DRAWS[kind]) <= _DRAWS_BY_KERNELS[kind]:
        return True
    prepared = num_samples >= (1 if urns == 1 else _DRAWS_OF_EACH_PREPARED_URN)
    if prepared and urn.event_shape[0] < FEWEST_GROUPS_FOR_BLOCKS:
        return True
    return num_samples <= _DRAWS_OF_EACH_BY_KERNELS[kind] and kind > 2


def _has_kernels_on_cpu(urn: Urn) -> bool:
    """Whether C kernels may compute the urn."""
    return urn.draws.device.type == "cpu" and can_call()


def _tabulated(urn: Urn, num_samples: int) -> Tabulated | None:
    composition = urn._composition
    if composition is None:
        return None
    if not _tables_pay(composition, urn.batch_shape.numel(), num_samples, urn.draws.device):
        return None
    return Tabulated.build(composition, urn._finite_log_weights())


def _tables_pay(sizes: Composition, urns: int, num_samples: int, device: torch.device) -> bool:
    cells = urns * (sizes.groups - 1) * (sizes.cells + num_samples * sizes.width)
    affordable = urns * (1 + num_samples) * _CELLS_OF_EACH[min(sizes.groups, 3)]
    affordable += _CELLS_OF_A_BATCH
    if device.type != "cpu" or torch.compiler.is_compiling():
        affordable *= _CELLS_PER_LAUNCH
    return cells <= affordable


def _alias_tables(operands: tuple[Tensor, Tensor, Tensor], num_samples: int) -> AliasTables | None:
    log_weights, _, draws = operands
    groups, by_kernels = log_weights.shape[-1], has_kernels(draws.device)
    affordable = _affordable_cells(groups, num_samples, by_kernels)
    if affordable <= 0 or not draws.numel() or not can_check():
        return None
    urns = PlainUrns.read(*operands)
    if not urns.cells <= min(affordable, _MOST_CELLS):  # NaN for an urn that is not valid
        return None
    if groups > 1 and urns.outcomes <= min(_MOST_OUTCOMES, num_samples / _DRAWS_PER_OUTCOME):
        return AliasTables(urns, "outcomes", *operands)
    is_chain = by_kernels and groups <= _LONGEST_CHAIN
    return AliasTables(urns, "chain" if is_chain else "tree", *operands)


def _affordable_cells(groups: int, num_samples: int, by_kernels: bool) -> float:
    """The cells of alias tables that are filled in the time which so many draws save."""
    if by_kernels:
        saved = _CELLS_PER_COUNT_OF_KERNELS * groups**1.5
    else:
        saved = _CELLS_PER_PROPOSED_COUNT * counts_proposed(groups)
    return float(saved * num_samples - _CELLS_PER_SPLIT * groups)


# --------------------------------------------------------------------------------------------------
# Wallenius' law
# --------------------------------------------------------------------------------------------------

# Steps × states × groups up to which dynamic programming is faster than integrals over time.
_WORK_OF_AN_URN = 1 << 16
# The same for all urns together, where few probabilities are wanted: for each, and in any case.
_WORK_PER_PROBABILITY = 1500
_WORK_FOR_ANY = 1 << 17
# If C kernels do both, a probability is integrated in the time of so much work for each group, and
# PyTorch's operations that find the states of counts are launched in the time of so much work.
_WORK_OF_A_GROUP_BY_KERNELS = 1600
_WORK_OF_LAUNCHES = 30_000
# Nats below which the smallest probability of a state must not fall, or it would underflow.
_DEEPEST = 600.0
# Balls of a draw up to which drawing them one by one is faster than a race.
_BALLS_ONE_BY_ONE = 64
# A table of outcomes pays: the probability of an outcome costs as much as two draws, setting up as
# much as six hundred. Where the states are known, it costs as much as five hundred draws in all.
_DRAWS_OF_A_PROBABILITY = 2
_DRAWS_OF_A_TABLE = 600
_DRAWS_OF_ALL_STATES = 500
# Beside C kernels, a probability costs as much as ten draws of so many balls, and setting up as
# much as a thousand. Draws of fewer balls take less time, and draws of more balls take this part.
_DRAWS_OF_A_PROBABILITY_BY_KERNELS = 10
_DRAWS_OF_A_TABLE_BY_KERNELS = 1000
_BALLS_OF_A_DRAW = 32
_PART_OF_A_DRAW = 0.2
# PyTorch does the dynamic programming if derivatives are asked for. C kernels integrate the mean
# of an urn in the time in which its operations are launched for so many draws, or do so much work.
_LAUNCHES_OF_A_MEAN = 5
_WORK_OF_A_MEAN = 40_000


def wallenius(urn: Urn) -> Integral:
    """By integrals, which suit every urn."""
    sizes = urn._composition
    if sizes is None or sizes.most_draws > _BALLS_ONE_BY_ONE:
        return Integral.build(*urn._operands())
    return Integral.build(*urn._operands(), sizes.most_draws)


def wallenius_for_values(urn: Urn, number: int) -> Integral:
    """For so many probabilities."""
    law, states = wallenius(urn), _states(urn)
    if states is None or asks_for_derivative(urn._given) or not can_read(urn._given):
        return law
    work = urn.batch_shape.numel() * states.work
    if _has_kernels_on_cpu(urn):
        by_integral = number * urn.event_shape[0] * _WORK_OF_A_GROUP_BY_KERNELS - _WORK_OF_LAUNCHES
    else:
        by_integral = max(_WORK_FOR_ANY, _WORK_PER_PROBABILITY * number)
    if work > by_integral or not _are_deep_enough(law):
        return law
    return Sequential.of(law, states)


def _are_deep_enough(law: Integral) -> bool:
    """Whether no state's probability underflows: each ball has at least ω_j / Σωm."""
    span = law.log_weights.amax(-1) - law.log_weights.amin(-1)
    depth = law.draws * (law.group_sizes.sum(-1).clamp(min=1).log() + span)
    return not depth.numel() or bool(depth.max() <= _DEEPEST)


def wallenius_for_moments(urn: Urn) -> Integral:
    """For moments of all orders: dynamic programming keeps the digits of the smallest variance."""
    return _wallenius_by_states(urn, _states(urn))


def _wallenius_by_states(urn: Urn, states: States | None) -> Integral:
    law = wallenius(urn)
    if states is None:
        return law
    # Derivatives of dynamic programming hold squares of weights, which must not overflow.
    if asks_for_derivative(urn._given) or is_transforming():
        weights = law.log_weights.detach()
        if not can_read(weights):
            law = Integral(*law.within_reach(FARTHEST / 2), law.most_draws)
        elif weights.numel() and float(weights.amax() - weights.amin()) > FARTHEST / 2:
            return law
    return Sequential.of(law, states)


def wallenius_for_means(urn: Urn) -> Integral:
    """For means and their derivatives."""
    return _wallenius_for_means(urn, _states(urn))


def _wallenius_for_means(urn: Urn, states: States | None) -> Integral:
    if states is not None and asks_for_derivative(urn._given) and _has_kernels_on_cpu(urn):
        urns = urn.batch_shape.numel()
        launches, work = states.draws / _LAUNCHES_OF_A_MEAN, states.work / _WORK_OF_A_MEAN
        if urns <= launches + work * urns:
            return wallenius(urn)
    return _wallenius_by_states(urn, states)


def wallenius_for_draws(urn: Urn, num_samples: int) -> Integral:
    """For so many draws of each urn."""
    if num_samples < _DRAWS_OF_A_TABLE and has_single_balls(urn):
        return wallenius_of_single_balls(urn)
    states = _states(urn)
    law = _wallenius_for_means(urn, states)
    if urn.batch_shape.numel() != 1 or not can_check():
        return law
    if urn._facts() is None and not bool(urn._is_valid()):
        return law
    if states is not None:
        if num_samples < _DRAWS_OF_ALL_STATES:
            return law
        return OutcomeTable.of_states(Sequential.of(law, states), law)
    if _has_kernels_on_cpu(urn):
        balls = float(law.draws) / _BALLS_OF_A_DRAW
        long_draws = num_samples * (balls if balls <= 1 else _PART_OF_A_DRAW)
        affordable = int(long_draws - _DRAWS_OF_A_TABLE_BY_KERNELS)
        affordable //= _DRAWS_OF_A_PROBABILITY_BY_KERNELS
    else:
        affordable = (num_samples - _DRAWS_OF_A_TABLE) // _DRAWS_OF_A_PROBABILITY
    if affordable < 1:
        return law
    sizes = [int(size) for size in law.group_sizes.flatten().tolist()]
    support = enumerate_counts(sizes, int(law.draws), min(affordable, _MOST_OUTCOMES))
    return law if support is None else OutcomeTable.of_support(law, support.to(law.draws.device))


def wallenius_of_single_balls(urn: Urn) -> SingleBalls:
    return SingleBalls.of(wallenius(urn))


def has_single_balls(urn: Urn) -> bool:
    """Whether every group is known to have at most one ball."""
    if urn._has_single_balls():
        return True
    sizes = urn.group_sizes
    return can_read(sizes) and bool(sizes.numel()) and int(sizes.amax()) <= 1


def _states(urn: Urn) -> States | None:
    if urn._composition is None:
        return None
    states = States.of(urn._composition)
    return states if states.work <= _WORK_OF_AN_URN else None
