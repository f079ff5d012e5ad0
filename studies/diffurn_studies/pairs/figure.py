"""The figures of the study, from its records."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from diffurn_studies.harness.drawing import COLOURS, curves, legend_below, plain
from diffurn_studies.pairs.methods import VARIED, Method, plain_number
from diffurn_studies.pairs.mosaics import pictured_models, reconstructions, traversals
from diffurn_studies.pairs.options import Options
from diffurn_studies.pairs.records import (
    Ablation,
    Model,
    ablations,
    counts_of,
    fixed_settings,
    joined,
    known,
    mean_independent,
    methods_of,
    seed_means,
    select,
    settings_of,
    shown_shared,
)
from diffurn_studies.pairs.references import FLOOR, references_of

MARKERS = "osD^vPX"
LINES = ("-", (0, (5, 1)), (0, (1, 1)))  # for more methods than colours
REFERENCES: dict[str, dict[str, Any]] = {
    "best constant": {"color": "black", "linestyle": ":"},
    "ω = 1": {"color": "grey", "linestyle": "-."},
    FLOOR: {"color": "grey", "linestyle": (0, (1, 2))},
    "oracle": {"color": "black", "linestyle": "--"},
}
HOLLOW: dict[str, Any] = {"fillstyle": "none", "linestyle": ":"}
GREY: dict[str, Any] = {"color": "grey", "marker": "o"}
# The appendix's figures.
REPRESENTED = {
    "disentanglement": "disentanglement (DCI)",
    "whole_accuracy": "linear classifiers on all latents: adjusted accuracy",
}
CAPTIONS = {
    "pairs-shared": "The paper's figure (left), the same for the independent factors, and the "
    "number of latents that the models take as independent. Hollow marks: by the urn's mode.",
    "pairs-representation": "The appendix's figures: disentanglement and linear classifiers.",
    "pairs-training": "Losses and numbers of independent latents over the steps.",
    "pairs-profile": "The loss if the number of independent latents were set by hand.",
    "pairs-ablation": "The appendix's ablations: one setting varied at a time.",
    "pairs-reconstructions": "Test pairs and their reconstructions.",
    "pairs-traversals": "What each latent changes in a picture.",
}
ESTIMATE, INDEPENDENT = r"$\hat{s}$", r"$\hat{k}$"  # as mathematics: fonts lack k̂


def figures(records: Mapping[str, Mapping[str, Any]], options: Options) -> dict[str, Figure]:
    """All figures of the study for which the records have data.

    Args:
        records: by unit.
        options: of the run.
    """
    models = joined(records)
    if not models:
        return {}
    made = {
        "pairs-shared": shared_factors(models, options.latent),
        "pairs-training": training(models, options.latent),
        "pairs-profile": profile(models),
    }
    if any(known(models, name) for name in REPRESENTED):
        made["pairs-representation"] = representation(models)
    if found := ablations(models):
        made["pairs-ablation"] = ablation(found)
    if pictured := pictured_models(models):
        made["pairs-reconstructions"] = reconstructions(pictured)
        made["pairs-traversals"] = traversals(pictured, options.latent)
    return made


def _styles(models: Iterable[Model]) -> dict[Method, dict[str, Any]]:
    """Colour, marker and line style of each method, the same in every figure."""
    return {method: _style(place) for place, method in enumerate(methods_of(models))}


def _style(place: int) -> dict[str, Any]:
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place // len(COLOURS) % len(LINES)],
    }


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def shared_factors(models: Sequence[Model], latents: int) -> Figure:
    """The paper's figure, MSE(s, ŝ) by s; MSE(F−s, k̂), which is 0 for a perfect model; and the mean
    k̂. Errors are those of draws, and those of the urn's mode where it was recorded.
    """
    factors = models[0]["factors"]
    figure = Figure(figsize=(10, 5), layout="constrained", dpi=160)
    left, middle, right = figure.subplots(1, 3)
    places = _places(models)
    _errors(left, models, places, "shared_error_draw", latents)
    _errors(middle, models, places, "independent_error_draw", latents)
    left.set_title(f"MSE(s, {ESTIMATE}), as in the paper", size=11)
    middle.set_title(f"MSE({factors}−s, {INDEPENDENT}), 0 for a perfect model", size=11)
    for panel in (left, middle):
        panel.set_xlabel("s, factors that are shared", size=10)
        panel.set_ylabel("mean squared error (root scale)", size=10)
    _independent(right, models, latents)
    right.set_title(f"independent latents {INDEPENDENT} of {latents}", size=11)
    handles = [
        Line2D([], [], **style, markersize=6, label=method.label)
        for method, style in _styles(models).items()
    ]
    handles += [
        Line2D([], [], **style, label=f"reference: {name}") for name, style in REFERENCES.items()
    ]
    if _decided(models):
        handles.append(Line2D([], [], **HOLLOW, **GREY, label="by the urn's mode, not by a draw"))
    if None in settings_of(models):
        label = "random s, by the true s of the pair"
        handles.append(Line2D([], [], **HOLLOW | {"linestyle": "--"}, **GREY, label=label))
    legend_below(figure, handles, 2 if max(len(str(h.get_label())) for h in handles) > 40 else 3)
    return figure


def _decided(models: Sequence[Model]) -> list[Model]:
    """The models that draw k̂, if the errors of their modes were recorded."""
    drawing = [model for model in models if model["method"].draws]
    return drawing if known(drawing, "independent_error_mode") else []


def representation(models: Sequence[Model]) -> Figure:
    """The appendix's figures: disentanglement, and linear classifiers on all latents, by s."""
    figure = Figure(figsize=(9.5, 4.6), layout="constrained", dpi=160)
    places = _places(models)
    for panel, (name, title) in zip(figure.subplots(1, 2), REPRESENTED.items(), strict=True):
        _by_setting(panel, models, places, name, _styles(models))
        panel.set_title(title, size=11)
        panel.set_xlabel("s, factors that are shared", size=10)
        panel.set_ylabel("score", size=10)
        panel.set_xticks(list(places.values()), [shown_shared(shared) for shared in places])
        panel.set_xlim(min(places.values()) - 0.5, max(places.values()) + 0.5)
        panel.set_ylim(bottom=0)
        plain(panel)
    legend_below(
        figure,
        [
            Line2D([], [], **style, markersize=6, label=method.label)
            for method, style in _styles(models).items()
        ],
        2,
    )
    return figure


