"""Where clustering starts: released weights, autoencoders trained layer by layer, and mixtures of
their latents.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from test_vade import ALL, tiny_stack

from diffurn_studies.clustering.mixtures import Mixture
from diffurn_studies.clustering.pretraining import (
    Autoencoder,
    pretrain,
    read_vade_weights,
    start_from,
)


def saved_autoencoder(path: Path, **changed: np.ndarray) -> dict[str, np.ndarray]:
    sizes = (9, 7, 6, 3)
    arrays = {}
    for half, chain in (("encoder", sizes), ("decoder", sizes[::-1])):
        for number, (a, b) in enumerate(itertools.pairwise(chain), start=1):
            arrays[f"{half}{number}_W"] = (
                np.random.default_rng(number).normal(size=(a, b)).astype(np.float32)
            )
            arrays[f"{half}{number}_b"] = (
                np.random.default_rng(number + 9).normal(size=b).astype(np.float32)
            )
    np.savez(path, **{**arrays, **changed})
    return arrays


def test_released_weights_are_the_matrices_they_were(tmp_path: Path) -> None:
    arrays = saved_autoencoder(tmp_path / "vade.npz")
    autoencoder = read_vade_weights(tmp_path / "vade.npz", 9, (7, 6), 3)
    images = torch.randint(0, 256, (5, 9), dtype=torch.uint8)
    h = images.numpy() / 255
    for number in (1, 2):
        h = np.maximum(h @ arrays[f"encoder{number}_W"] + arrays[f"encoder{number}_b"], 0)
    z = h @ arrays["encoder3_W"] + arrays["encoder3_b"]
    np.testing.assert_allclose(autoencoder.latents(images, 0).numpy(), z, rtol=1e-6)
    h = z
    for number in (1, 2):
        h = np.maximum(h @ arrays[f"decoder{number}_W"] + arrays[f"decoder{number}_b"], 0)
    logits = h @ arrays["decoder3_W"] + arrays["decoder3_b"]
    np.testing.assert_allclose(
        autoencoder(images.double().unsqueeze(0) / 255)[0].detach().numpy(),
        logits,
        rtol=1e-6,
        atol=1e-6,
    )


def test_released_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    saved_autoencoder(tmp_path / "wrong.npz", encoder2_W=np.zeros((7, 5), dtype=np.float32))
    with pytest.raises(ValueError, match="encoder2_W"):
        read_vade_weights(tmp_path / "wrong.npz", 9, (7, 6), 3)
    saved_autoencoder(tmp_path / "shallow.npz")
    with pytest.raises(ValueError, match="encoder4_W"):
        read_vade_weights(tmp_path / "shallow.npz", 9, (7, 6, 3), 3)
    with pytest.raises(ValueError, match="cannot be read"):
        read_vade_weights(tmp_path / "missing.npz", 9, (7, 6), 3)


def test_a_stack_starts_where_autoencoder_and_mixture_ended() -> None:
    autoencoder = Autoencoder(2, 9, (7, 6), 3)
    for parameter in autoencoder.parameters():
        torch.nn.init.normal_(parameter)
    model = tiny_stack(ALL)
    mixtures = [Mixture(torch.randn(4, 3), torch.rand(4, 3) + 0.1) for _ in ALL]
    models = len(ALL)
    rows = [s % 2 for s in range(models)]
    start_from(model, autoencoder, rows, mixtures, seeds=list(range(1, models + 1)))
    images = torch.randint(0, 256, (8, 9), dtype=torch.uint8)
    x = images.double() / 255
    mean, log_variance = model.encode(x.expand(models, -1, -1))
    for s, row in enumerate(rows):
        torch.testing.assert_close(mean[s], autoencoder.latents(images, row))
    torch.testing.assert_close(
        model.log_variances.exp(), torch.stack([variances for _, variances in mixtures])
    )
    assert torch.equal(model.log_weights, torch.zeros(models, 4))
    assert log_variance.std() > 0
    torch.testing.assert_close(model.expected_shares(), torch.full((models, 4), 0.25))


def test_pretraining_learns_to_restore_its_data() -> None:
    patterns = torch.randint(0, 2, (4, 16), dtype=torch.uint8) * 255
    images = patterns[torch.arange(200) % 4]
    items = [torch.arange(200), torch.arange(0, 120)]
    autoencoder = pretrain(
        images, items, [0, 1], (12,), 3, 60, 60, batch_size=20, learning_rate=0.05
    )
    restored = autoencoder((images[:4].double() / 255).expand(2, -1, -1)).sigmoid()
    assert (restored - images[:4].double() / 255).abs().mean() < 0.1


def test_pretraining_that_diverges_says_so() -> None:
    images = (torch.randint(0, 2, (4, 16), dtype=torch.uint8) * 255)[torch.arange(40) % 4]
    with pytest.raises(ValueError, match="diverges at the learning rate 1; a smaller one"):
        pretrain(
            images, [torch.arange(40)], [0], (12,), 3, 30, 30, batch_size=20, learning_rate=1.0
        )
