"""Count tables to fit urns to: CSV files and examples."""

from diffurn.data.counts import EXAMPLES, example_counts, read_counts
from diffurn.data.delimited import CountTableError
from diffurn.data.table import CountTable, LeftOut
from diffurn.data.variables import Variable

__all__ = [
    "EXAMPLES",
    "CountTable",
    "CountTableError",
    "LeftOut",
    "Variable",
    "example_counts",
    "read_counts",
]
