"""The paper's experiments and its rivals. Nothing that rebuilds, trains or evaluates imports it.

Begin with `experiments`; a rival is one file in `baselines`.
"""
