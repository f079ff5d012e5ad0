"""Count tables to fit urns to: CSV files and examples."""

from diffurn.data.counts import EXAMPLES, CountTable, example_counts, read_counts
from diffurn.data.delimited import CountTableError

__all__ = ["EXAMPLES", "CountTable", "CountTableError", "example_counts", "read_counts"]
