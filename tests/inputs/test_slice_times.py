"""Packages of slices, from DICOM headers and from sidecars to the acquisition."""

import json

import numpy as np
import pytest

from benchmarks import preprocessing
from scripts.inputs.dicom import find_series
from scripts.stack.acquisition import Acquisition
from tests.cohort_files import add
from tests.dicom_files import mr_slices, save
from tests.volumes import head

COUNT, AGAIN = 12, np.random.default_rng(0).permutation(12)
SAID = "012" * 4
SLICES = head((30, 32, 60)).numpy()[:, :, ::5].astype(np.uint16)


def acquired(source):
    return Acquisition.of(preprocessing()({"image": source})["image"])


def clock(k):
    """Three passes, a minute each, over the hour."""
    minute, second = divmod(58 * 60 + 70 * (k % 3) + k, 60)
    return f"{10 + minute // 60}{minute % 60:02d}{second:02d}.25"


@pytest.mark.parametrize(
    "said",
    [
        {"AcquisitionTime": clock},
        {"AcquisitionTime": "101500", "TriggerTime": lambda k: 1000.0 * (k % 3) + k},
        {"AcquisitionNumber": lambda k: 1 + k % 3},
        {"AcquisitionDateTime": lambda k: f"20240506{clock(k)}"},
    ],
    ids=lambda said: " ".join(said),
)
def test_dicom_headers_say_the_packages(tmp_path, said):
    images = mr_slices(SLICES, **said)
    save(tmp_path, [images[k] for k in AGAIN])
    (series,) = find_series([tmp_path])
    a = acquired(series)
    assert a.packages == SAID
    assert list(said)[-1] in a.sources["packages"]


TIMES = [60.0 * (k % 3) + k for k in range(COUNT)]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"SliceTiming": TIMES}, SAID),
        ({"SliceTiming": TIMES, "SliceEncodingDirection": "k"}, SAID),
        ({"SliceTiming": TIMES[::-1], "SliceEncodingDirection": "k-"}, SAID),
        ({"SliceTiming": TIMES, "SliceEncodingDirection": "j"}, ""),
        ({"SliceTiming": [*TIMES, 12.0]}, ""),
        ({"SliceTiming": "interleaved"}, ""),
        ({"SliceTiming": ["a", *TIMES[1:]]}, ""),
        ({}, ""),
    ],
)
def test_sidecars_say_the_packages(tmp_path, fields, said):
    (tmp_path / "scan.json").write_text(json.dumps(fields))
    a = acquired(add(tmp_path / "scan.nii.gz", voxels=SLICES))
    assert a.packages == said and ("packages" in a.sources) == bool(said)
