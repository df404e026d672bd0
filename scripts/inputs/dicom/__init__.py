"""DICOM: which MR series can be rebuilt, and their slices in space.

Begin with `select.find_series`, which lists series, and `read.read_series`, which reads one. `policies` says which
images cannot be slices, `stacks` which make one stack, and which stacks are not rebuilt. `headers` lays multi-frame
images out as classic headers, the one kind that all else knows.

Positions and orientations of DICOM are LPS, affines here are RAS as in NIfTI. Lengths are in mm. The slices of a volume
lie along its last array axis, even where they are nearer to each other than pixels are.
"""

from ..headers import is_dicom
from .read import read_headers, read_series
from .select import Series, find_series

__all__ = ["Series", "find_series", "is_dicom", "read_headers", "read_series"]
