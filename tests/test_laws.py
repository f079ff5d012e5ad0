"""Every algorithm for an urn agrees with every other one: one table of urns, all of the protocol
`diffurn._law.Law`.
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor

from diffurn import FisherHypergeometric, WalleniusHypergeometric
from diffurn._law import Law
from support.distributions import GeneralWallenius, assert_possible, fisher, wallenius
from support.laws import fisher_laws, wallenius_laws
from support.tolerances import FISHER, WALLENIUS
from support.urns import NEVER, Urn, by_name

LONGEST_TAIL = 1000
DRAWS = 5000
FISHER_URNS = [
    by_name("biasedurn-univariate"),
    by_name("biasedurn-three-colours"),
    by_name("equal-weights-2-5-8-tie"),
    by_name("equal-weights-1x4-tie"),
    by_name("no-draws"),
    by_name("all-balls"),
    by_name("all-but-one"),
    by_name("single-group"),
    by_name("empty-group-middle"),
    by_name("never-drawn-middle"),
    by_name("almost-sure-5x3-one-more"),
    by_name("extreme-two-groups"),
    by_name("paper-200x3-odds-10"),
    by_name("titanic"),
    by_name("subset-spread3-c50-N5e1-n2e1-129"),
    Urn("equal-weights-1e6", (10**6, 3 * 10**5, 7), 654_321, (0.4, 0.4, 0.4)),
    Urn("1e10", (4 * 10**9, 6 * 10**9), 5 * 10**9, (0.3, -0.2)),
]
WALLENIUS_URNS = [
    Urn("two-groups", (10, 15), 12, (0.9, 0.0)),
    Urn("three-colours", (10, 7, 8), 9, (0.0, 0.7, -0.7)),
    Urn("equal-weights", (4, 5, 3), 6, (1.7, 1.7, 1.7)),
    Urn("five-groups", (3, 2, 4, 1, 3), 7, (0.4, -1.3, 0.0, 2.2, 0.9)),
    Urn("one-ball-per-group", (1,) * 6, 4, (5.0, 3.0, 1.0, -1.0, -3.0, -5.0)),
    Urn("all-but-one", (4, 7, 2), 12, (1.0, -2.0, 0.5)),
    Urn("one-draw", (4, 7, 2), 1, (1.0, -2.0, 0.5)),
    Urn("empty-group", (6, 0, 5), 5, (2.0, 7.0, -1.0)),
    Urn("never-drawn", (5, 6, 4), 5, (0.3, NEVER, -0.4)),
    Urn("odds-1e6", (5, 5, 5), 7, (13.8, 0.0, -13.8)),
]


class Case:
    """An urn, its laws, and counts to ask them for."""

    def __init__(self, urn: Urn, is_fisher: bool, device: torch.device) -> None:
        self.urn, self.tolerances = urn, FISHER if is_fisher else WALLENIUS
        self.laws: dict[str, Any]
        if is_fisher:
            self.distribution = FisherHypergeometric(
                urn.group_sizes, urn.draws, log_weights=torch.tensor(urn.log_weights, device=device)
            )
            self.laws = fisher_laws(self.distribution)
        else:
            self.distribution = wallenius(urn, device)
            self.laws = wallenius_laws(self.distribution)
        self.counts = self.distribution.sample((20,) if is_fisher else (2,))
        lowest, highest = self.distribution._marginal_support()
        self.varies = highest > lowest
        # Below the last point of the support, as `Law.log_tails` asks for.
        self.below = torch.minimum(self.counts, highest - 1).maximum(lowest)

    def __str__(self) -> str:
        return str(self.urn)


def assert_close(found: Tensor, wanted: Tensor, relative: float, absolute: float | Tensor) -> None:
    assert found.shape == wanted.shape
    difference = torch.where(found == wanted, 0.0, (found - wanted).abs())
    assert bool((difference <= 2 * (relative * wanted.abs() + absolute)).all()), (found, wanted)


def results(case: Case, law: Any, but: type | None = None) -> dict[str, Tensor]:
    """All numbers of a law, without those of methods that it shares with the class `but`."""

    def has(name: str) -> bool:
        return getattr(type(law), name) is not getattr(but, name, None)

    found: dict[str, Tensor] = {}
    if has("log_prob"):
        found["log_prob"] = law.log_prob(case.counts)
    for name in ("mean", "variance", "covariance"):
        if has(name):
            found[name] = getattr(law, name)()
    if has("log_tails"):
        sides = zip(("below", "above"), law.log_tails(case.below), strict=True)
        found |= {f"log_tails {side}": torch.where(case.varies, x, 0.0) for side, x in sides}
    if has("marginal_log_prob"):
        marginal = law.marginal_log_prob(case.below)
        found["marginal_log_prob"] = torch.where(case.varies, marginal, 0.0)
    if has("tail"):
        for group, size in enumerate(case.urn.drawable):
            if size <= LONGEST_TAIL:
                tail = law.tail(group)
                assert not tail[size:].any()
                found[f"tail of group {group}"] = tail[:size]
    return found


def assert_laws_agree(case: Case) -> None:
    promised, (reference, *others) = case.tolerances, case.laws.values()
    wanted = results(case, reference)
    largest = promised.covariance * wanted["covariance"].abs().amax() + promised.covariance_floor
    allowed: dict[str, tuple[float, float | Tensor]] = {
        "log_prob": (promised.log_prob, promised.log_prob),
        "mean": (promised.mean, promised.mean_floor),
        "variance": (0.0, largest),
        "covariance": (0.0, largest),
        "log_tails": (promised.tails, promised.tails),
        "marginal_log_prob": (promised.marginal, promised.marginal),
        "tail": (promised.tails, 1e-14),
    }
    for law in others:
        assert law.groups == case.urn.groups
        for name, found in results(case, law, but=type(reference)).items():
            assert_close(found, wanted[name], *allowed[name.split()[0]])


@pytest.mark.parametrize("urn", FISHER_URNS, ids=str)
def test_fishers_laws_agree(urn: Urn, device: torch.device) -> None:
    case = Case(urn, True, device)
    assert_laws_agree(case)
    reference = next(iter(case.laws.values()))
    for law in case.laws.values():
        assert torch.equal(law.mode(), reference.mode())
        assert_close(law.entropy(), reference.entropy(), FISHER.entropy, 1e-12)


@pytest.mark.parametrize("urn", WALLENIUS_URNS, ids=str)
def test_wallenius_laws_agree(urn: Urn, device: torch.device) -> None:
    case = Case(urn, False, device)
    assert set(case.laws) >= {"integral", "one by one", "sequential", "table of outcomes"}
    assert_laws_agree(case)


def test_every_algorithm_of_fishers_law_is_compared(device: torch.device) -> None:
    named = [set(Case(urn, True, device).laws) for urn in FISHER_URNS]
    assert set.union(*named) == {
        "quadrature",
        "tabulated",
        "equal weights",
        "tree of alias tables",
        "table of outcomes",
    }


def assert_draws_have_the_mean(case: Case) -> None:
    """Six standard errors; with fresh seeds some mean is farther off once in a million runs."""
    reference = next(iter(case.laws.values()))
    mean, variance = reference.mean(), reference.variance()
    for name, law in case.laws.items():
        counts = law.sample(DRAWS, torch.float64)
        assert_possible(counts, case.urn)
        off = (counts.mean(0) - mean).abs()
        assert bool((off <= 6 * (variance / DRAWS).sqrt() + 1e-12 * mean + 1e-12).all()), name
        assert law.sample(3, torch.float32).dtype == torch.float32


@pytest.mark.parametrize("name", ["biasedurn-three-colours", "never-drawn-middle", "titanic"])
def test_draws_of_fishers_laws_have_the_mean(name: str, device: torch.device) -> None:
    assert_draws_have_the_mean(Case(by_name(name), True, device))


@pytest.mark.parametrize("urn", [WALLENIUS_URNS[1], WALLENIUS_URNS[8]], ids=str)
def test_draws_of_wallenius_laws_have_the_mean(urn: Urn, device: torch.device) -> None:
    assert_draws_have_the_mean(Case(urn, False, device))


@pytest.mark.parametrize("law", [FisherHypergeometric, WalleniusHypergeometric])
def test_gradients_through_draws_and_tails_agree(law: Any, device: torch.device) -> None:
    sizes, draws, start = [4, 3, 5], 6, torch.tensor([0.3, -1.1, 0.6], device=device)
    slope, found = torch.tensor([1.0, -2.0, 0.5], device=device), {}
    build = fisher_laws if law is FisherHypergeometric else wallenius_laws
    leaf = start.clone().requires_grad_()
    for name, each in build(law(sizes, draws, log_weights=leaf)).items():
        counts, tail = each.rsample_with_tail(4, 2)
        assert bool((counts.detach().sum(-1) == draws).all())
        through = (counts.mean(0) * slope).sum()
        gradients = [
            torch.autograd.grad(part, leaf, retain_graph=True)[0]
            for part in (through, tail.sum(), (each.mean() * slope).sum())
        ]
        torch.testing.assert_close(gradients[0], gradients[2], rtol=1e-9, atol=1e-11)
        found[name] = gradients[:2]
    assert len(found) >= 4
    for gradients in found.values():
        torch.testing.assert_close(gradients, next(iter(found.values())), rtol=1e-8, atol=1e-10)


def methods(protocol: type) -> dict[str, list[str]]:
    return {
        name: [p for p in inspect.signature(method).parameters if p != "self"]
        for name, method in vars(protocol).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


@pytest.mark.parametrize("kind", ["fisher", "wallenius"])
def test_every_algorithm_has_the_methods_of_the_protocol(kind: str, device: torch.device) -> None:
    """With the same parameters."""
    laws: dict[str, Any] = (
        fisher_laws(fisher(FISHER_URNS[2], device))
        if kind == "fisher"
        else wallenius_laws(wallenius(WALLENIUS_URNS[1], device))
    )
    for name, law in laws.items():
        for method, parameters in methods(Law).items():
            own = inspect.signature(getattr(law, method)).parameters
            assert list(own) == parameters, (name, method)


def test_wallenius_laws_say_what_they_do_not_offer(device: torch.device) -> None:
    urn = GeneralWallenius([4, 3, 5], 6, weights=torch.ones(3, device=device))
    (law,) = wallenius_laws(urn).values()
    for method, arguments in (("entropy", ()), ("mode", ()), ("chain", (2, None, False, 1.0))):
        with pytest.raises(NotImplementedError, match=r"Wallenius' law ha(s|ve) no closed form"):
            getattr(law, method)(*arguments)
