"""DICOM: which MR series can be rebuilt, and their slices in space.

A multi-frame image is first laid out as classic headers, one for each frame; all that follows knows one kind of header.
Positions and orientations of DICOM are LPS, affines here are RAS as in NIfTI; lengths are in mm. The slices of a volume
lie along its last array axis, whatever the spacings are: DICOM says which axis that is.
"""

from .headers import is_dicom
from .read import Volume, read_headers, read_series
from .select import Series, find_series

__all__ = ["Series", "Volume", "find_series", "is_dicom", "read_headers", "read_series"]
