"""Fisher's law for JAX and NumPyro.

It needs ``pip install 'diffurn[jax]'``, and does not load torch.
"""

from __future__ import annotations

try:
    from diffurn.jax.fisher import FisherHypergeometric, straight_through
except ModuleNotFoundError as missing:
    package = (missing.name or "").partition(".")[0]
    if package not in ("jax", "jaxlib", "numpyro"):
        raise
    raise ModuleNotFoundError(
        f"diffurn.jax needs {package}: pip install 'diffurn[jax]'", name=package
    ) from None

__all__ = ["FisherHypergeometric", "straight_through"]
