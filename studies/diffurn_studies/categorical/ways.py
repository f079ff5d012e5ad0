"""The ways to imitate an urn that the study compares."""

WAYS = {
    "parallel": "three categoricals in parallel",
    "sequence": "three categoricals in sequence",
    "rest": "two in sequence, the rest for the third",
    "urn-exact": "the urn, exact",
    "urn-merged": "the urn, merged groups (the paper's)",
}
