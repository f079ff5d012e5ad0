"""What the paper leaves open: a rate that falls by 0.9 every 20 epochs.

Not run yet. The second author's code has this schedule. Three seeds, all 1,000 epochs, since the
schedule spans them.
"""

from diffurn_studies.clustering.options import Options

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz",
    versions=(1.0, 0.6),
    seeds=3,
    decay=0.9,
    decay_epochs=20,
    smallest_rate=5e-6,
)
