"""The numbers that the paper states, to be shown beside ours."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def paper(name: str) -> Any:
    """The paper's numbers for one of its studies, from `paper.json`.

    Example:
        >>> paper("ks")["samples"]
        50000
    """
    content = json.loads(
        resources.files("diffurn_studies.harness")
        .joinpath("paper.json")
        .read_text(encoding="utf-8")
    )
    return content[name]
