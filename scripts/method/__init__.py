"""The paper's method: two networks, the flow between them, its schedule, the losses, and the weights' file.

A third network, not of the paper, says where the result errs (`error_pattern`).

Begin with `networks.Drift`, then `flow`.
"""
