"""The README's code runs, and prints what the README says it prints."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import torch

README = Path(__file__).parents[1] / "README.md"
CODE_THEN_OUTPUT = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL)


def test_readme_code_prints_what_the_readme_shows() -> None:
    torch.set_default_dtype(torch.float32)  # as its readers run it
    blocks = list(CODE_THEN_OUTPUT.finditer(README.read_text(encoding="utf-8")))
    assert blocks, "README.md holds no ```python block"
    namespace: dict[str, Any] = {}
    for block in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], str(README), "exec"), namespace)
        assert printed.getvalue() == (block["output"] or "")
