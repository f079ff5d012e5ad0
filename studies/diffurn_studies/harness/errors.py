"""The error of a run."""

from __future__ import annotations


class RunError(ValueError):
    """A run cannot go on, for a reason outside the program. The message is a sentence for the
    user.
    """
