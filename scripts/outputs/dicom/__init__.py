"""The derived series that goes back to the archive."""

from .write import check_series_folder, write_series

__all__ = ["check_series_folder", "write_series"]
