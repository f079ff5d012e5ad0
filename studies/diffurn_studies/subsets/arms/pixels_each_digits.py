"""A classifier of scikit-learn's digits that sees 6 of 64 pixels of each image."""

from diffurn_studies.subsets.arms import pixels_each

OPTIONS = pixels_each.OPTIONS.on_digits(k=6)
