"""However a file stores its axes, a scan gives one result in the world, at each door that a volume goes through."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.method.calibration import LEVELS, Calibration
from scripts.method.error_pattern import ErrorPatternNetwork
from scripts.method.networks import Drift, VelocityNetwork
from scripts.method.slice_projection import SliceProjectionNetwork
from scripts.rebuild import motion
from scripts.rebuild.consistency import difference, project, reconcile
from scripts.rebuild.deblocking import deblock
from scripts.rebuild.error_map import error_map
from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.rebuild.rebuilt import Rebuilt
from scripts.rebuild.registration import placed
from scripts.stack.acquisition import Acquisition
from scripts.stack.interpolation import interpolate
from scripts.stack.noise import Noise, band_limited
from scripts.stack.slices import Slices
from tests import stacks
from tests.fixtures import random_network
from tests.method.test_networks import perturb
from tests.rebuild.test_inferer import Pointwise
from tests.rebuild.test_motion import MOTIONS, restless
from tests.volumes import head, random_affine, scan_of, smooth_head


class Way(NamedTuple):
    """How a file stores a volume."""

    order: tuple = (0, 1, 2)
    flipped: tuple = ()

    def array(self, array):
        """`(X, Y, Z)`, the array's axes in another order, and some of them flipped."""
        return array.permute(self.order).flip(self.flipped).contiguous()

    def volume(self, volume):
        """The same for `(X, Y, Z)` or `(1, X, Y, Z)` in its place, with the acquisition of slices."""
        whole = volume.as_tensor()
        array = self.array(whole.reshape(whole.shape[-3:]))
        affine = volume.affine.numpy()[:, [*self.order, 3]].copy()
        for axis in self.flipped:
            affine[:3, 3] += affine[:3, axis] * (array.shape[axis] - 1)
            affine[:3, axis] *= -1
        result = MetaTensor(array.reshape(*whole.shape[:-3], *array.shape), affine=torch.from_numpy(affine))
        if "acquisition" in volume.meta:
            stack = Acquisition.of(volume)
            stack = replace(stack, slice_axis=self.order.index(stack.slice_axis))
            if stack.slice_axis in self.flipped:
                stack = replace(stack, shift=-stack.shift, packages=stack.packages[::-1])
            stack.attach(result)
        return result


WAYS = [Way((1, 0, 2), (2,)), Way((2, 0, 1), (0,)), Way((0, 2, 1), (0, 1)), Way((2, 1, 0), (0, 2))]
# upright; oblique; upside down, with another axis pointing up, and far from the centre
AFFINES = {"upright": np.eye(4), "oblique": random_affine(np.ones(3), 4), "turned": random_affine(np.ones(3), 11)}


def in_place(scan, affine=AFFINES["oblique"], edges=(1, 1, 5.0)):
    """The scan on a grid that lies askew in the scanner."""
    volume = MetaTensor(scan.as_tensor(), affine=torch.from_numpy(affine @ np.diag([*edges, 1])))
    Acquisition.of(scan).attach(volume)
    return volume


# The doors: of a way to store, what is stored that way, and what is the same in whatever way


def shifted(affine):
    """A head in slices 5 mm apart that lie off their centred place."""
    return in_place(scan_of(head((14, 18, 33)), 4.0, spacing=5.0, shift=0.3), affine)


def rebuilt(affine, way):
    ways = [DriftInferer(16, both_planes=True, steps=1), DriftInferer(16, both_planes=True, steps=2)]
    by, slices = (Rebuilder(random_network(), one, "cpu") for one in ways), Slices.of(way.volume(shifted(affine)))
    return [one(slices).volume for one in by], []


def facts(way):
    """Slices of a noise that was interpolated along one axis, of which one is blank, with a floor of 40."""
    scan = scan_of(smooth_head((40, 44, 60)))
    chance = torch.randn(scan.shape, generator=torch.Generator().manual_seed(0))
    scan.as_tensor()[:] = (scan.as_tensor() + 20 * band_limited(chance, (1, 2), Noise(0.0, (1.8, 1.0)))).clamp(
        min=0
    ) + 40
    scan[0, :, :, 4] = 40
    slices = Slices.of(way.volume(in_place(scan)))
    plain, noise = slices.canonical, slices.canonical.noise
    assert list(plain.missing) == [4] and plain.turn == ((0, 1, 2), ()) and max(noise.widths) > 1.5
    assert Slices(plain.array, plain.acquisition, plain.affine).noise.widths == noise.widths
    seen = [torch.tensor([*plain.tissue_range, noise.deviation, *noise.widths]), plain.array, plain.head, plain.affine]
    return [slices.head], [*seen, torch.tensor([plain.acquisition.slice_axis, plain.acquisition.shift])]


def guided(way):
    torch.manual_seed(0)
    network = Drift(SliceProjectionNetwork((6, 8), (1, 1), 4, 4), VelocityNetwork((4, 8), width=8, noise=True)).eval()
    scan = in_place(scan_of(head((24, 20, 35))))
    fine = torch.rand(24, 20, 35, generator=torch.Generator().manual_seed(3)) * 2 - 1
    inferer = DriftInferer(64, both_planes=True, steps=0)
    guide, slices = MetaTensor(way.array(fine)[None]), way.volume(scan)[None]
    return [inferer(slices, perturb(network, scale=0.03), guide).as_tensor()[0, 0]], []


