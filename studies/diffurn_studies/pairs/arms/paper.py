"""The paper's settings on arm scenes."""

from diffurn_studies.pairs.study import Options

OPTIONS = Options()
