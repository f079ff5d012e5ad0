"""The tab of the reader's own table: counts that are pasted as text, and their fit."""

from __future__ import annotations

import html
import io
from typing import Any

import gradio as gr

from diffurn import fit
from diffurn.data.counts import read_stream
from diffurn.explore import figures, limits
from diffurn.explore.fields import LIVE, refusal, words

EXAMPLE = """row,group,available,drawn
Titanic,1st class,325,203
Titanic,2nd class,285,118
Titanic,3rd class,706,178
Titanic,Crew,885,212
"""
INTRODUCTION = """
<p>Paste a table of counts, and its groups' importance <i>ω</i> is estimated by exact maximum likelihood. A long table has a line per
experiment and group, with columns <code>row</code>, <code>group</code>, <code>available</code> and <code>drawn</code>, as this one. A wide
table has a line per experiment, with columns <code>m_</code>group (available) and <code>x_</code>group (drawn). The table stays on this
machine.</p>
"""


def build(page: gr.Blocks) -> None:
    """The fields of the tab, and the call that follows them."""
    words(INTRODUCTION)
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            text = gr.Textbox(
                EXAMPLE,
                lines=12,
                max_lines=24,
                max_length=limits.TABLE.longest,
                label="table of counts",
            )
            model = gr.Radio(list(limits.MODEL.choices), value=limits.FISHER, label="model")
            reference = gr.Textbox(
                "Crew", label="reference group, with ω = 1; empty: the mean is 1", max_length=100
            )
            button = gr.Button("Fit")
        with gr.Column(scale=5, min_width=300):
            result = words("")
    gr.on(
        [page.load, button.click, model.input, reference.submit],
        show_fit,
        [text, model, reference],
        [result],
        **LIVE,
    )


def show_fit(text: Any, model: Any, reference: Any) -> str:
    """The fit as a text and a figure, or the sentence that says why there is none."""
    try:
        stream = io.BytesIO(f"{limits.TABLE.checked(text)}\n".encode())
        counts = read_stream(stream, "the table")
        result = fit(
            counts.counts,
            counts.group_sizes,
            groups=counts.groups,
            reference=limits.REFERENCE.checked(reference) or None,
            model=limits.MODEL.checked(model).lower(),
        )
    except ValueError as problem:
        return refusal(problem)
    image = figures.as_image(result.plot(), "Importance of the groups, with intervals, and counts")
    return f'<div class="fit">{image}<pre>{html.escape(str(result))}</pre></div>'
