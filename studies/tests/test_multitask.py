"""The multitask study: canvases, ways to share neurons, stacks of LeNets, and a tiny run."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import conv2d, linear, max_pool2d

from diffurn.compat import RandPart
from diffurn_studies.harness.runner import run
from diffurn_studies.harness.study import Results
from diffurn_studies.harness.workspace import Workspace
from diffurn_studies.partitions import multitask
from diffurn_studies.partitions import study as partitions
from diffurn_studies.partitions.multitask_networks import TwoTasks
from diffurn_studies.partitions.options import TASK_METHODS, MultitaskOptions
from diffurn_studies.partitions.two_digits import TwoDigits, two_digits
from diffurn_studies.partitions.ways import WAYS, released, settled
from diffurn_studies.stacked.steps import Replayed

TINY = MultitaskOptions(
    dataset="digits",
    methods=("shared", "halves", "conditional"),
    noises=(0.0, 1.0),
    seeds=2,
    epochs=2,
    batch_size=256,
    learning_rate=1e-3,
    neurons=6,
    annealing_steps=10,
    evaluate_every=1,
)
HALF = torch.tensor(0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("multitask") / "run"


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return run(partitions, TINY, folder)


# Canvases.


def canvas(left: Tensor, right: Tensor) -> np.ndarray:
    """By Pillow: the lighter of both digits, eight pixels apart on 36 × 36, resized."""
    both = np.zeros((36, 36), dtype=np.uint8)
    both[:28, :28] = left.numpy()
    both[6:34, 6:34] = np.maximum(both[6:34, 6:34], right.numpy())
    return np.asarray(Image.fromarray(both).resize((28, 28), Image.Resampling.BILINEAR))


def test_canvases_show_both_digits() -> None:
    torch.manual_seed(0)
    images, labels = torch.randint(256, (10, 784), dtype=torch.uint8), torch.arange(10)
    pictures, (left, right) = two_digits(images, labels, (28, 28), (0.0, 0.4, 1.0), seed=0)
    digits = images.view(10, 28, 28)
    black = torch.zeros(28, 28, dtype=torch.uint8)
    assert left.tolist() == labels.tolist() != right.tolist()
    for number in range(10):
        own = digits[left[number]]
        for level, other in ((0, digits[right[number]]), (2, black)):
            expected = canvas(own, other).astype(int)
            assert np.abs(pictures[level, number].numpy().astype(int) - expected).max() <= 1


def test_noise_blackens_its_share_of_the_right_digit() -> None:
    white = torch.full((40, 784), 255, dtype=torch.uint8)
    noises = (0.0, 0.25, 0.75)
    pictures, _ = two_digits(white, torch.zeros(40, dtype=torch.int64), (28, 28), noises, seed=0)
    corner = pictures[:, :, 23:25, 23:25].double().mean((1, 2, 3))  # of the right digit alone
    torch.testing.assert_close(corner / 255, 1 - torch.tensor(noises).double(), rtol=0, atol=0.05)
    assert (pictures[0] >= pictures[1]).all()
    assert (pictures[1] >= pictures[2]).all()


# Ways.


@pytest.mark.parametrize("way", WAYS)
def test_neurons_are_divided_and_gradients_arrive(way: str) -> None:
    torch.manual_seed(0)
    scores, log_weights = torch.randn(2, 3, 7), torch.randn(2, 3, 2)
    leaves = scores.requires_grad_(), log_weights.requires_grad_()
    memberships = WAYS[way](*leaves, HALF)
    assert memberships.shape == (2, 3, 7, 2)
    assert ((memberships >= 0) & (memberships <= 1)).all()
    if way != "released":  # whose items may belong to both tasks, or to none
        assert (memberships.sum(-1) == 1).all()
    loss = (memberships[..., 0] * torch.randn(7)).sum()
    for gradient in torch.autograd.grad(loss, leaves):
        assert gradient.isfinite().all()
        assert gradient.abs().sum() > 0


# torch itself, on first use of its compiler, calls functions that it has deprecated
@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_one_graph_without_a_look_at_values(way: str) -> None:
    scores, log_weights = torch.randn(2, 3, 7), torch.randn(2, 3, 2)
    leaves = scores.requires_grad_(), log_weights.requires_grad_()
    compiled = torch.compile(WAYS[way], fullgraph=True, dynamic=False, backend="aot_eager")
    for gradient in torch.autograd.grad(compiled(*leaves, HALF)[..., 0].sum(), leaves):
        assert gradient.isfinite().all()


def test_the_released_setting_is_that_of_its_interface() -> None:
    torch.manual_seed(0)
    scores, log_weights = torch.randn(5, 9), 2 * torch.randn(5, 2)
    part = RandPart(2, device="cpu")(
        scores, log_weights, g_noise=False, hard_pi=False, temperature=0.5
    )[0]
    torch.testing.assert_close(released(scores, log_weights, HALF), part.mT)


def test_settled_neurons_have_the_likeliest_sizes_and_highest_scores() -> None:
    torch.manual_seed(0)
    scores, log_weights = torch.randn(20, 6), 2 * torch.randn(20, 2)
    for own, weights, found in zip(scores, log_weights, settled(scores, log_weights), strict=True):
        masses = [
            2 * math.log(math.comb(6, k)) + k * float(weights[0] - weights[1]) for k in range(7)
        ]
        first = own >= own.sort(descending=True).values[masses.index(max(masses)) - 1]
        if max(masses) == masses[0]:
            first = torch.zeros_like(first)
        assert found.tolist() == torch.stack([first, ~first], -1).float().tolist()


# Networks.


def test_a_stack_is_many_lenets() -> None:
    torch.manual_seed(0)
    stack = TwoTasks("halves", [3, 4], neurons=5, coldest=0.5).eval()
    pictures = torch.randn(2, 6, 28, 28)
    logits, _, memberships = stack(pictures, HALF)
    trunk = stack.trunk
    for model, x in enumerate(pictures):
        x = conv2d(x.unsqueeze(1), trunk.weights[0][model], trunk.biases[0][model])
        x = max_pool2d(x, 2).relu()
        x = max_pool2d(conv2d(x, trunk.weights[1][model], trunk.biases[1][model]), 2).relu()
        features = linear(x.flatten(1), trunk.dense.weight[model].mT, trunk.dense.bias[model, 0])
        for task, head in enumerate((stack.left, stack.right)):
            own = features.relu() * torch.tensor([[1.0, 1, 1, 0, 0], [0, 0, 0, 1, 1]])[task]
            for layer in head:
                own = linear(own.relu(), layer.weight[model].mT, layer.bias[model, 0])
            torch.testing.assert_close(logits[task, model], own)
    assert memberships[..., 0].sum(-1).unique().tolist() == [3]


def test_models_of_one_seed_start_from_the_same_shared_layers() -> None:
    states = [TwoTasks(way, [7], 5, 0.5).state_dict() for way in TASK_METHODS]
    for name, weight in states[0].items():
        for other in states[1:]:
            assert torch.equal(other[name], weight), name


def some_digits() -> TwoDigits:
    images = torch.randint(256, (64, 784), dtype=torch.uint8)
    return two_digits(images, torch.arange(64) % 10, (28, 28), (0.0,), seed=0)


@pytest.mark.parametrize("method", TASK_METHODS)
def test_steps_are_replayed_on_the_device(method: str, device: torch.device) -> None:
    options = replace(TINY, noises=(0.0,), batch_size=16)
    data = some_digits().to(device)
    training = multitask.MultitaskTraining(options, method, data)
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    assert training.advance(Replayed.WARM_UP + 3) == []
    assert training.read_measures().isfinite().all()
    for parameter, start in zip(training.model.parameters(), before, strict=True):
        assert parameter.isfinite().all()
        assert not torch.equal(parameter, start)
    accuracy, share = training.scores(data)
    assert ((accuracy >= 0) & (accuracy <= 1)).all()
    assert ((share > 0) & (share < 1)).all()


def test_models_of_a_stack_do_not_change_each_other() -> None:
    data = some_digits()
    found = []
    for seeds in (1, 3):
        options = replace(TINY, noises=(0.0,), seeds=seeds, batch_size=16)
        training = multitask.MultitaskTraining(options, "shared", data)
        training.model.eval()  # without dropout, whose noise is drawn for the whole stack
        training.advance(3)
        found.append([parameter.detach()[0] for parameter in training.model.parameters()])
    for alone, beside in zip(*found, strict=True):
        torch.testing.assert_close(alone, beside, rtol=1e-9, atol=1e-9)


# Runs.


def test_a_run_has_accuracies_and_shares_of_every_model(results: Results, folder: Path) -> None:
    assert list(results.records) == list(TINY.methods)
    for method, record in results.records.items():
        labels = [(model["noise"], model["seed"]) for model in record["models"]]
        assert labels == list(itertools.product(TINY.noises, range(TINY.seeds)))
        for model in record["models"]:
            assert model["epochs"] == [1, 2]
            for name in ("left", "right", "share"):
                assert len(model[name]) == 2
                assert all(0 <= value <= 1 for value in model[name])
            if method in ("shared", "halves"):
                assert model["share"] == [0.5, 0.5]
    left, right, share, each = partitions.table(results)
    assert len(left.rows) == len(right.rows) == 3
    assert len(share.rows) == 1
    assert len(each.rows) == 6
    assert "most accurate" in partitions.verdict(results)[0]
    assert "share of the right task" in partitions.verdict(results)[1]
    (figure,) = (folder / "figures").glob("*.png")
    assert figure.stem in partitions.CAPTIONS


def test_models_that_broke_down_are_left_out(results: Results) -> None:
    records = {name: {**record} for name, record in results.records.items()}
    broken = [{**model, "broken": True} for model in records["shared"]["models"]]
    records["shared"]["models"] = broken
    found = replace(results, records=records)
    assert partitions.table(found)[0].rows[0][1:] == [None, None]
    assert partitions.verdict(found)
    assert partitions.figure(found)


def test_an_interrupted_unit_goes_on_from_its_checkpoint(results: Results, tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float32)  # as in the run
    cpu = torch.device("cpu")
    out_of_time = replace(TINY, budget_seconds=0.0)
    with pytest.raises(Exception, match="are used up"):
        multitask.run_unit(out_of_time, "conditional", Workspace(tmp_path, "conditional", cpu))
    again = multitask.run_unit(TINY, "conditional", Workspace(tmp_path, "conditional", cpu))
    assert again["models"] == results.records["conditional"]["models"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"methods": ("random",)},
        {"noises": (0.5, 0.1)},
        {"noises": (0.0, 1.5)},
        {"epochs": 0},
        {"neurons": 1},
        {"weight": -1.0},
        {"coldest": 0.0},
    ],
    ids=str,
)
def test_impossible_options_are_refused_with_a_reason(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MultitaskOptions(**wrong)


@pytest.mark.slow
def test_the_quick_options_run() -> None:
    found = run(partitions, MultitaskOptions().quick())
    assert len(partitions.table(found)) == 4
