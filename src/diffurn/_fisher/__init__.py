"""Fisher's law: pure functions of float64 tensors, and the algorithms built on them.

Read `tilt` for the factor r on all weights, `nodes` for the one sum behind every mass and moment,
and `quadrature` for the law of any urn. `tabulated` and `equal_weights` are faster for some urns.
"""
