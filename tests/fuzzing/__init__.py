"""A fuzzer of both laws, run by ``make fuzz``: families of hard urns, and checks that every one of
them must pass.

``families`` draws the urns. ``trial`` calls the library, each call under a time limit (``limits``),
and turns a failure into a line that reproduces it (``findings``). The checks are in
``probabilities``, ``moments``, ``draws``, ``tails``, ``modes``, ``gradients``, ``tilts``,
``compiled`` and, against oracles in many digits, ``precision``. ``reference`` is Fisher's law in
plain NumPy, fast enough for every urn; ``outcomes`` chooses the counts to ask for. ``jobs`` is the
mix of work, ``pool`` the processes that do it, ``__main__`` the command.
"""
