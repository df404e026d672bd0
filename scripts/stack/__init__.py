"""What a stack of thick slices is: its acquisition, grid, slice profile, interpolation, intensities and tissue.

Pure functions of numpy and torch. Begin with `acquisition`, the value that everything else takes.
"""