def _places(models: Sequence[Model]) -> dict[int | None, float]:
    """The position of each s on the axis; random s is at the right, with a gap."""
    fixed = fixed_settings(models)
    return {
        shared: max(fixed, default=0) + 1.5 if shared is None else float(shared)
        for shared in settings_of(models)
    }


def _errors(
    panel: Any, models: Sequence[Model], places: Mapping[int | None, float], name: str, latents: int
) -> None:
    styles = _styles(models)
    _by_setting(panel, models, places, name, styles)
    hollow = {method: {**style, **HOLLOW} for method, style in styles.items()}
    _by_setting(panel, _decided(models), places, name.replace("draw", "mode"), hollow)
    references = {shared: references_of(models, shared, latents) for shared in places}
    for reference, style in REFERENCES.items():
        values = {
            shared: getattr(found[reference], name.removesuffix("_draw"))
            for shared, found in references.items()
            if found
        }
        for settings in _apart(values):
            where, heights = (
                [places[shared] for shared in settings],
                [values[shared] for shared in settings],
            )
            if len(where) == 1:  # a line needs two points
                where, heights = [where[0] - 0.4, where[0] + 0.4], heights * 2
            panel.plot(where, heights, **style, linewidth=1.2, zorder=1)
    panel.set_xticks(list(places.values()), [shown_shared(shared) for shared in places])
    panel.set_xlim(min(places.values()) - 0.5, max(places.values()) + 0.5)
    panel.set_yscale("function", functions=(_root, _square))
    panel.set_yticks([number**2 for number in range(latents + 1)])
    panel.set_ylim(-0.05, max(1.0, panel.dataLim.y1) * 1.08)
    plain(panel)


def _root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))  # error bars may reach below zero


def _square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def _by_setting(
    panel: Any,
    models: Sequence[Model],
    places: Mapping[int | None, float],
    name: str,
    styles: Mapping[Method, dict[str, Any]],
) -> None:
    """Mean and deviation of every method by s; a line connects the fixed s."""
    for index, (method, style) in enumerate(styles.items()):
        aside = 0.06 * (index - (len(styles) - 1) / 2)  # keeps equal values apart
        found = {
            shared: values
            for shared in places
            if (values := known(select(models, shared, method), name))
        }
        for settings in _apart(found):
            where = [places[shared] + aside for shared in settings]
            means, deviations = (
                [statistics.fmean(found[shared]) for shared in settings],
                [_deviation(found[shared]) for shared in settings],
            )
            panel.errorbar(
                where,
                means,
                deviations,
                **style,
                markersize=6,
                linewidth=1.3,
                capsize=2,
                elinewidth=1,
            )


