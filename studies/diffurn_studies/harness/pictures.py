"""Pictures inside a record: a PNG, encoded as text."""

from __future__ import annotations

import base64
import io

import numpy as np


def packed(pictures: np.ndarray) -> str:
    """Bytes (..., H, W, 3) as the base64 text of one PNG, the pictures one below the other.

    Example:
        >>> pictures = np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3)
        >>> bool((unpacked(packed(pictures), 2, 2) == pictures).all())
        True
    """
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pictures.reshape(-1, *pictures.shape[-2:])).save(content, "PNG", optimize=True)
    return base64.b64encode(content.getvalue()).decode()


def unpacked(text: str, height: int, width: int) -> np.ndarray:
    """The pictures in a text that `packed` made, (N, H, W, 3)."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))).reshape(-1, height, width, 3)
