"""A fuzzer of both laws, run by ``make fuzz``: families of hard urns, and checks that every one of them must pass.

Read ``families`` for the urns, ``trial`` for how the library is called (each call under a time limit, each failure with a line that
reproduces it), the modules ``draws``, ``probabilities``, ``moments``, ``tails``, ``gradients``, ``tilts`` and ``precision`` for the checks,
``reference`` for Fisher's law in plain NumPy, ``jobs`` for the mix of work and ``pool`` for the processes that do it.
"""
