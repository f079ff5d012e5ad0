"""``python -m diffurn``: the command `diffurn`, where the package is on the path but not installed."""

from diffurn.cli import app

app(prog_name="diffurn")
