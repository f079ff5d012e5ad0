"""Forty steps."""

from tiny_study import Options

OPTIONS = Options()
