"""The files that are written: results, their records, the summary, derived DICOM and BIDS, for one scan or many.

Begin with `one_scan.rebuild_scan`; `cohort` does many. `record` says what is written into a record, `provenance` what a
later run asks it.
"""