def _apart(settings: Iterable[int | None]) -> list[list[int | None]]:
    """Fixed and random s separately: no line connects them."""
    kinds = [
        [shared for shared in settings if (shared is None) is random] for random in (False, True)
    ]
    return [kind for kind in kinds if kind]


def _independent(panel: Any, models: Sequence[Model], latents: int) -> None:
    factors = models[0]["factors"]
    panel.plot([0, factors], [0, factors], **REFERENCES["oracle"], linewidth=1.2, zorder=1)
    panel.axhline(latents / 2, **REFERENCES["ω = 1"], linewidth=1.2, zorder=1)
    _by_setting(
        panel,
        models,
        {shared: float(factors - shared) for shared in fixed_settings(models)},
        "independent",
        _styles(models),
    )
    for method, style in _styles(models).items():
        random = counts_of(select(models, None, method))
        numbers = [mean_independent(counts) for counts in random.values()]
        hollow = {**style, **HOLLOW, "linestyle": "--"}
        panel.plot(
            [factors - shared for shared in random], numbers, **hollow, markersize=6, linewidth=1
        )
    panel.set(
        xlim=(-0.3, factors + 0.3),
        ylim=(-0.3, latents + 0.3),
        xticks=range(factors + 1),
        yticks=range(latents + 1),
    )
    panel.set_xlabel(f"{factors}−s, factors that differ", size=10)
    panel.set_ylabel(f"mean {INDEPENDENT}", size=10)
    plain(panel)


def _columns(
    models: Sequence[Model], rows: int, height: float
) -> tuple[Figure, Any, list[int | None]]:
    """A figure with a column for each s."""
    settings = settings_of(models)
    figure = Figure(
        figsize=(max(2.4 * len(settings), 9) + 0.6, height), layout="constrained", dpi=160
    )
    panels = figure.subplots(rows, len(settings), sharex=True, sharey="row", squeeze=False)
    for panel in panels.ravel():
        plain(panel)
    for panel, shared in zip(panels[0], settings, strict=True):
        panel.set_title("random s" if shared is None else f"s = {shared}", size=11)
    return figure, panels, settings


def _method_legend(figure: Figure, models: Sequence[Model], truth: str) -> None:
    styles = {method: {**style, "marker": ""} for method, style in _styles(models).items()}
    handles = [
        Line2D([], [], **style, linewidth=2, label=method.label) for method, style in styles.items()
    ]
    handles.append(Line2D([], [], color="grey", linewidth=0.7, label="each seed"))
    if fixed_settings(models):
        handles.append(Line2D([], [], color="black", linestyle="--", linewidth=1.2, label=truth))
    legend_below(figure, handles, 2 if len(settings_of(models)) < 4 else 3)


