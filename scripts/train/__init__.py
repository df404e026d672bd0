"""How the networks are trained: volumes, simulated pairs, batches, and the two stages.

Begin with `stage.Stage`, then `simulation`. `truth` says which volumes are taken, and `recipe` holds all that a
result depends on.
"""