def intervals(way):
    """Of oblong voxels, with a spread, beside a result without a guide."""
    network = random_network(16)
    network.error = perturb(ErrorPatternNetwork()).eval()
    scan = in_place(scan_of(smooth_head((32, 36, 40))), np.eye(4), (3, 1, 5))
    fine = MetaTensor(smooth_head((32, 36, 40)), affine=torch.from_numpy(np.diag([3.0, 1, 1, 1])))
    chance = torch.randn((2, *fine.shape), generator=torch.Generator().manual_seed(5))
    brought = torch.zeros(fine.shape)
    brought[10:20, 10:20] = 300 * chance[0, 10:20, 10:20]
    plain = MetaTensor(fine.as_tensor() + brought, affine=fine.affine)
    slices = Slices.of(way.volume(scan))
    for volume in (fine, plain):  # as results carry it
        Acquisition.of(scan).attach(volume)
    result = Rebuilt(slices, way.volume(fine), spread=way.array(40 * chance[1].abs()))
    calibration = Calibration([3.0, 5.0], [[list(LEVELS), list(LEVELS)]], (0.7, 0.1))
    found = error_map(result, network, "cpu", calibration, plain=way.volume(plain)).half_width(0.9)
    return [found.as_tensor()], []


def moved(way):
    """An even number of slices, so that the first ones of both are of different packages."""
    measured = restless(2, MOTIONS[2])[0]
    scan = MetaTensor(measured.array[None], affine=measured.affine)
    measured.acquisition.attach(scan)
    slices = Slices.of(way.volume(scan))
    found, axis = motion.motion_of(slices), slices.acquisition.slice_axis
    of = torch.tensor([int(one) for one in found.packages]).reshape([-1 if k == axis else 1 for k in range(3)])
    return [of.expand(slices.shape)], [torch.from_numpy(found.matrices)]


def elsewhere(way):
    volume = MetaTensor(stacks.person(), affine=torch.from_numpy(stacks.AFFINE))
    return [], [*placed(way.volume(volume), volume, stacks.motion((4, 5, 6), (1, 2, 3)))]


def against_slices(function, way):
    """A result of noisy slices that differ in gain, as the nearest of them shows it, and these slices."""
    scan = scan_of(head((40, 44, 60)))
    chance = torch.randn((2, *scan.shape), generator=torch.Generator().manual_seed(0))
    scan.as_tensor()[:] = scan.as_tensor() * (1 + 0.02 * chance[0, 0, 0, 0]) + 15 * chance[1] * (scan.as_tensor() > 0)
    fine = interpolate(scan.as_tensor()[0], Acquisition.of(scan), "nearest")
    return [function(way.array(fine), Slices.of(way.volume(scan)))], []


DOORS = {  # and how far two results may be apart, as a share of the largest value
    **{f"rebuilt, {name}": (partial(rebuilt, affine), 1e-4) for name, affine in AFFINES.items()},
    "facts of slices": (facts, 1e-7),
    "rebuilt beside a guide": (guided, 1e-5),
    "intervals": (intervals, 2**-7),
    "motion": (moved, 1e-4),
    "registration": (elsewhere, 1e-5),
    **{
        name: (partial(against_slices, one), 1e-4)
        for name, one in {
            "difference": difference,
            "projection": partial(project, regularisation=0.1, smoothness=0),
            "reconciling": reconcile,
            "deblocking": deblock,
        }.items()
    },
}


@pytest.mark.parametrize(("number", "door"), enumerate(DOORS), ids=DOORS)
def test_a_scan_gives_one_volume_in_the_world_whatever_its_axes(number, door):
    """Each door is tried in two of the ways."""
    function, apart = DOORS[door]
    there, same = function(Way())
    for way in (WAYS[number % 4], WAYS[(number + 1) % 4]):
        turned, still = function(way)
        expected = [way.volume(one) if isinstance(one, MetaTensor) else way.array(one) for one in there]
        for one, other in zip([*turned, *still], [*expected, *same], strict=True):
            found, right = (torch.as_tensor(it).double() for it in (one, other))
            torch.testing.assert_close(found, right, rtol=0, atol=apart * float(right.abs().max()), msg=str(way))
            if isinstance(one, MetaTensor):
                np.testing.assert_allclose(one.affine, other.affine, atol=1e-4)


@pytest.mark.parametrize("affine", AFFINES.values(), ids=AFFINES)
def test_the_networks_see_the_scan_upright(affine):
    """In RAS+ order, from wherever it comes: planes with the slice axis first, in one direction."""
    seen = []
    for way in (Way(), WAYS[3]):
        network = Pointwise()
        Rebuilder(network, DriftInferer(512), "cpu")(Slices.of(way.volume(shifted(affine))))
        seen.append(torch.cat([call[0] for call in network.calls]))
    torch.testing.assert_close(seen[1], seen[0], rtol=0, atol=1e-5)
