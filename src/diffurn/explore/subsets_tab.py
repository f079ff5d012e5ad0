"""The tab of subsets: k of d items by Fisher's and by Wallenius' law, and Gumbel top-k draws."""

from __future__ import annotations

from typing import Any

import gradio as gr

from diffurn.explore import figures, limits, subsets
from diffurn.explore.fields import (
    LIVE,
    QUIET,
    refusal,
    samples_controls,
    slider,
    table,
    words,
)
from diffurn.explore.limits import MOST_ITEMS
from diffurn.explore.numbers import total_variation
from diffurn.explore.subsets import Choice, Laws

# At the start.
SCORES, ITEMS, K = (2.0, 1.0, 0.5, 0.0, -0.5, -2.0, 1.5, -1.0), 6, 3
MOST_PROBABLE = 6  # subsets in the table
SUBSCRIPTS = "₁₂₃₄₅₆₇₈"

INTRODUCTION = """
<p>Choose <i>k</i> of <i>d</i> items with weights <i>ω</i>. <b>Fisher:</b> a subset has a probability proportional to the product of its
weights. <b>Wallenius:</b> items are taken one after another, each in proportion to its weight among those left; the <i>k</i> largest of
log <i>ω</i> with Gumbel noise are draws of this law.</p>
"""
ABOUT_SUBSETS = "<h2>The most probable subsets</h2>"


def build(page: gr.Blocks) -> None:
    """The fields of the tab, and the calls that follow them."""
    words(INTRODUCTION)
    with gr.Row():
        with gr.Column(scale=2, min_width=300, elem_classes="controls"):
            items = slider(limits.ITEMS, ITEMS, "d, items")
            k = slider(limits.CHOSEN, K, "k, items chosen")
            scores = [
                slider(
                    limit,
                    score,
                    f"log₂\N{NO-BREAK SPACE}ω{SUBSCRIPTS[j]}",
                    min_width=130,
                    visible=j < ITEMS,
                )
                for j, (limit, score) in enumerate(zip(limits.SCORES, SCORES, strict=True))
            ]
        with gr.Column(scale=5, min_width=300):
            problem = gr.HTML(visible=False, elem_classes="words", padding=False)
            words("<h2>How often is each item chosen?</h2>")
            num_samples, seed, _ = samples_controls(10_000)
            chart = words("")
            words(ABOUT_SUBSETS)
            listed = words("")
    gr.on(
        [page.load, seed.change, num_samples.input, *(each.input for each in (items, k, *scores))],
        show_subsets,
        [items, k, *scores, num_samples, seed],
        [problem, chart, listed],
        **LIVE,
    )
    items.input(_visible_items, items, scores, **QUIET)


def _visible_items(items: Any) -> list[Any]:
    """Shows the weights of the first items. An invalid number changes nothing."""
    try:
        items = limits.ITEMS.checked(items)
    except ValueError:
        return [gr.skip()] * MOST_ITEMS
    return [gr.update(visible=j < items) for j in range(MOST_ITEMS)]


def show_subsets(*controls: Any) -> tuple[Any, str, str]:
    """The refusal of an impossible choice, the chart of inclusion probabilities, and the table of
    subsets.
    """
    items, k, *scores, num_samples, seed = controls
    try:
        shown = limits.ITEMS.checked(items)
        weights = tuple(
            2.0 ** limit.checked(score)
            for limit, score in zip(limits.SCORES[:shown], scores[:shown], strict=True)
        )
        choice = Choice(weights, limits.CHOSEN.checked(k))
        num_samples = limits.NUM_SAMPLES.checked(num_samples)
        shares = subsets.top_k_shares(choice, num_samples, limits.SEED.checked(seed))
    except ValueError as impossible:
        return gr.update(value=refusal(impossible), visible=True), "", ""
    laws = subsets.laws_of(choice)
    marks = [
        (figures.LAWS["Fisher"], "Fisher"),
        (figures.LAWS["Wallenius"], "Wallenius"),
        ("dot", f"share of {num_samples:,} Gumbel top-k draws"),
    ]
    figure = figures.inclusion(
        laws.inclusion_fisher, laws.inclusion_wallenius, shares @ laws.subsets
    )
    image = figures.as_image(figure, "The probability of each item to be chosen, by both laws")
    chart = f'<div class="chart">{image}<div>{_in_words(laws, shares)}</div></div>'
    return (
        gr.update(value="", visible=False),
        figures.legend(marks) + chart,
        _most_probable(laws, shares),
    )


def _in_words(laws: Laws, shares: Any) -> str:
    rows = [
        [
            name,
            f"{float(total_variation(shares, probabilities)):.3f}",
            f"{subsets.entropy(probabilities):.3f}",
        ]
        for name, probabilities in (("Fisher", laws.fisher), ("Wallenius", laws.wallenius))
    ]
    apart = float(total_variation(laws.fisher, laws.wallenius))
    bias = float((laws.inclusion_wallenius - laws.inclusion_fisher).abs().max())
    return (
        f"<p>The two laws are {apart:.3f} apart (total variation).</p>"
        + table(["", "distance of the draws", "entropy"], rows)
        + f"<p class='hint'>Whoever draws by Gumbel top-k and scores by Fisher's law has scores "
        f"with a mean of up to {bias:.3f} instead of 0, and so a biased gradient.</p>"
    )


def _most_probable(laws: Laws, shares: Any) -> str:
    order = laws.fisher.argsort(descending=True)[:MOST_PROBABLE].tolist()
    rows = [
        [
            "{"
            + ", ".join(str(item + 1) for item in laws.subsets[i].nonzero().flatten().tolist())
            + "}",
            *(f"{float(values[i]):.4f}" for values in (laws.fisher, laws.wallenius, shares)),
        ]
        for i in order
    ]
    caption = f"<p class='hint'>{len(laws.fisher)} subsets in all.</p>"
    return table(["items", "Fisher", "Wallenius", "draws"], rows) + caption
