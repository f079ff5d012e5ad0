"""The interactive page of `diffurn explore`: numbers, pictures of them, and a thin page on this
machine.
"""
