"""The figures of the pairs study, from records whose answers are worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from pair_records import (
    ONCE,
    SHAPE,
    SMALL,
    STEPS,
    ablated,
    counts,
    options,
    scores_of,
    train_record,
    trained,
    with_pictures,
)

from diffurn_studies.harness.pictures import unpacked
from diffurn_studies.pairs.figure import figures
from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL, ORACLE


def drawn(records: dict[str, Any], **changes: Any) -> dict[str, Figure]:
    """Warnings are errors here, and some come only as a figure is drawn."""
    made = figures(records, options(**changes))
    for figure in made.values():
        figure.draw_without_rendering()
    return made


def lines(panel: Any) -> list[tuple[list[float], list[float]]]:
    return [
        (list(map(float, line.get_xdata())), list(map(float, line.get_ydata())))
        for line in panel.lines
    ]


def heights(panel: Any) -> list[list[float]]:
    return [values for _, values in lines(panel)]


def test_figures_are_drawn_from_one_seed_and_one_s() -> None:
    assert set(drawn({"train-s3": SMALL["train-s3"]})) == {
        "pairs-shared",
        "pairs-training",
        "pairs-profile",
    }


def test_the_figure_of_shared_factors_holds_errors_and_references() -> None:
    left, middle, right = drawn(SMALL)["pairs-shared"].axes
    for values in ([81.0, 36.0], [64.0, 30.5], [10.4, 9.0]):  # LabelVAE, AdaVAE, HGVAE
        assert any(values == pytest.approx(each) for each in heights(left))
    for values in ([36.0, 9.0], [25.0, 6.5], [0.2, 0.0]):
        assert any(values == pytest.approx(each) for each in heights(middle))
    for values in (
        [9.0, 9.0],
        [1.0, 4.0],
    ):  # oracle; the best constants for s = 0 and 3 are ŝ = 1, or 2, and k̂ = 5, or 6
        assert values in heights(left)
    assert any(each == pytest.approx([4.0, 1.0]) for each in heights(middle))
    assert ([0.0, 7.0], [0.0, 7.0]) in lines(right)
    assert any(
        where == pytest.approx([7, 4], abs=0.1) and values == pytest.approx([6.8, 4.0])
        for where, values in lines(right)
    )


def test_random_s_stands_apart_in_the_figure_of_shared_factors() -> None:
    random = train_record(
        trained(HYPERGEOMETRIC, None, {"1": counts(k6=3), "4": counts(k3=2, k5=1)})
    )
    left, _, right = drawn(SMALL | {"train-srandom": random})["pairs-shared"].axes
    assert [label.get_text() for label in left.get_xticklabels()] == ["0", "3", "random"]
    assert any(each == pytest.approx([46 / 6]) for each in heights(left))
    assert ([6.0, 3.0], pytest.approx([6.0, 11 / 3])) in lines(right)  # by 7−s


def test_the_appendixs_figures_show_disentanglement_and_classifiers_by_s() -> None:
    scores = scores_of(SMALL, {"LabelVAE": 0.1, "AdaVAE": 0.2, "HGVAE": 0.3})
    left, right = drawn(SMALL | scores)["pairs-representation"].axes
    assert [0.25, 0.25] in heights(left)
    assert [0.5, 0.5] in heights(right)
    assert "pairs-representation" not in figures(SMALL, options())


def test_curves_end_where_models_broke_down_and_do_not_enter_the_mean() -> None:
    models = [trained(ADAPTIVE, 3, counts(k2=1), seed) for seed in (0, 1)] + [
        trained(ADAPTIVE, 3, None, 2)
    ]
    number, loss = drawn({"train-s3": train_record(*models)})["pairs-training"].axes
    steps = list(map(float, range(0, STEPS + 1, 100)))
    expected = [5000 / (1 + step) + 0.5 for step in steps]
    assert any(
        where == steps and values == pytest.approx(expected) for where, values in lines(loss)
    )
    assert ([0.0, 100.0], [5002.0, pytest.approx(5000 / 101 + 2)]) in lines(loss)
    assert [4.0, 4.0] in heights(number)  # 7−s
    assert loss.get_ylim()[1] < 1_000  # the first steps do not hide the others


def test_profiles_start_from_their_minimum_and_mark_the_truth() -> None:
    _, panel = drawn(SMALL)["pairs-profile"].axes
    assert [float((number - 4) ** 2) for number in range(11)] in heights(panel)
    assert ([4.0, 4.0], [0.0, 1.0]) in lines(panel)


def test_the_figure_of_the_ablation_holds_means_by_value() -> None:
    panels = drawn(ablated())["pairs-ablation"].axes
    assert [panel.get_ylabel() for panel in panels] == [
        "loss (nats)",
        r"MSE(7−s, $\hat{k}$)",
        r"MSE(s, $\hat{s}$)",
    ]
    assert ([1e-6, 1e-4], [2.0, 1.0]) in lines(panels[1])
    assert [label.get_text() for label in panels[2].get_xticklabels()] == ["1e-6", "1e-4"]


def test_pictures_show_each_method_and_leave_out_the_oracle_first() -> None:
    methods = (ORACLE, LABEL, ADAPTIVE, HYPERGEOMETRIC, ONCE)
    models = [
        with_pictures(trained(method, 3, counts(k4=1)), place)
        for place, method in enumerate(methods)
    ]
    made = drawn(
        {
            "train-s1": train_record(with_pictures(trained(LABEL, 1, counts(k1=1)))),
            "train-s3": train_record(*models),
        }
    )
    names = ["LabelVAE", "AdaVAE", "HGVAE", "HGVAE (once)"]
    assert [panel.get_title() for panel in made["pairs-traversals"].axes] == names
    assert [
        label.get_text() for label in made["pairs-reconstructions"].axes[0].get_yticklabels()
    ] == ["picture", *names]
    for name in ("pairs-reconstructions", "pairs-traversals"):
        assert "s = 3" in made[name].get_suptitle()


def test_pictures_stand_where_their_labels_say() -> None:
    model = with_pictures(trained(ADAPTIVE, 3, counts(k4=1)))
    made = drawn({"train-s3": train_record(model)})
    pairs, values = (
        unpacked(model["pictures"][kind], *SHAPE[:2]) for kind in ("pairs", "traversals")
    )
    height, width = SHAPE[:2]
    for view, panel in enumerate(made["pairs-reconstructions"].axes):
        assert panel.get_title() == f"view {view + 1}"
        for line in (0, 1):  # the picture, and what the model makes of it
            top, left = line * (height + 3), 5 * (width + 3)
            shown_picture = np.asarray(panel.images[0].get_array())[
                top : top + height, left : left + width
            ]
            assert np.array_equal(shown_picture, pairs.reshape(8, 2, 2, *SHAPE)[5, line, view])
    (panel,) = made["pairs-traversals"].axes
    whole = np.asarray(panel.images[0].get_array())
    top, left = 9 * (height + 3), 2 * (width + 3)
    assert np.array_equal(
        whole[top : top + height, left : left + width], values.reshape(10, 7, *SHAPE)[9, 2]
    )
    assert [label.get_text() for label in panel.get_xticklabels()] == ["−2", "0", "2"]


def test_more_methods_than_colours_are_still_told_apart() -> None:
    models = [
        trained(replace(HYPERGEOMETRIC, learning_rate=rate * 1e-5), 3, counts(k4=1))
        for rate in range(1, 11)
    ]
    legend = drawn({"train-s3": train_record(*models)})["pairs-training"].legends[0]
    styles = {
        (handle.get_color(), str(handle.get_linestyle()), handle.get_linewidth())
        for handle in legend.get_lines()
    }
    assert len(styles) == 12  # ten methods, each seed, the truth
