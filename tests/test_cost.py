"""What a size costs, against the paper's table."""

import pytest
import torch

from scripts.cost import multiply_adds
from tests import paper_values as paper
from tests.config_files import parser


@pytest.mark.parametrize(("size", "expected"), [("large", paper.GMACS_LARGE), ("small", paper.GMACS_SMALL)])
def test_multiply_adds_of_both_stages_are_the_papers(size, expected):
    with torch.device("meta"):
        network = parser("evaluate.yaml", f"models/{size}.yaml").get_parsed_content("network_def")
    assert sum(multiply_adds(network)) == pytest.approx(expected, abs=2 * paper.GMACS_PRECISION)


def test_work_grows_with_the_plane_and_the_velocity_is_told_apart(drift):
    first, second = multiply_adds(drift, 32), multiply_adds(drift, 64)
    assert second[0] / first[0] == pytest.approx(4, rel=0.2) and first[0] != first[1]
