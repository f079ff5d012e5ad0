"""A classifier of Fashion-MNIST that sees 50 pixels of each image."""

from dataclasses import replace

from diffurn_studies.subsets.arms import pixels_each

OPTIONS = replace(pixels_each.OPTIONS, dataset="fashion-mnist")
