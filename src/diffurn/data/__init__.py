"""Data: count tables to fit urns to; the pictures that the experiments train on are in `images`,
`factors` and `pairs`.
"""

from diffurn.data.counts import EXAMPLES, CountTable, example_counts, read_counts
from diffurn.data.delimited import CountTableError

__all__ = ["EXAMPLES", "CountTable", "CountTableError", "example_counts", "read_counts"]
