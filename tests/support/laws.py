"""All algorithms that can compute an urn, each constructed as `diffurn._dispatch` would."""

from __future__ import annotations

from diffurn import FisherHypergeometric, WalleniusHypergeometric, _dispatch
from diffurn._fisher.equal_weights import EqualWeights
from diffurn._fisher.quadrature import FisherLaw, Quadrature
from diffurn._fisher.sampling.tables import AliasTables, PlainUrns
from diffurn._fisher.tabulated import Tabulated
from diffurn._wallenius.integral import Integral
from diffurn._wallenius.outcomes import OutcomeTable
from diffurn._wallenius.sequential import Sequential, States

MOST_CELLS = 1 << 20  # of alias tables that a test builds
MOST_OUTCOMES = 1 << 12


def fisher_laws(urn: FisherHypergeometric) -> dict[str, FisherLaw]:
    """By name; quadratures come first, since they suit every urn."""
    operands, composition = urn._operands(), urn._composition
    laws: dict[str, FisherLaw] = {"quadrature": Quadrature(*operands)}
    if composition is not None:
        laws["tabulated"] = Tabulated.build(composition, urn._finite_log_weights())
    log_weights, sizes, draws = operands
    if bool((log_weights == log_weights[..., :1]).all()):
        laws["equal weights"] = EqualWeights(sizes, draws)
    urns = PlainUrns.read(*operands)
    if urns.cells <= MOST_CELLS:
        laws["tree of alias tables"] = AliasTables(urns, "tree", *operands)
    if urn.event_shape[0] > 1 and urns.outcomes <= MOST_OUTCOMES:
        laws["table of outcomes"] = AliasTables(urns, "outcomes", *operands)
    return laws


def wallenius_laws(urn: WalleniusHypergeometric) -> dict[str, Integral]:
    """By name; integrals with a race come first, since they suit every urn."""
    integral = Integral.build(*urn._operands())
    laws = {"integral": integral}
    if urn._composition is None:
        return laws
    laws["one by one"] = Integral.build(*urn._operands(), urn._composition.most_draws)
    sequential = Sequential.of(laws["one by one"], States.of(urn._composition))
    if _dispatch._are_deep_enough(integral):  # no probability underflows
        laws["sequential"] = sequential
    if urn.batch_shape.numel() == 1:
        laws["table of states"] = OutcomeTable.of_states(sequential, integral)
        support = urn.enumerate_support().reshape(-1, urn.event_shape[0])
        possible = support[(support <= integral.group_sizes.flatten()).all(-1)]
        laws["table of outcomes"] = OutcomeTable.of_support(integral, possible)
    return laws
