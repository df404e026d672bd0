"""The training pairs of SAINT and AFCM: measured slices, and where the sharp ones lie between them."""

import numpy as np
import pytest
import torch

from scripts.paper.baselines.stacks import RandStackd
from scripts.train.random_acquisitions import RandAcquired

RAMP = torch.linspace(0.1, 0.9, 90)[None, :, None].expand(5, 90, 12)  # along the slice axis


def draw(seed=0, slab=RAMP, slices=8, targets=6, width=7, margin=0.0, **given):
    settings = {"max_thickness": 6.0, "spacing_ratio": (0.8, 1.4), "max_shift": 0.5}
    acquired = RandAcquired("label", **{**settings, **given})
    transform = RandStackd("label", acquired, slices, targets, width, margin).set_random_state(seed)
    return transform({"label": slab, "spacing": (1.0, 1.0)})


@pytest.mark.parametrize("seed", range(3))
def test_positions_say_where_the_sharp_slices_lie(seed):
    """On a ramp a measured slice has the value of its centre, and values tell places."""
    data = draw(seed, max_gain=0.0, max_noise=0.0)
    assert data["image"].shape == (1, 5, 7, 8) and data["label"].shape == (1, 5, 7, 6)
    measured, sharp = data["image"][0, 0, 0].double(), data["label"][0, 0, 0].double()
    if (measured.diff() < 1e-3).any():
        pytest.skip("slices at the ends, where the ramp is continued by its mirror image")
    step = measured.diff().median()
    place = (sharp - measured[3]) / step + 3
    inner = (place > 1) & (place < 6)
    np.testing.assert_allclose(data["position"][inner], place[inner], atol=0.05)
    assert step.item() / 0.8 * 89 == pytest.approx(data["slice_spacing"].item(), rel=0.02)


def test_few_slices_are_filled_up_and_no_sharp_one_lies_beyond_them():
    data = draw(0, RAMP[:, :20], min_thickness=6.0)
    image = data["image"][0, 0, 0]
    count = int((image.diff().abs() > 1e-4).sum()) + 1
    assert count < 8 and torch.equal(image[count:], image[count - 1].expand(8 - count))
    assert data["position"].max() <= count - 0.5
