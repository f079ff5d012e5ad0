from support.fixtures import float64_and_a_fixed_seed  # noqa: F401 (applies to every test)
