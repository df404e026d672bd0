"""What is read: files, DICOM series, BIDS datasets, and which of them are scans to rebuild.

Begin with `scans.scans`, which lists them, and `transforms.LoadScand`, which reads one.
"""
