"""The arguments of `fit` and `clogit`: checked, without missing values, as tensors."""
