"""The interactive demo of `diffurn explore`.

`limits` has the fields of the page and their ranges, `numbers` computes, `figures` draws, `page`
puts them together, and `server` and `guard` serve the page to this machine.
"""
