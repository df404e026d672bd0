"""How the networks are trained: volumes, simulated pairs, batches, and the two stages.

Begin with `training.Training`, then `simulation`.
"""
