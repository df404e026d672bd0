"""Whatever unit a scan is stored in, and wherever its floor lies, each door gives one result, in that unit."""

import pytest
import torch

from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.rebuild.consistency import difference, reconcile, relative_rmse
from scripts.rebuild.deblocking import deblock
from scripts.rebuild.error_map import expected_error
from scripts.stack.acquisition import Acquisition
from scripts.stack.intensity import intensity_range
from scripts.stack.interpolation import interpolate
from scripts.stack.profile import acquire
from scripts.stack.slices import Slices
from scripts.stack.tissue import edge_strength, flat_tissue, head_mask
from tests.evaluate.test_metrics import all_metrics, phantom
from tests.fixtures import random_network
from tests.method.test_networks import perturb
from tests.volumes import head, smooth_head

# The doors: what goes in is `gain x + floor`. Out comes what is in these units, what has no floor, and what has no unit


def noisy(thickness=5.0):
    """A head that misses detail along its slices, and noisy slices of the whole one, of which one is brighter."""
    truth, acquisition = head((40, 44, 60)), Acquisition.of_truth(2, 60, edge=1.0, thickness=thickness)
    slices = acquire(truth, acquisition)
    slices = (slices + 20 * torch.randn(slices.shape, generator=torch.Generator().manual_seed(0))).clamp(min=0)
    slices[..., 5] *= 1.1
    return acquire(truth, Acquisition.of_truth(2, 60, edge=1.0, thickness=3.0, spacing=1.0)), slices, acquisition


def the_range(gain, floor):
    return [torch.tensor(intensity_range(gain * head().double() + floor))], [], []


def facts(gain, floor):
    _, array, acquisition = noisy()
    slices = Slices(gain * array + floor, acquisition)
    lengths = [torch.tensor(slices.noise.deviation), slices.above_floor]
    return (
        [torch.tensor(slices.tissue_range)],
        lengths,
        [torch.tensor([*slices.noise.widths, slices.noise_share]), slices.head],
    )


def masks(gain, floor):
    volume = smooth_head()
    other = gain * volume + floor
    inside, strength = head_mask(other), edge_strength(other, head_mask(volume))
    assert (flat_tissue(other) != flat_tissue(volume)).float().mean() < 1e-3  # but for ties at the median
    return [], [], [inside, strength]


def measures(gain, floor):
    truth = phantom()
    return [], [], [torch.tensor(all_metrics(gain * (truth + 0.05 * phantom(1)) + floor, gain * truth + floor))]


def reconciled(gain, floor):
    result, array, acquisition = noisy()
    result, slices = gain * result + floor, Slices(gain * array + floor, acquisition)
    gap = difference(result, slices)
    return [reconcile(result, slices)], [gap], [torch.tensor(relative_rmse(gap, slices))]


def deblocked(gain, floor):
    _, array, acquisition = noisy()
    slices = Slices(gain * array + floor, acquisition)
    return [deblock(interpolate(slices.array, acquisition, "nearest"), slices)], [], []


def errors(gain, floor):
    """What the error network says of a result."""
    network = random_network(16)
    network.error = perturb(ErrorPatternNetwork()).eval()
    result, array, acquisition = noisy()
    slices = Slices(gain * array + floor, acquisition)
    return [], [expected_error(slices, gain * result + floor, None, network, "cpu")], []


DOORS = {  # in which units, and how far two results may be apart, as a share of the largest value
    "range": (the_range, [(1e-3, 0), (5000, 200), (1e9, 0)], 1e-6),
    "facts of slices": (facts, [(0.01, 0), (3, 700)], 1e-3),
    "masks": (masks, [(1e-20, 0), (1e20, 0), (3, 20)], 1e-3),
    "metrics": (measures, [(700, 0), (0.01, 0), (700, 300)], 1e-4),
    "reconciling": (reconciled, [(1e-30, 0), (1e30, 0), (1, 500), (1, -300)], 1e-4),
    "deblocking": (deblocked, [(3, 0), (1, 50)], 1e-4),
    "errors": (errors, [(3, 500)], 1e-3),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_unit_and_a_floor_change_no_more_than_themselves(door):
    function, units, apart = DOORS[door]
    points, lengths, numbers = function(1, 0)
    for gain, floor in units:
        found = function(gain, floor)
        back = [*((one - floor) / gain for one in found[0]), *(one / gain for one in found[1]), *found[2]]
        for one, right in zip(back, [*points, *lengths, *numbers], strict=True):
            limit = apart * float(right.double().abs().max())
            torch.testing.assert_close(one.double(), right.double(), rtol=0, atol=limit, msg=f"{gain} x + {floor}")
