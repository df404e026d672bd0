"""What is written: results, their records, the summary, derived DICOM and BIDS, for one scan or many.

Begin with `cohort.rebuild_scans`. `record` says what is written into a record.
"""
