"""The method as code. Imports run downwards alone, from floor to floor.

    paper                  experiments, rivals
    outputs  evaluate
    pages  train
    rebuild  inputs
    stack  method          numpy and torch; MONAI's blocks in method
    errors  files  options  command_line

Each folder's own docstring says what it is for and where to begin.
"""
