"""The tab of the urn: sliders on the left, figures and tables on the right. `numbers` computes them
and `figures` draws them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gradio as gr
from torch import Tensor

from diffurn.explore import figures, limits, numbers
from diffurn.explore.fields import (
    LIVE,
    QUIET,
    refusal,
    samples_controls,
    slider,
    table,
    words,
)
from diffurn.explore.figures import SUBSCRIPTS
from diffurn.explore.limits import (
    COUNT,
    DIVERSITY,
    FISHER,
    MOST_GROUPS,
    SPREAD,
    SQUARE,
    THRESHOLD,
    WALLENIUS,
)
from diffurn.explore.numbers import Distribution, Gradient, Question, Setting

# The urn at the start: the group sizes of the paper's example, and two hidden groups.
GROUP_SIZES, LOG2_WEIGHTS, DRAWS, GROUPS = (3, 5, 4, 4, 4), (0.0, 1.0, -1.0, 2.0, -2.0), 5, 3
GRADIENTS = 400  # one-sample gradients of each estimator

INTRODUCTION = """
<p>An urn holds groups of balls, and <i>n</i> of them are drawn without replacement. A ball of group <i>j</i> has importance
<i>ω<sub>j</sub></i>; only ratios matter. Move a slider, and the exact results follow.</p>
"""
MODELS = """
<p class="hint"><b>Fisher:</b> each ball is taken or not independently of the others, given that the total is <i>n</i>.
<b>Wallenius:</b> balls are taken one after another, and compete.</p>
"""
ABOUT_DRAWS = "<h2>How many balls of each group?</h2>"
ABOUT_MERGED = """
<h2>The paper's approximation</h2>
<p>The paper draws one group after another, and merges all later groups into one of average importance. The result is Fisher's distribution
only if the merged groups are equally important. This table shows the error.</p>
"""
ABOUT_GRADIENTS = f"""
<h2>Gradients through a draw</h2>
<p>How does the mean of <i>f</i> change with log <i>ω</i>? The black line is the exact gradient. A model in training sees estimates from one
sample at a time: a bar is the average of {GRADIENTS} estimates (off the line, it is biased), its whisker the standard deviation of one.
<i>τ</i> is the temperature of the Gumbel-Softmax chains, the paper's method.</p>
"""


def build(page: gr.Blocks) -> None:
    """The fields of the tab, and the calls that follow them."""
    words(INTRODUCTION)
    with gr.Row():
        with gr.Column(scale=2, min_width=300, elem_classes="controls"):
            urn, group_rows = _urn_controls()
        with gr.Column(scale=5, min_width=300):
            problem = gr.HTML(visible=False, elem_classes="words", padding=False)
            words(ABOUT_DRAWS)
            num_samples, seed, _ = samples_controls()
            panels = words("")
            words(ABOUT_MERGED)
            merged = words("")
            words(ABOUT_GRADIENTS)
            question = _question_controls()
            chart = words("")
    moved = [page.load, seed.change, *(control.input for control in urn)]
    gr.on(
        [*moved, num_samples.input],
        show_distribution,
        [*urn, num_samples, seed],
        [problem, panels, merged],
        **LIVE,
    )
    gr.on(
        [*moved, *(control.input for control in question)],
        show_gradient,
        [*urn, *question, seed],
        [chart],
        **LIVE,
    )
    groups, (function, group, threshold, _) = urn[1], question
    groups.input(_visible_groups, [groups, group], [*group_rows, group], **QUIET)
    function.input(_visible_choices, function, [group, threshold], **QUIET)


def _urn_controls() -> tuple[list[Any], list[Any]]:
    """The fields of the urn (model, number of groups, draws, all group sizes, all weights), and the
    rows of the groups, to show and hide.
    """
    model = gr.Radio(list(limits.MODEL.choices), value=FISHER, label="model")
    words(MODELS)
    groups = slider(limits.GROUPS, GROUPS, "groups")
    draws = slider(limits.DRAWS, DRAWS, "n, balls drawn")
    sizes, weights, rows = [], [], []
    for j in range(MOST_GROUPS):
        with gr.Row(visible=j < GROUPS, elem_classes=f"group-{j + 1}") as row:
            sizes.append(
                slider(limits.SIZES[j], GROUP_SIZES[j], f"m{SUBSCRIPTS[j]}", min_width=130)
            )
            weights.append(
                slider(
                    limits.LOG2_WEIGHTS[j],
                    LOG2_WEIGHTS[j],
                    f"log₂\N{NO-BREAK SPACE}ω{SUBSCRIPTS[j]}",
                    min_width=130,
                )
            )
        rows.append(row)
    words(
        '<p class="hint">m: the balls of a group. log₂ ω: at 0 the importance is 1, and each step of '
        "1 doubles it.</p>"
    )
    return [model, groups, draws, *sizes, *weights], rows


def _question_controls() -> list[Any]:
    """Function, group, threshold, temperature."""
    with gr.Row():
        function = gr.Dropdown(
            list(limits.FUNCTION.choices), value=COUNT, label="f(x)", min_width=280, scale=2
        )
        group = slider(limits.GROUP, 2, "of group", min_width=130, maximum=GROUPS)
        threshold = slider(limits.LEVEL, 3, "threshold", min_width=130, visible=False)
        temperature = slider(limits.TEMPERATURE, 0.5, "τ", min_width=130)
    return [function, group, threshold, temperature]


def _visible_groups(groups: Any, group: Any) -> list[Any]:
    """Shows the rows of the first groups, and limits the choice of a group to them. An invalid
    number of groups changes nothing.
    """
    try:
        groups = limits.GROUPS.checked(groups)
    except ValueError:
        return [gr.skip()] * (MOST_GROUPS + 1)
    choice = {"value": groups} if group in range(groups + 1, MOST_GROUPS + 1) else {}
    return [
        *(gr.update(visible=j < groups) for j in range(MOST_GROUPS)),
        gr.update(maximum=groups, **choice),
    ]


def _visible_choices(function: Any) -> list[Any]:
    return [gr.update(visible=function != DIVERSITY), gr.update(visible=function == THRESHOLD)]


def _setting(model: Any, groups: Any, draws: Any, *controls: Any) -> Setting:
    return numbers.as_setting(model, groups, draws, controls[:MOST_GROUPS], controls[MOST_GROUPS:])


def show_distribution(*controls: Any) -> tuple[Any, str, str]:
    """The refusal of an impossible urn, the panels of the groups, and the error of the paper's
    approximation.
    """
    *urn, num_samples, seed = controls
    try:
        setting = _setting(*urn)
        num_samples = limits.NUM_SAMPLES.checked(num_samples)
        drawn = numbers.draw(setting, num_samples, limits.SEED.checked(seed))
    except ValueError as problem:
        return gr.update(value=refusal(problem), visible=True), "", ""
    distribution = numbers.distribution_of(setting)
    merged = numbers.merged_probabilities(setting) if setting.model == FISHER else None
    marks = [("many", "exact"), ("dot", f"share of {num_samples:,} samples")]
    if merged is None:
        about_merged = (
            "<p>The approximation is of Fisher's distribution. Choose Fisher to see it.</p>"
        )
    else:
        marks.append(("dashes", "merged, as in the paper"))
        about_merged = _merged_table(distribution, merged, setting.largest)
    panels = "".join(_panels(setting, distribution, drawn, merged))
    return (
        gr.update(value="", visible=False),
        figures.legend(marks) + f'<div class="panels">{panels}</div>',
        about_merged,
    )


def _panels(
    setting: Setting, distribution: Distribution, drawn: Tensor, merged: Tensor | None
) -> Iterator[str]:
    """The picture of each group."""
    exact = numbers.marginals(distribution.outcomes, distribution.probabilities, setting.largest)
    shares = numbers.shares(drawn, setting.largest)
    approximate = (
        None
        if merged is None
        else numbers.marginals(distribution.outcomes, merged, setting.largest)
    )
    for j, (size, weight) in enumerate(zip(setting.group_sizes, setting.weights, strict=True)):
        shown = slice(0, min(size, setting.draws) + 1)
        mean, deviation = distribution.mean[j], distribution.deviation[j]
        title = f"m = {size}, ω = {weight:.3g}, mean {mean:.2f} ± {deviation:.2f}"
        figure = figures.marginal(
            j,
            title,
            exact[shown, j],
            shares[shown, j],
            None if approximate is None else approximate[shown, j],
        )
        yield figures.as_image(figure, f"Probabilities of the counts of group {j + 1}: {title}")


def _merged_table(distribution: Distribution, merged: Tensor, largest: int) -> str:
    """Means and distances, group by group and for all groups at once."""
    exact, approximate = (
        numbers.marginals(distribution.outcomes, probabilities, largest)
        for probabilities in (distribution.probabilities, merged)
    )
    distances = numbers.total_variation(exact, approximate).tolist()
    means = (merged @ distribution.outcomes).tolist()
    rows = [
        [f"group {j + 1}", f"{distribution.mean[j]:.3f}", f"{mean:.3f}", f"{distances[j]:.4f}"]
        for j, mean in enumerate(means)
    ]
    total = numbers.total_variation(distribution.probabilities, merged)
    rows.append(["all at once", "", "", f"{total:.4f}"])
    caption = (
        "<p class='hint'>Total variation is the largest difference between the probabilities that "
        "the two give to any event.</p>"
    )
    return table(["", "mean, exact", "mean, merged", "total variation"], rows) + caption


def show_gradient(*controls: Any) -> str:
    """The chart of gradients with its table, or nothing if the urn is impossible."""
    *urn, function, group, threshold, temperature, seed = controls
    try:
        setting = _setting(*urn)
    except ValueError:
        return ""  # `show_distribution` shows the sentence
    groups = len(setting.group_sizes)
    try:
        chosen = min(limits.GROUP.checked(group), groups)
        question = Question(
            limits.FUNCTION.checked(function), chosen - 1, limits.LEVEL.checked(threshold)
        )
        found = numbers.gradient(
            setting,
            question,
            limits.TEMPERATURE.checked(temperature),
            GRADIENTS,
            limits.SEED.checked(seed),
        )
    except ValueError as problem:
        return refusal(problem)
    marks = [("line", "exact"), *((figures.ESTIMATORS[name], name) for name in found.estimates)]
    chart = figures.as_image(
        figures.gradient(found), "The gradient in each log ω, exact and as estimated"
    )
    return (
        figures.legend(marks)
        + f'<div class="chart">{chart}<div>{_in_words(setting, question, found)}</div></div>'
    )


def _in_words(setting: Setting, question: Question, found: Gradient) -> str:
    name = f"x<sub>{question.group + 1}</sub>"
    formulas = {
        COUNT: name,
        SQUARE: f"{name}²",
        SPREAD: f"({name} − E {name})²",
        THRESHOLD: f"[{name} ≥ {question.threshold}]",
        DIVERSITY: "1 − Σ(x<sub>j</sub>/n)²",
    }
    notes = {
        COUNT: "f is linear in the counts, so the gradient of the mean is the whole gradient.",
        SQUARE: "f is curved, so straight-through estimates are slightly biased.",
        SPREAD: "The mean of f is the variance. f is so curved that straight-through estimates can "
        "be far off.",
        THRESHOLD: "The mean of f is a probability. The derivative of f is zero, so rank indicators "
        "carry the gradient.",
        DIVERSITY: "The probability that two of the drawn balls, chosen with replacement, belong "
        "to different groups.",
    }
    text = (
        f"<p><b>f(x) = {formulas[question.function]}</b> has the mean "
        f"{found.value:.4g}.<br>{notes[question.function]}</p>"
    )
    if not found.estimates:
        return (
            text
            + "<p>There is no estimator for a threshold in Wallenius' model, so only the exact "
            "gradient is shown.</p>"
        )
    rows = [
        [name, _ratio(estimate.bias), _ratio(estimate.spread)]
        for name, estimate in found.estimates.items()
    ]
    shown = (
        table(["", "bias", "spread"], rows)
        + "<p class='hint'>Both relative to the length of the exact gradient.</p>"
    )
    if setting.model == WALLENIUS:
        shown += "<p class='hint'>rsample of Wallenius' model multiplies gradients by ∂ mean / ∂ log ω.</p>"
    return text + shown


def _ratio(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
