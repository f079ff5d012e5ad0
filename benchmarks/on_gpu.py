"""The figures that need a CUDA device, as a table: ``python benchmarks/on_gpu.py`` (a minute, most
of it compiling kernels).

Times are by CUDA events around many calls, after some to warm up. *Captured* is a replay of a CUDA
graph: what the device needs, without the host. Arguments are not validated, since checks ask the
host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.measure import peak_tensor_bytes
from diffurn import FisherHypergeometric
from diffurn_studies.stacked.steps import Replayed

CUDA = torch.device("cuda")
# Urns, groups, balls of each, draws: what the paper's released code takes for a draw and its
# gradient on one H200, in ms.
STEPS = {
    (50_000, 3, 200, 180): 254.0,
    (256, 50, 100, 500): 181.0,
    (1_000_000, 3, 200, 180): None,
    (100, 1000, 10, 3000): None,
}
MANY = 1 << 28


def milliseconds(job: Callable[[], object], calls: int = 100) -> float:
    for _ in range(3):
        job()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        job()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / calls


def captured(job: Callable[[], object]) -> Callable[[], None]:
    """Replays of what the job launches."""
    replayed = Replayed(lambda: (job(), None)[1], CUDA)
    replayed.run(Replayed.WARM_UP + 1)
    return lambda: replayed.run(1)


def draw_and_gradient(urns: int, groups: int, size: int, draws: int) -> Callable[[], object]:
    log_weights = torch.randn(urns, groups, device=CUDA, requires_grad=True)
    sizes, number = torch.full((groups,), size, device=CUDA), torch.tensor(draws, device=CUDA)
    slope = torch.randn(urns, groups, device=CUDA)

    def job() -> object:
        urn = FisherHypergeometric(sizes, number, log_weights=log_weights, validate_args=False)
        return torch.autograd.grad((urn.rsample() * slope).sum(), log_weights)

    return job


def training_step(way: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    """Of a small network whose two outputs go through `way`."""
    network = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 2)).to(CUDA)
    inputs, targets = torch.randn(64, 32, device=CUDA), torch.randn(64, 2, device=CUDA)
    optimizer = torch.optim.Adam(network.parameters(), capturable=True)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        (way(network(inputs)) - targets).square().mean().backward()
        optimizer.step()

    return step


def steps() -> Iterator[tuple[str, str]]:
    for shape, theirs in STEPS.items():
        job = draw_and_gradient(*shape)
        eager, peak, replayed = (
            milliseconds(job),
            peak_tensor_bytes(job, CUDA) / 1e6,
            milliseconds(captured(job)),
        )
        what = "draw and gradient of each of {:,} urns, c = {}, m = {}, n = {}".format(*shape)
        faster = (
            f" ({theirs / eager:.0f} and {theirs / replayed:.0f} times faster)" if theirs else ""
        )
        yield what, f"{eager:.2f} ms, captured {replayed:.3f} ms{faster}; {peak:.1f} MB"


def of_one_urn() -> Iterator[tuple[str, str]]:
    weights = torch.tensor([1.0, 3.0, 1.0], device=CUDA)
    urn = FisherHypergeometric([200] * 3, 180, weights=weights)
    draws, uniforms = (
        milliseconds(lambda: urn.sample((MANY,)), 5),
        milliseconds(lambda: torch.rand(MANY, 3, device=CUDA), 5),
    )
    speed, fraction = f"{MANY / draws / 1e6:.0f} billion draws/s", f"{uniforms / draws:.2f}"
    yield (
        f"{MANY:,} draws of one urn, c = 3, m = 200",
        f"{speed}; torch.rand takes {fraction} of the time for the same bytes",
    )


def inside_a_step() -> Iterator[tuple[str, str]]:
    sizes, draws = torch.tensor([10, 10], device=CUDA), torch.tensor(10, device=CUDA)
    ways: dict[str, Callable[[Tensor], Tensor]] = {
        "sizes on the host": lambda w: FisherHypergeometric(
            [10, 10], 10, log_weights=w, validate_args=False
        ).rsample(),
        "sizes on the device": lambda w: FisherHypergeometric(
            sizes, draws, log_weights=w, validate_args=False
        ).rsample(),
    }
    base = milliseconds(captured(training_step(lambda w: w)), 200)
    for name, way in ways.items():
        added = milliseconds(captured(training_step(way)), 200) - base
        yield (
            f"64 urns, c = 2, m = 10, in a captured training step, {name}",
            f"{1000 * added:.0f} µs added to {1000 * base:.0f} µs",
        )


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("on_gpu.py measures a CUDA device, and torch sees none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n\n| what | |\n|---|---|")
    for part in (steps, of_one_urn, inside_a_step):
        for what, found in part():
            print(f"| {what} | {found} |", flush=True)


if __name__ == "__main__":
    main()
