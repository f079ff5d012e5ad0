"""The paper's own figures, kept beside ours."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def paper(name: str) -> Any:
    """What the paper states under the name of one of its studies or tables; the names are those of
    `paper.json`.

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
