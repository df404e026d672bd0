"""A scan gives one volume in the world, however its file stores it."""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.rebuild.inferer import DriftInferer
from scripts.rebuild.rebuilder import Rebuilder
from scripts.stack.acquisition import Acquisition
from scripts.stack.slices import Slices
from tests.fixtures import random_network
from tests.rebuild.test_inferer import Pointwise
from tests.volumes import head, random_affine, scan_of

INFERER = DriftInferer(16, both_planes=True, steps=1)
FLIPS = [tuple(axis for axis in range(3) if signs[axis]) for signs in product((0, 1), repeat=3)]
STORED = [((0, 1, 2), flipped) for flipped in FLIPS if len(flipped) == 1]
STORED += [(order, FLIPS[(3 * k + 2) % 8]) for k, order in enumerate(permutations(range(3)))]


def stored(scan, order, flipped):
    """The same slices in the same place, with the array's axes in another order, and some of them flipped."""
    array, affine = scan.as_tensor()[0].permute(order), scan.affine.numpy()[:, [*order, 3]].copy()
    for axis in flipped:
        affine[:3, 3] += affine[:3, axis] * (array.shape[axis] - 1)
        affine[:3, axis] *= -1
    volume = MetaTensor(array.flip(flipped)[None].contiguous(), affine=torch.from_numpy(affine))
    Acquisition.of(scan).moved(order, flipped).attach(volume)
    return volume


def tilted(scan, affine):
    """The scan on a grid that lies askew in the scanner."""
    volume = MetaTensor(scan.as_tensor(), affine=torch.from_numpy(affine @ np.diag([1, 1, 5.0, 1])))
    Acquisition.of(scan).attach(volume)
    return volume


# upright; oblique; upside down, with another axis pointing up, and far from the centre
AFFINES = {"upright": np.eye(4), "oblique": random_affine(np.ones(3), 4), "turned": random_affine(np.ones(3), 11)}


def shared_out(cases):
    """Each way to store a scan on one of the affines."""
    pairs = [(name, *case) for k, name in enumerate(AFFINES) for case in cases[k :: len(AFFINES)]]
    return pytest.mark.parametrize(("scan", "order", "flipped"), pairs, indirect=["scan"])


@pytest.fixture(scope="module", params=AFFINES)
def scan(request):
    """A head in slices 5 mm apart that lie off their centred place."""
    return tilted(scan_of(head((14, 18, 33)), 4.0, spacing=5.0, shift=0.3), AFFINES[request.param])


@pytest.fixture(scope="module")
def rebuilt(scan):
    """The scan as it is, by random networks."""
    return Rebuilder(random_network(), INFERER, "cpu")(Slices.of(scan)).volume[None]


@shared_out(STORED)
def test_a_scan_gives_one_volume_in_the_world_whatever_its_axes(order, flipped, scan, rebuilt, drift):
    result = Rebuilder(drift, INFERER, "cpu")(Slices.of(stored(scan, order, flipped))).volume[None]
    there = stored(rebuilt, order, flipped)
    np.testing.assert_allclose(result.affine, there.affine, atol=1e-4)
    torch.testing.assert_close(result.as_tensor(), there.as_tensor(), rtol=0, atol=1e-4 * scan.max().item())


@shared_out([(order, (0, 2)) for order in ((0, 1, 2), (1, 2, 0), (2, 1, 0))])
def test_the_networks_see_the_scan_upright(order, flipped, scan):
    """In RAS+ order, from wherever it comes: planes with the slice axis first, in one direction."""
    seen = []
    for volume in (scan, stored(scan, order, flipped)):
        network = Pointwise()
        Rebuilder(network, DriftInferer(512), "cpu")(Slices.of(volume))
        seen.append(torch.cat([call[0] for call in network.calls]))
    torch.testing.assert_close(seen[1], seen[0], rtol=0, atol=1e-5)
