"""Who got a place in a boat? The importance ω of four groups of people aboard the Titanic, learned from how many of each were saved.

Of 2,201 people aboard 711 were saved. Seen as an urn, 711 balls were drawn without replacement from four groups, and ω is the odds of a
group's ball relative to those of the crew's. Two ways to learn ω must agree: the exact likelihood, and stochastic gradients through
draws, which is how an urn inside a larger model is trained.

Counts: R's datasets::Titanic, from R. J. M. Dawson (1995), The "Unusual Episode" Data Revisited, Journal of Statistics Education 3(3).
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from diffurn import FisherHypergeometric

GROUPS = ("1st class", "2nd class", "3rd class", "Crew")
ABOARD = torch.tensor([325, 285, 706, 885])
SAVED = torch.tensor([203, 118, 178, 212])
ALL_ALIKE = torch.zeros(3, dtype=torch.float64)  # log-weights of the passenger groups when ω = 1

BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#6E6E6E"  # told apart by colour-blind readers too


def urn_of(log_weights: Tensor) -> FisherHypergeometric:
    """The urn of 711 places, given the log-weights of the three passenger groups; the crew's is the reference, 0."""
    return FisherHypergeometric(ABOARD, SAVED.sum(), log_weights=torch.nn.functional.pad(log_weights, (0, 1)))


def fit_by_likelihood(steps: int = 8) -> Tensor:
    """Newton's method: the gradient of the log-likelihood is observed minus mean, its curvature the covariance, both exact."""
    log_weights = ALL_ALIKE
    for _ in range(steps):
        urn = urn_of(log_weights)
        log_weights = log_weights + torch.linalg.solve(urn.covariance_matrix[:3, :3], (SAVED - urn.mean)[:3])
    return log_weights


def fit_by_draws(steps: int = 300, draws_per_step: int = 64) -> Tensor:
    """Adam on the squared distance between drawn and observed counts, its gradient flowing through the draws.

    The default estimator passes a gradient through a draw by the exact covariance, so on average it vanishes where the mean is
    the observed counts: at the maximum of the likelihood.
    """
    log_weights = ALL_ALIKE.clone().requires_grad_()
    optimizer = torch.optim.Adam([log_weights], lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        drawn = urn_of(log_weights).rsample((draws_per_step,))
        loss = (drawn - SAVED).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return log_weights.detach()


def table_of(exact: FisherHypergeometric, through_draws: FisherHypergeometric, central: FisherHypergeometric) -> Table:
    table = Table("Group", "Aboard", "Saved", "Central urn", "ω by likelihood", "ω by draws", box=box.SIMPLE_HEAD, caption_justify="left")
    table.caption = "ω: importance relative to the crew\nCentral urn: places expected if all were alike, ω = 1"
    for column in table.columns[1:]:
        column.justify = "right"
    learned = (exact, through_draws)
    for j, group in enumerate(GROUPS):
        weights = (f"{urn.log_weights[j].exp():.3f}" for urn in learned)
        table.add_row(group, str(ABOARD[j].item()), str(SAVED[j].item()), f"{central.mean[j]:.1f}", *weights)
    table.add_section()
    table.add_row("log-likelihood", "", "", *(f"{urn.log_prob(SAVED):.3f}" for urn in (central, *learned)))
    return table


def figure_of(learned: FisherHypergeometric, central: FisherHypergeometric) -> Figure:
    """The exact law of each group's share under both urns, with the share observed."""
    figure = Figure(figsize=(7.2, 5.4), layout="constrained", dpi=200)
    figure.suptitle("Places in the Titanic's boats: the exact law of each group's share, and what happened", x=0.01, ha="left", size=10)
    panels = figure.subplots(len(GROUPS), sharex=True, sharey=True)
    counts = torch.arange(int(ABOARD.max()) + 1).unsqueeze(-1).minimum(ABOARD)  # (count, group), each group up to its size
    densities = [urn.marginal_log_prob(counts).exp() * ABOARD / 100 for urn in (central, learned)]  # per percentage point
    for j, panel in enumerate(panels):
        group_size = int(ABOARD[j])
        shares = 100 * torch.arange(group_size + 1) / group_size
        for density, colour in zip(densities, (GREY, BLUE), strict=True):
            panel.fill_between(shares, density[: group_size + 1, j], facecolor=colour, edgecolor=colour, alpha=0.4)
        share_saved = 100 * SAVED[j] / group_size
        panel.axvline(share_saved, color=VERMILION, linewidth=1.5)
        label = f"{SAVED[j]} of {group_size} saved"
        panel.annotate(label, (share_saved, 0.97), (6, 0), ("data", "axes fraction"), "offset points", color=VERMILION, va="top")
        panel.set_ylabel(f"{GROUPS[j]}\nω = {learned.log_weights[j].exp():.2f}", rotation=0, ha="left", va="center", labelpad=70)
        panel.set_yticks([])
        panel.tick_params(bottom=False)
        panel.spines[["left", "right", "top"]].set_visible(False)
    peak = max(density.max().item() for density in densities)
    panels[0].set(xlim=(15, 77), ylim=(0, 1.4 * peak))
    panels[0].text(32.3, 0.6 * peak, "all alike, ω = 1", color=GREY, ha="center")
    panels[0].text(59, 0.6 * peak, "ω learned", color=BLUE, ha="right")
    panels[-1].set_xlabel("share of the group that was saved (%)")
    return figure


def main(
    out: Annotated[Path, typer.Option(help="Folder for the figure, titanic.png.")] = Path("build/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
) -> None:
    """Learn the importance of four groups of people for a place in the Titanic's boats."""
    torch.manual_seed(seed)
    exact, through_draws, central = (urn_of(log_weights) for log_weights in (fit_by_likelihood(), fit_by_draws(), ALL_ALIKE))
    console = Console()
    console.print(table_of(exact, through_draws, central))
    out.mkdir(parents=True, exist_ok=True)
    figure_of(exact, central).savefig(out / "titanic.png")
    console.print(f"figure: {out / 'titanic.png'}", highlight=False)


if __name__ == "__main__":
    typer.run(main)
