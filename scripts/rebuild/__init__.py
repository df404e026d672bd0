"""One scan: planes through the networks, windows, reconciling with the measured slices, deblocking.

Begin with `inferer.rebuild`, the one way to rebuild a scan.
"""
