"""The published runs of the pairs study, one module of options each: ``diffurn reproduce pairs
--arm best`` runs `best`.
"""
