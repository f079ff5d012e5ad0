"""The pieces that the tabs of the page share: sliders with limits, texts and tables as HTML, and
how changes are sent.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import gradio as gr

from diffurn.explore import limits

# Without Gradio's own preprocessing, so that values out of range get a sentence of ours.
QUIET: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "preprocess": False,
}
# Only the last step of a moving slider counts. One call at a time, because the seed is a state of
# torch that all calls share.
LIVE: dict[str, Any] = {
    **QUIET,
    "trigger_mode": "always_last",
    "concurrency_limit": 1,
    "concurrency_id": "urn",
}


def words(text: str) -> gr.HTML:
    return gr.HTML(text, elem_classes="words", padding=False)


def slider(
    limit: limits.Whole | limits.Real, value: float, label: str, **options: Any
) -> gr.Slider:
    shown: dict[str, Any] = {
        "minimum": limit.lowest,
        "maximum": limit.highest,
        "step": limit.step,
        "buttons": [],
    }
    return gr.Slider(value=value, label=label, **(shown | options))


def refusal(problem: ValueError) -> str:
    return f'<p class="refusal">{html.escape(str(problem))}</p>'


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def samples_controls(value: int = 1_000) -> tuple[gr.Radio, gr.Number, gr.Button]:
    """The number of samples, the seed, and a button for the next seed."""
    with gr.Row():
        num_samples = gr.Radio(
            [(limits.NUM_SAMPLES.label(each), each) for each in limits.NUM_SAMPLES.choices],
            value=value,
            label="samples to compare with",
            min_width=250,
            scale=3,
        )
        seed = gr.Number(
            0,
            minimum=limits.SEED.lowest,
            maximum=limits.SEED.highest,
            precision=0,
            label="seed",
            min_width=90,
            scale=1,
        )
        fresh = gr.Button("Draw again", min_width=110, scale=1)
    fresh.click(_next_seed, seed, seed, **QUIET)
    return num_samples, seed, fresh


def _next_seed(seed: Any) -> int:
    """The next seed; after an invalid value, the first."""
    try:
        return (limits.SEED.checked(seed) + 1) % limits.SEED.highest
    except ValueError:
        return limits.SEED.lowest
