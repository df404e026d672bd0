"""The method as code. Imports run downwards alone, from floor to floor.

    paper                  experiments, rivals
    outputs  evaluate
    pages  train
    rebuild  inputs
    stack  method          numpy and torch; MONAI's blocks in method
    errors  files  options  command_line

Each folder's docstring names its purpose and where to begin.
"""
