r"""Small urns whose sizes the host knows: tables over the whole support, in place of tilts,
quadratures and rejection.

.. math:: R_i(s) = \log [z^s] \prod_{j ≥ i} (1 + ω_j z)^{m_j}
          = \log \sum_k \exp(a_i(k) + R_{i+1}(s - k)), \qquad
          a_i(k) = \log \binom{m_i}{k} + k \log ω_i.

All terms are positive, so all probabilities are relatively accurate. All shapes follow from the
sizes, and no number on a device is looked at: a training step with such an urn in it can be
compiled in one graph, or captured in a CUDA graph.

The columns of tables stand for *falling* counts: the sum over k then runs over a sliding window of
R, and a cumulative sum is P(x ≥ k).

That is Fisher's law; `one_by_one` follows such urns as Wallenius' law has it.
"""

from diffurn._composition import Composition, composition_of
from diffurn._fisher.chain import Chain
from diffurn._fisher.constants import constant
from diffurn._fisher.tabulated import Law, SmallUrn, inverse, reordered, with_first

__all__ = [
    "Chain",
    "Composition",
    "Law",
    "SmallUrn",
    "composition_of",
    "constant",
    "inverse",
    "reordered",
    "with_first",
]
