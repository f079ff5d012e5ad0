"""The page: a tab for the urn, one for subsets, and one for the reader's own table."""

from __future__ import annotations

import gradio as gr

from diffurn.explore import figures, subsets_tab, table_tab, urn_tab
from diffurn.explore.fields import words

TABS = {"Urn": urn_tab, "Subsets": subsets_tab, "Your table": table_tab}
INTRODUCTION = "<h1>Interactive demo</h1>"
CSS = f"""
.gradio-container {{ max-width: 1400px !important; margin: auto; overflow-x: clip; }}
/* Gradio drops this style when the focus moves on. */
input[type=radio]:checked {{
  background-color: var(--checkbox-background-color-selected) !important; border-color: var(--checkbox-border-color-selected) !important;
}}
.words h1 {{ font-size: 1.7rem; margin: 0.2rem 0; }}
.words h2 {{ font-size: 1.2rem; margin: 0.4rem 0 0.1rem; }}
.words p {{ margin: 0.2rem 0; line-height: 1.45; }}
@media (min-width: 900px) {{ .controls {{ position: sticky; top: 0.8rem; align-self: flex-start; }} }}
.words .hint {{ font-size: 0.85rem; opacity: 0.85; }}
.words .refusal {{ border-left: 4px solid {figures.MERGED}; padding: 0.6rem 0.9rem; background: #fdf1e9; color: #3b1a00; }}
.panels {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(270px, 100%), 1fr)); gap: 0.7rem; }}
.panels img, .chart img {{ width: 100%; max-width: 30rem; background: white; border-radius: 6px; display: block; }}
.chart {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(330px, 100%), 1fr)); gap: 0.9rem; align-items: start; }}
.chart img {{ max-width: 34rem; }}
.fit img {{ width: 100%; max-width: 60rem; background: white; border-radius: 6px; display: block; }}
.fit {{ display: grid; grid-template-columns: minmax(0, 1fr); }}
.fit pre {{ font-size: 0.82rem; line-height: 1.35; overflow-x: auto; padding: 0.6rem 0; }}
.legend {{ display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; font-size: 0.9rem; margin: 0.3rem 0 0.5rem; }}
.legend i {{ display: inline-block; width: 1.1em; height: 0.8em; margin-right: 0.4em; }}
.legend i.many {{ background: linear-gradient(90deg, {", ".join(figures.GROUPS[:3])}); }}
.legend i.dot {{ width: 0.55em; height: 0.55em; border: 1.5px solid currentColor; border-radius: 50%; background: white; }}
.legend i.dashes {{ height: 0; border-top: 2.5px dashed {figures.MERGED}; vertical-align: middle; }}
.legend i.line {{ height: 0; border-top: 3px solid currentColor; vertical-align: middle; }}
.words table {{ border-collapse: collapse; font-size: 0.92rem; width: auto; }}
.words th, .words td {{ padding: 0.18rem 0.55rem; text-align: right; border: 0 !important; border-bottom: 1px solid #8884 !important; }}
.words table, .words tr {{ border: 0 !important; }}
.words td {{ white-space: nowrap; }}
@media (max-width: 700px) {{ .fit {{ overflow-x: auto; }} .fit img {{ min-width: 40rem; }} }}
@media (max-width: 500px) {{ .words th, .words td {{ padding: 0.15rem 0.3rem; font-size: 0.85rem; }} }}
.words th:first-child, .words td:first-child {{ text-align: left; padding-left: 0; }}
""" + "".join(
    f".group-{j + 1} {{ border-left: 5px solid {colour} !important; }}\n"
    for j, colour in enumerate(figures.GROUPS)
)


def build() -> gr.Blocks:
    """The page, ready to be served. It uses no telemetry and no fonts or scripts of other sites, and
    keeps no record of its values.
    """
    with gr.Blocks(title="diffurn explore", analytics_enabled=False) as page:
        words(INTRODUCTION)
        with gr.Tabs():
            for name, tab in TABS.items():
                with gr.Tab(name):
                    tab.build(page)
    return page
