"""A stack of thick slices: its acquisition, grid, slice profile, interpolation, intensities and tissue.

Pure functions of numpy and torch. Begin with `acquisition`, the value that everything else takes.
"""
