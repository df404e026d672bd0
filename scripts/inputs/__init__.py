"""The sources that are read: files, folders, DICOM series and BIDS datasets.

`scans.scans` lists the scans to rebuild; begin there. `exclusion` says why others are not, `examination` which part
each has beside the others. `transforms.LoadScand` reads one of them.
"""
