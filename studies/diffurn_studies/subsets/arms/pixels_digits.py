"""A classifier of scikit-learn's digits that sees 6 of 64 pixels, always the same."""

from diffurn_studies.subsets.arms import pixels

OPTIONS = pixels.OPTIONS.on_digits(k=6)
