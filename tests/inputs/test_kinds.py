"""What headers and names say that an image shows."""

import numpy as np
import pytest

from scripts.inputs import kinds
from scripts.inputs.exclusion import by_contents
from tests.corpus import situations


@pytest.mark.parametrize(("code", "settles"), [(0, False), (5, True), (1002, True), (2016, False)])
def test_the_intent_of_nifti_settles_what_a_volume_shows(code, settles):
    assert bool(kinds.of_intent(code)) == settles


@pytest.mark.parametrize(("hole", "answer"), [(False, "doubtful"), (True, "none")])
def test_a_doubted_name_and_holes_within_the_head_are_two_doubts(hole, answer):
    voxels = situations.head()
    voxels[voxels == 0] = np.nan
    voxels[10:18, 12:20, 4:8] = np.nan if hole else voxels[10:18, 12:20, 4:8]
    assert by_contents(voxels, "T2_mask").answer == answer and by_contents(voxels, "T2").answer == "a scan"
