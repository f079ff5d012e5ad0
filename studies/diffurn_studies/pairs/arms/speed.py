"""The time of a training step of each method, twelve models in a stack.

Result (``results/pairs-speed``, which keeps the unit ``speed`` only): the urn costs 3 % of a step.
That run was made before AdaVAE was added.
The short training beside the measurement has no meaning of its own.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import random_sets
from diffurn_studies.pairs.methods import ADAPTIVE, HYPERGEOMETRIC, LABEL

OPTIONS = replace(
    random_sets.OPTIONS,
    shared=(3,),
    methods=(LABEL, ADAPTIVE, HYPERGEOMETRIC),
    seeds=1,
    steps=64,
    test_pairs=1_200,
    score_train=800,
    together=False,
    timed_models=12,
)
