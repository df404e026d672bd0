"""A rebuild computes the facts of voxels once, and hashes each file once."""

import sys
from collections import Counter
from contextlib import contextmanager
from functools import partial

import nibabel as nib
import numpy as np
import pytest

from scripts.files import sha256
from scripts.stack.intensity import intensity_range
from scripts.stack.missing import odd_slices
from scripts.stack.slices import Slices
from scripts.stack.tissue import head_mask
from tests.outputs.test_guided_scans import examination, guided_bundle  # noqa: F401  # fixtures

FACTS = [intensity_range, head_mask, odd_slices, Slices.__dict__["noise"].func, sha256]


def subject(what):
    """The voxels, whatever their order: a turned volume has the facts of the volume; or the files."""
    if isinstance(what, list | tuple):
        return tuple(map(str, what))
    array = what.array if isinstance(what, Slices) else what
    return np.sort(np.asarray(array, dtype=np.float32), axis=None).tobytes()


@contextmanager
def computed():
    """A list that grows by (fact, its subject) with each call of a function that computes a fact."""
    codes, computed = {one.__code__ for one in FACTS}, []

    def watch(frame, event, _):
        if event == "call" and frame.f_code in codes:
            computed.append((frame.f_code.co_name, subject(next(iter(frame.f_locals.values())))))

    sys.setprofile(watch)
    try:
        yield computed
    finally:
        sys.setprofile(None)


@pytest.fixture
def able(guided_bundle):  # noqa: F811
    """`bundle` with guides, error maps and pages."""
    return partial(guided_bundle, error_map=True, report=True)


def test_each_fact_of_a_scan_is_computed_once(examination, able):  # noqa: F811
    with computed() as facts:
        able(examination, guide="auto", motion=True)
    assert [name for (name, _), count in Counter(facts).items() if count > 1] == []
    assert {name for name, _ in facts} == {one.__name__ for one in FACTS}


@pytest.mark.slow
def test_a_guide_of_two_stacks_is_read_once(examination, able):  # noqa: F811
    brighter = nib.load(examination / "FLAIR.nii.gz")
    other = examination / "brighter.nii.gz"
    nib.save(nib.Nifti1Image(1.1 * brighter.get_fdata(), brighter.affine), other)
    with computed() as facts:
        able(
            [str(examination / "FLAIR.nii.gz"), str(other)],
            guide=str(examination / "T1w.nii.gz"),
            together=True,
            error_map=False,
        )
    guide = np.sort(nib.load(examination / "T1w.nii.gz").get_fdata(dtype=np.float32), axis=None).tobytes()
    assert facts.count(("intensity_range", guide)) == 1
