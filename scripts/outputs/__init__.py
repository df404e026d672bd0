"""The files that are written: results, their records, the summary, derived DICOM and BIDS, for one scan or many.

Begin with `one_scan.rebuild_scan`; `cohort` does many. `record` makes a record, `entries` is its form,
`provenance` is for later runs.
"""
