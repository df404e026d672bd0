"""What is packed for a page's script, unpacked again here: the volumes to a grey, in the right place, and small."""

import base64
import gzip

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from scripts.pages import viewer
from scripts.stack.acquisition import Acquisition
from scripts.stack.grid import respaced_affine
from scripts.stack.interpolation import interpolate
from scripts.stack.slices import Slices
from tests.pages.test_page import AXES, volume_at


def unpack(facts, packed):
    """The three volumes on the fine grid `(X, Y, Z)` in 0 to 255, as `page.js` does it."""
    content = np.frombuffer(gzip.decompress(base64.b64decode(packed)), np.uint8)
    count, length = int(np.prod(facts["shape"])), facts["shape"][facts["axis"]]
    seen = content[: -2 * count].reshape(-1, count // length)
    cubic, rebuilt = content[-2 * count :].reshape(2, length, -1).copy()
    cubic += np.clip((np.array(facts["weights"]) @ seen.astype(int) + 2048) >> 12, 0, 255).astype(np.uint8)
    rebuilt += cubic
    others = [facts["shape"][a] for a in range(3) if a != facts["axis"]]
    slices_first = (volume.reshape(-1, *others) for volume in (seen[facts["nearest"]], cubic, rebuilt))
    return [np.moveaxis(volume, 0, facts["axis"]) for volume in slices_first]


def test_an_error_map_is_packed_behind_the_volumes_in_their_greys():
    measured, result = scan()
    half = volume_at(np.full(result.shape, 100.0), np.asarray(result.affine))
    facts, packed = viewer.pack(Slices.of(measured), result, error=half)
    plain, without = viewer.pack(Slices.of(measured), result)
    content, others = (gzip.decompress(base64.b64decode(one)) for one in (packed, without))
    assert facts == {**plain, "error": True} and content.startswith(others)
    error = np.frombuffer(content[len(others) :], np.uint8)
    assert len(error) == np.prod(facts["shape"])
    assert np.unique(error) == round(100 / (facts["high"] - facts["low"]) * 255)


def head(shape, affine, radius=30.0, seed=0):
    """Noise in an ellipsoid around the origin and none outside of it, on a grid in mm."""
    index = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), -1)
    place = index @ affine[:3, :3].T + affine[:3, 3]
    inside = np.square(place / radius).sum(-1) < 1
    return np.where(inside, np.random.default_rng(seed).uniform(300, 1000, shape), 0)


def scan(
    orientation=None, shape=(24, 20, 13), spacing=(3.0, 4.0, 8.0), target=3.0, axis=2, seed=0, radius=30.0, floor=0.0
):
    """Slices with their acquisition and a result that shares nothing with them, both centred on the origin."""
    affine = (np.eye(4) if orientation is None else orientation) @ np.diag([*spacing, 1.0])
    affine[:3, 3] = -affine[:3, :3] @ ((np.array(shape) - 1) / 2)
    acquisition = Acquisition.stack(axis, shape[axis], spacing=spacing[axis], thickness=spacing[axis], target=target)
    fine = respaced_affine(affine, axis, shape[axis], acquisition.fine_count, target)
    fine_shape = [acquisition.fine_count if a == axis else n for a, n in enumerate(shape)]
    measured = volume_at(head(shape, affine, radius, seed) + floor, affine)
    acquisition.attach(measured)
    return measured, volume_at(head(fine_shape, fine, radius, seed + 1) + floor, fine)


