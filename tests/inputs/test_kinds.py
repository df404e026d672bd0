"""What headers and names say that an image shows."""

import pytest

from scripts.inputs import kinds


@pytest.mark.parametrize(("code", "settles"), [(0, False), (5, True), (1002, True), (2016, False)])
def test_the_intent_of_nifti_settles_what_a_volume_shows(code, settles):
    assert bool(kinds.of_intent(code)) == settles
