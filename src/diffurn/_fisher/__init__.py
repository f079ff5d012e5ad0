"""Fisher's law: pure functions of float64 tensors, and the algorithms built on them.

`tilt` computes the factor r on all weights, `nodes` the quadrature behind every mass and moment,
and `quadrature` has the law of any urn. `tabulated` and `equal_weights` are faster for some urns.
"""
