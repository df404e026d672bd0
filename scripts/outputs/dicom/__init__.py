"""The derived DICOM series that goes back to the archive.

Begin with `write.write_series`. `inherit` lists the attributes that a series takes over from its source.
"""

from .write import check_series_folder, write_series

__all__ = ["check_series_folder", "write_series"]
