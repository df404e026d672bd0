"""What several tests of cohorts share: small scans, and how to look at the folder of a run."""

import csv
import json
import os

import nibabel as nib
import numpy as np

from scripts.inputs.bids import reports

AXIAL = np.diag([1.0, 1.0, 4.0, 1.0])
VOXELS = np.random.default_rng(0).integers(0, 1000, (8, 9, 6)).astype(np.int16)


def texture(shape=(6, 7, 5), seed=0):
    return (1000 * np.random.default_rng(seed).random(shape)).astype(np.float32)


def add(path, spacing=(1, 1, 5), voxels=VOXELS):
    """A NIfTI file, in a folder that need not be there; its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(voxels, np.diag([*map(float, spacing), 1.0])), path)
    return path


def nan_scan():
    bad = texture()
    bad[tuple(n // 2 for n in bad.shape)] = np.nan  # within the head
    return bad


def results(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.nii.gz"))


def hidden(folder):
    return [p.name for p in folder.rglob(".*")]


def summary(folder):
    with open(reports(folder) / "summary.csv", newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def inputs(folder):
    """The scans of a summary, as absolute paths."""
    return [os.path.normpath(folder / row["input"]) for row in summary(folder)]


def outcomes(folder):
    return [row["outcome"] for row in summary(folder)]


def record(folder, name="scan"):
    return json.loads((folder / f"{name}_sr.json").read_text(encoding="utf-8"))


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
