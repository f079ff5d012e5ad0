"""Jobs that need a CUDA device: launches, CUDA graphs and throughput.

Times are those of CUDA events around many calls, after a warm-up. *Captured* jobs are replays of a
CUDA graph, so their times leave out Python and kernel launches. Arguments are not validated, since
checks synchronise the CPU with the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.memory import peak_tensor_bytes
from diffurn import FisherHypergeometric, GumbelSoftmax
from diffurn.estimators import Estimator
from diffurn.nn import SubsetSampler

# Urns, groups, balls per group, draws; and the milliseconds that the paper's released code takes
# for a draw and its gradient on one H200.
STEPS = {
    (50_000, 3, 200, 180): 254.0,
    (256, 50, 100, 500): 181.0,
    (1_000_000, 3, 200, 180): None,
    (100, 1000, 10, 3000): None,
}
# Urns, groups, balls per group, draws; and the estimators by which they are drawn.
MERGED, EXACT = GumbelSoftmax(conditionals="merged"), GumbelSoftmax(conditionals="exact")
CHAINS = {(256, 50, 100, 500): (MERGED, EXACT), (50_000, 3, 200, 180): (MERGED,)}
# Rows, items and chosen items.
SUBSETS = ((64, 64, 8), (64, 784, 50))
MANY = 1 << 28
WARM_UP = 3


def findings(device: torch.device) -> Iterator[tuple[str, str]]:
    """Jobs and their times, in words."""
    yield from steps(device)
    yield from chains(device)
    yield from many_draws(device)
    yield from training_steps(device)
    yield from subsets(device)


def milliseconds(job: Callable[[], object], calls: int = 100) -> float:
    """The average time of a call."""
    for _ in range(WARM_UP):
        job()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        job()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / calls


def captured(job: Callable[[], object]) -> Callable[[], None]:
    """Replays the kernels of a job as a CUDA graph."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(
        aside
    ):  # a graph is captured on a stream of its own, so it warms up there
        for _ in range(WARM_UP):
            job()
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        job()
    return graph.replay


def draw_and_gradient(
    urns: int,
    groups: int,
    size: int,
    draws: int,
    device: torch.device,
    estimator: Estimator | None = None,
) -> Callable[[], object]:
    log_weights = torch.randn(urns, groups, device=device, requires_grad=True)
    sizes, number = torch.full((groups,), size, device=device), torch.tensor(draws, device=device)
    slope = torch.randn(urns, groups, device=device)

    def job() -> object:
        urn = FisherHypergeometric(
            sizes, number, log_weights=log_weights, estimator=estimator, validate_args=False
        )
        return torch.autograd.grad((urn.rsample() * slope).sum(), log_weights)

    return job


def steps(device: torch.device) -> Iterator[tuple[str, str]]:
    """A draw and its gradient."""
    for shape, theirs in STEPS.items():
        job = draw_and_gradient(*shape, device)
        eager, peak = milliseconds(job), peak_tensor_bytes(job, device) / 1e6
        replayed = milliseconds(captured(job))
        what = "draw and gradient of each of {:,} urns, c = {}, m = {}, n = {}".format(*shape)
        faster = (
            f" ({theirs / eager:.0f} and {theirs / replayed:.0f} times faster)" if theirs else ""
        )
        yield what, f"{eager:.3f} ms, captured {replayed:.3f} ms{faster}; {peak:.1f} MB"


def chains(device: torch.device) -> Iterator[tuple[str, str]]:
    """A relaxed draw and its gradient, group after group."""
    for shape, estimators in CHAINS.items():
        for estimator in estimators:
            job = draw_and_gradient(*shape, device, estimator)
            what = "Gumbel, {}: draw and gradient of each of {:,} urns, c = {}, m = {}, n = {}"
            yield what.format(estimator.conditionals, *shape), _eager_and_captured(job)


def subsets(device: torch.device) -> Iterator[tuple[str, str]]:
    """A subset and the gradient of its logits."""
    for law in ("fisher", "wallenius"):
        for rows, items, chosen in SUBSETS:
            logits = torch.randn(rows, items, device=device, requires_grad=True)
            slope = torch.randn(rows, items, device=device)
            sampler = SubsetSampler(chosen, law)

            def job(
                sampler: SubsetSampler = sampler, logits: Tensor = logits, slope: Tensor = slope
            ) -> object:
                return torch.autograd.grad((sampler(logits) * slope).sum(), logits)

            what = f"{law}: {chosen} of {items} items and the gradient, {rows} rows"
            yield what, _eager_and_captured(job)


def _eager_and_captured(job: Callable[[], object]) -> str:
    eager = milliseconds(job)
    try:
        replayed = f"captured {milliseconds(captured(job)):.3f} ms"
    except RuntimeError as error:  # a job that synchronises
        replayed = f"not captured: {str(error).splitlines()[0]}"
    return f"{eager:.3f} ms, {replayed}"


def many_draws(device: torch.device) -> Iterator[tuple[str, str]]:
    """Draws of one urn, compared with `torch.rand`."""
    weights = torch.tensor([1.0, 3.0, 1.0], device=device)
    urn = FisherHypergeometric([200] * 3, 180, weights=weights)
    drawn = milliseconds(lambda: urn.sample((MANY,)), 5)
    uniform = milliseconds(lambda: torch.rand(MANY, 3, device=device), 5)
    yield (
        f"{MANY:,} draws of one urn, c = 3, m = 200",
        f"{MANY / drawn / 1e6:.0f} billion draws/s; torch.rand takes {uniform / drawn:.2f} of the "
        "time for the same bytes",
    )


def training_step(way: Callable[[Tensor], Tensor], device: torch.device) -> Callable[[], None]:
    """A step of a small network whose two outputs pass through `way`."""
    network = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 2)).to(device)
    inputs, targets = torch.randn(64, 32, device=device), torch.randn(64, 2, device=device)
    optimizer = torch.optim.Adam(network.parameters(), capturable=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        (way(network(inputs)) - targets).square().mean().backward()
        optimizer.step()

    return step


def training_steps(device: torch.device) -> Iterator[tuple[str, str]]:
    """The time that an urn adds to a captured training step."""
    sizes, draws = torch.tensor([10, 10], device=device), torch.tensor(10, device=device)
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "sizes as a list": lambda w: FisherHypergeometric(
            [10, 10], 10, log_weights=w, validate_args=False
        ).rsample(),
        "sizes as a tensor": lambda w: FisherHypergeometric(
            sizes, draws, log_weights=w, validate_args=False
        ).rsample(),
    }
    base = milliseconds(captured(training_step(lambda w: w, device)), 200)
    for name, way in ways.items():
        added = milliseconds(captured(training_step(way, device)), 200) - base
        yield (
            f"64 urns, c = 2, m = 10, in a captured training step, {name}",
            f"{1000 * added:.0f} µs added to {1000 * base:.0f} µs",
        )
