"""Neurons of a layer shared among two tasks, on noisyMultiMNIST.

Not run yet.
"""

from diffurn_studies.partitions.options import MultitaskOptions

OPTIONS = MultitaskOptions()
