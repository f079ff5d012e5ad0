"""The paper's experiments: one package per study, and the harness that runs them."""
