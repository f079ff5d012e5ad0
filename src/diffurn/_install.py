"""How to install the packages that a command needs."""

from __future__ import annotations

STUDIES = "pip install diffurn-studies, or pip install ./studies in a clone of diffurn"
_BY_COMMAND = {
    "explore": "pip install 'diffurn[explore]'",
    "report": STUDIES,
    "reproduce": STUDIES,
}


def how_to_install(command: str) -> str:
    """What to type so that a command of `diffurn` finds all packages that it needs.

    Example:
        >>> how_to_install("fit")
        "pip install 'diffurn[cli]'"
    """
    return _BY_COMMAND.get(command, "pip install 'diffurn[cli]'")
