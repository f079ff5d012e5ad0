"""A classifier of Fashion-MNIST that sees 50 pixels, the same of every image."""

from dataclasses import replace

from diffurn_studies.subsets.arms import pixels

OPTIONS = replace(pixels.OPTIONS, dataset="fashion-mnist")
