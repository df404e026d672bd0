"""What a size costs, against the paper's table."""

import subprocess
import sys

import pytest
import torch

from scripts.cost import PROCESS, multiply_adds
from tests import paper_values as paper
from tests.config_files import ROOT, parser


@pytest.mark.parametrize(("size", "expected"), [("large", paper.GMACS_LARGE), ("small", paper.GMACS_SMALL)])
def test_multiply_adds_of_both_stages_are_the_papers(size, expected):
    with torch.device("meta"):
        network = parser("evaluate.yaml", f"models/{size}.yaml").get_parsed_content("network_def")
    assert sum(multiply_adds(network)) == pytest.approx(expected, abs=2 * paper.GMACS_PRECISION)


def test_work_grows_with_the_plane_and_the_velocity_is_told_apart(drift):
    first, second = multiply_adds(drift, 32), multiply_adds(drift, 64)
    assert second[0] / first[0] == pytest.approx(4, rel=0.2) and first[0] != first[1]


@pytest.mark.skipif(not (PROCESS / "clear_refs").exists(), reason="memory is measured on Linux")
def test_memory_holds_the_weights_at_least():
    """Of 12.04 M parameters in float32; what imports took before does not hide it."""
    code = (
        "from tests.config_files import ROOT; from scripts.cost import _measured; from scripts.variants import Bench;"
        "ballast = bytearray(2**28); ballast[:] = b'1' * 2**28; del ballast;"
        "print(_measured(Bench(ROOT, None, '.', '.', 'tiny', 1, 1, 0, None, {}, {}), 'tiny')[2])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert 45.9 < float(found.stdout) < 256
