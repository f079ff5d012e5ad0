"""The time of a training step of LabelVAE and HGVAE, twelve models in a stack.

Result (``results/pairs-speed``, which keeps the unit ``speed`` only): the urn costs 3 % of a step.
The short training beside the measurement has no meaning of its own.
"""

from dataclasses import replace

from diffurn_studies.pairs.arms import paper
from diffurn_studies.pairs.methods import HYPERGEOMETRIC, LABEL

OPTIONS = replace(
    paper.OPTIONS,
    shared=(3,),
    methods=(LABEL, HYPERGEOMETRIC),
    seeds=1,
    steps=64,
    test_pairs=1_200,
    score_train=800,
    together=False,
    timed_models=12,
)
