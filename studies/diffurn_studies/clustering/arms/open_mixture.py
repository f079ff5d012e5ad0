"""What the paper leaves open: one mixture for all seeds, the likeliest of three.

Not run yet. The paper's ±0.5 in one cell would fit runs that start alike. Short: 300 epochs.
"""

from diffurn_studies.clustering.options import Options

OPTIONS = Options(
    pretrained="vade_ae_mnist.npz", one_mixture=True, mixture_fits=3, seeds=3, epochs=300
)
