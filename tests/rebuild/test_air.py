"""A scan's result in a region does not depend on the air around it: with the weights that ship, on a real scan."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import deployed, shipped_network
from benchmarks.air import rows
from scripts.train.truth import read_volume

SCAN = Path(__file__).parents[3] / "shared" / "data" / "isotropic" / "uih-a_T1w.nii.gz"


@pytest.mark.slow
@pytest.mark.skipif(not SCAN.exists(), reason="the shared data are not here")
def test_a_block_is_rebuilt_alike_alone_and_where_it_fills_a_fiftieth_of_the_field(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])
    results = rows(read_volume(SCAN), 2, shipped_network(), deployed(bfloat16=False), shares=(1.0, 0.02))
    (_, *alone), (_, *in_air) = results
    np.testing.assert_allclose(alone, in_air, rtol=0, atol=0.05)  # dB, and the step ratio
