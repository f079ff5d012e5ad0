"""The paper's example with the optimiser of its released script.

Adam with rate 1e-3, one datum per step, the rate multiplied by 0.99 after every epoch, twenty
epochs.
"""

from diffurn_studies.minimal.options import Options

OPTIONS = Options(optimiser="adam", batch_size=1, learning_rate=1e-3, epochs=20)
