"""The paper as written: fixed sets, 300,000 steps, LabelVAE by index.

Not run yet. The first s factors of mpi3d's order are shared in every pair, as the paper's table of
accuracies suggests. LabelVAE takes the index of a factor that changes, and training has 300,000
steps, both as in the paper's code base. The paper has three seeds. Each number of shared factors is
a stack of its own, about ten minutes on one H200, so that finished ones can be kept.
"""

from diffurn_studies.pairs.options import Options

# Every other field has the paper's setting as its default. The published runs of all arms were
# started with ``--device cuda --set compiled=true``.
OPTIONS = Options(seeds=5, held=True)