def turned(axes, *degrees):
    turn = np.eye(4)
    turn[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    return turn @ axes


def indices(facts, affine):
    """Of a volume with that affine, where each voxel of the packed grid lies, not rounded."""
    grid = np.stack(np.meshgrid(*map(np.arange, facts["shape"]), indexing="ij"), -1)
    rows = np.array(facts["affine"])
    inverse = np.linalg.inv(affine)
    return (grid @ rows[:, :3].T + rows[:, 3]) @ inverse[:3, :3].T + inverse[:3, 3]


def assert_same(shown, facts, volume):
    """What is shown is the volume, to half a grey, at the same place in mm."""
    where = indices(facts, np.asarray(volume.affine))
    np.testing.assert_allclose(where, np.rint(where), atol=1e-6)
    values = volume.numpy()[tuple(np.moveaxis(np.rint(where).astype(int), -1, 0))].clip(facts["low"], facts["high"])
    grey = (facts["high"] - facts["low"]) / 255
    assert np.abs(facts["low"] + grey * shown - values).max() <= 0.501 * grey


@pytest.mark.parametrize(("k", "axis"), [(0, 2), (19, 0), (38, 1)])
def test_what_is_unpacked_is_each_volume_to_half_a_grey_where_it_was(k, axis):
    """For any order and sign of the axes, oblique too, any slice axis and any floor."""
    shape, spacing = np.roll((24, 20, 13), axis - 2), np.roll((3.0, 4.0, 8.0), axis - 2)
    measured, result = scan(turned(AXES[k], 20, -10, 5), tuple(shape), tuple(spacing), axis=axis, floor=10.0 * k)
    facts, packed = viewer.pack(Slices.of(measured), result)
    seen, cubic, rebuilt = unpack(facts, packed)
    assert_same(rebuilt, facts, result)
    spline = interpolate(measured.as_tensor(), Acquisition.of(measured), "cubic")
    assert_same(cubic, facts, volume_at(spline.numpy(), result.affine.numpy()))
    where = indices(facts, measured.affine.numpy())
    assert where[..., axis].min() > 0.5, "slices of air are left out"
    assert facts["step"] == 1
    nearest = np.rint(where - np.sign(where - (np.array(measured.shape) - 1) / 2) * 1e-6).astype(int)
    values = measured.numpy()[tuple(np.moveaxis(nearest, -1, 0))].clip(facts["low"], facts["high"])
    assert np.abs(facts["low"] + (facts["high"] - facts["low"]) / 255 * seen - values).max() <= 2


def test_slices_that_lie_off_their_centred_place_are_shown_where_they_lie():
    measured, result = scan(target=1.0)
    a = Acquisition(2, 13, 8.0, 8.0, 1.0, 104, shift=2.0)
    a.attach(measured)
    facts, packed = viewer.pack(Slices.of(measured), result)
    seen, cubic, _ = unpack(facts, packed)
    assert_same(cubic, facts, volume_at(interpolate(measured.as_tensor(), a, "cubic").numpy(), result.affine.numpy()))
    assert_same(seen, facts, volume_at(interpolate(measured.as_tensor(), a, "nearest").numpy(), result.affine.numpy()))


def test_air_is_cut_off_but_for_a_centimetre():
    measured, result = scan(shape=(40, 40, 16), radius=20.0)
    facts, _ = viewer.pack(Slices.of(measured), result)
    reach = np.array(facts["shape"]) * facts["edges"]
    assert (reach >= 2 * 20.0).all() and (reach <= 2 * (20.0 + viewer.MARGIN) + 2 * 8.0).all()
    constant = volume_at(np.full((6, 7, 5), 3.0), np.diag([1.0, 1.0, 4.0, 1.0]))
    Acquisition.stack(2, 5, spacing=4.0, thickness=4.0, target=4.0).attach(constant)
    assert viewer.pack(Slices.of(constant), constant)[0]["shape"] == [6, 7, 5]


def test_a_scan_that_is_too_large_keeps_every_second_or_third_pixel_at_its_place():
    measured, result = scan()
    facts, packed = viewer.pack(Slices.of(measured), result)
    size = len(base64.b64decode(packed))
    steps = []
    for largest in (size, size - 1, size // 5):
        facts, packed = viewer.pack(Slices.of(measured), result, largest)
        assert len(base64.b64decode(packed)) <= largest
        assert_same(unpack(facts, packed)[2], facts, result)
        np.testing.assert_allclose(facts["edges"], [3.0 * facts["step"], 4.0 * facts["step"], 3.0])
        steps.append(facts["step"])
    assert steps == [1, 2, 3]
