"""What the paper leaves open: the digits 5 to 9 are reduced, to 60 %.

Not run yet. Short: 300 epochs. Compare with the curves of ``results/clustering`` and
``results/clustering-counts`` at epoch 300, which have 0 to 4 reduced.
"""

from diffurn_studies.clustering.options import Options

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz", versions=(0.6,), reduced=(5, 6, 7, 8, 9), epochs=300
)
