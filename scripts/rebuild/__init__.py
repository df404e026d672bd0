"""A scan: its planes through the networks, both families as one volume, deblocking, reconciling with the slices.

Begin with `rebuilder.Rebuilder`, the one way to rebuild a scan.
"""
