"""The paper's method: two networks, the flow between them, its schedule, the losses, and the weights' file.

Begin with `networks.Drift`, then `flow`.
"""