def training(models: Sequence[Model], latents: int) -> Figure:
    """Mean k̂ and loss during training: a thin line for every model, a thick line for their mean.
    The first losses lie above the panels.
    """
    figure, panels, settings = _columns(models, rows=2, height=6.4)
    factors, last = models[0]["factors"], _last_step(models)
    for column, shared in zip(panels.T, settings, strict=True):
        for method, style in _styles(models).items():
            for panel, name in zip(column, ("independent", "loss"), strict=True):
                found = [
                    (model["curve"]["step"], np.array(model["curve"][name], float))
                    for model in select(models, shared, method)
                ]
                curves(panel, found, **{**style, "marker": ""})
        if shared is not None:
            column[0].axhline(factors - shared, **REFERENCES["oracle"], linewidth=1.2, zorder=1)
        column[1].set_xlabel("step", size=10)
        column[1].set_xticks([0, last // 2, last], [f"{step:,}" for step in (0, last // 2, last)])
    panels[0, 0].set_ylabel(f"mean {INDEPENDENT}", size=10)
    panels[1, 0].set_ylabel("loss (nats)", size=10)
    panels[0, 0].set_ylim(-0.03 * latents, 1.03 * latents)
    panels[1, 0].set_ylim(_later_losses(models))
    panels[1, 0].yaxis.set_major_formatter(FuncFormatter(lambda loss, _: f"{loss:,g}"))
    _method_legend(figure, models, f"factors that differ, {factors}−s")
    return figure


def _last_step(models: Sequence[Model]) -> int:
    return max((step for model in models for step in model["curve"]["step"]), default=0)


def _later_losses(models: Sequence[Model]) -> tuple[float, float]:
    """The range of the losses after the first twentieth of training, without the largest 2 %, which
    may belong to a model that breaks down.
    """
    points = [
        point
        for model in models
        for point in zip(model["curve"]["step"], model["curve"]["loss"], strict=True)
    ]
    losses = [loss for step, loss in points if step >= _last_step(models) / 20 and loss is not None]
    lowest, highest = np.quantile(losses, (0, 0.98)) if losses else (0.0, 1.0)
    margin = 0.05 * (highest - lowest) or 1.0
    return lowest - margin, highest + margin


def profile(models: Sequence[Model]) -> Figure:
    """The loss of the trained models for every fixed k̂, minus each model's minimum."""
    figure, panels, settings = _columns(models, rows=1, height=4.4)
    factors = models[0]["factors"]
    for panel, shared in zip(panels[0], settings, strict=True):
        for method, style in _styles(models).items():
            own = [
                np.array(model["final"]["profile"])
                for model in select(models, shared, method)
                if model["final"] is not None
            ]
            above = [losses - losses.min() for losses in own]
            for losses in above:
                panel.plot(losses, color=style["color"], linewidth=0.7, alpha=0.6)
            if above:
                panel.plot(np.mean(above, 0), **style, linewidth=2, markersize=4)
        if shared is not None:
            panel.axvline(factors - shared, **REFERENCES["oracle"], linewidth=1.2, zorder=1)
        panel.set_xlabel(f"{INDEPENDENT}, fixed", size=10)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panels[0, 0].set_yscale("symlog", linthresh=1)
    panels[0, 0].set_ylim(bottom=-0.15)
    panels[0, 0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    panels[0, 0].set_ylabel("loss above its minimum (nats)", size=10)
    _method_legend(figure, models, f"factors that differ, {factors}−s")
    return figure


def ablation(found: Sequence[Ablation]) -> Figure:
    """Loss and errors against learning rate, final temperature and β: means over s, ± their
    deviation over seeds.
    """
    factors = next(iter(found[0].models.values()))[0]["factors"]
    rows = {
        "loss": "loss (nats)",
        "independent_error_draw": f"MSE({factors}−s, {INDEPENDENT})",
        "shared_error_draw": f"MSE(s, {ESTIMATE})",
    }
    varied = [name for name in VARIED if any(each.varied == name for each in found)]
    figure = Figure(figsize=(max(4.2 * len(varied), 6), 7.6), layout="constrained", dpi=160)
    panels = figure.subplots(len(rows), len(varied), sharex="col", sharey="row", squeeze=False)
    for column, name in zip(panels.T, varied, strict=True):
        own = [each for each in found if each.varied == name]
        for panel, measured in zip(column, rows, strict=True):
            for place, each in enumerate(own):
                _ablated(panel, each, measured, place)
            plain(panel)
        values = sorted({value for each in own for value in each.models})
        column[-1].set_xscale("log" if values[0] > 0 else "linear")
        column[-1].set_xticks(values, [plain_number(value) for value in values])
        column[-1].minorticks_off()
        column[-1].set_xlabel(
            {
                "learning_rate": "learning rate",
                "final_temperature": "final temperature τ",
                "beta": "β",
            }[name],
            size=10,
        )
        column[0].legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8)
    for panel, label in zip(panels[:, 0], rows.values(), strict=True):
        panel.set_ylabel(label, size=10)
    return figure


def _ablated(panel: Any, found: Ablation, measured: str, place: int) -> None:
    by_value = {
        value: [mean[measured] for mean in seed_means(models, [measured])]
        for value, models in found.models.items()
    }
    by_value = {value: figures for value, figures in by_value.items() if figures}
    means, deviations = (
        [statistics.fmean(each) for each in by_value.values()],
        [_deviation(each) for each in by_value.values()],
    )
    where = [value * 1.05**place for value in by_value]  # keeps equal values apart
    label = f"{found.method.label}: {found.held}"
    panel.errorbar(
        where,
        means,
        deviations,
        **_style(place),
        label=label,
        markersize=6,
        linewidth=1.3,
        capsize=3,
        elinewidth=1,
    )
