"""The paper's three priors on Fashion-MNIST.

Not run yet. The paper has no such experiment. Autoencoders of our own, since VaDE released none for
these pictures. Give the folder of the idx files with ``--set data=PATH``.
"""

from diffurn_studies.clustering.options import Options

OPTIONS = Options(dataset="fashion-mnist")
