"""Two steps and one seed.

More about it.
"""

from tiny_study import Options

OPTIONS = Options(seeds=1, steps=2)
