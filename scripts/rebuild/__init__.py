"""A scan: its planes through the networks, both families as one volume, reconciling with the slices, deblocking.

Begin with `rebuilder.Rebuilder`, the one way to rebuild a scan.
"""
