"""What is written: results with their records, the summary, derived DICOM and BIDS, for one scan or many.

Begin with `cohort.rebuild_scans`.
"""
