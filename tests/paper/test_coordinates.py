"""Methods asked at coordinates: their sizes, and that nothing moves."""

import numpy as np
import pytest
import torch
from torch import nn

from scripts.paper.baselines import coordinates
from scripts.paper.baselines.coordinates import CoordinateInferer, RandQueried, VolumeCoordinateInferer
from scripts.stack.acquisition import Acquisition
from scripts.train.random_acquisitions import RandAcquired
from tests.volumes import noise_stack


class Between(nn.Module):
    """Linear interpolation between slices, as a network that is asked."""

    def encode(self, image):
        return image[..., None]

    def decode(self, code, image, rows, pixels, ratio):
        return coordinates.between_slices(code, rows, pixels)[..., 0]


@pytest.mark.parametrize("inferer", [CoordinateInferer, VolumeCoordinateInferer])
@pytest.mark.parametrize(("axis", "spacing", "target"), [(0, 4.0, 1.0), (1, 5.3, 0.9), (2, 3.0, 1.25)])
def test_a_ramp_stays_in_its_place(inferer, axis, spacing, target):
    """In mm and to a thousandth of a voxel, but beyond the outermost centres, where nothing was measured."""
    shape = np.array([12, 9, 11])
    shape[axis] = 6
    stack = noise_stack(shape, axis=axis, spacing=spacing, thickness=spacing, target=target)
    line = stack.affine.numpy()[:3, axis] / spacing

    def ramp(volume):
        affine = np.asarray(volume.affine)
        index = np.stack(np.meshgrid(*map(np.arange, volume.shape[-3:]), indexing="ij"), -1)
        return (index @ affine[:3, :3].T + affine[:3, 3]) @ line + 1000

    stack.as_tensor()[:] = torch.from_numpy(ramp(stack)).float()
    result = inferer(queries=100, consistency="measure")(stack, Between())
    error = np.moveaxis(result.as_tensor()[0, 0].numpy() - ramp(result), axis, 0)
    rows = Acquisition.of(stack).fine_rows
    inside = (rows >= 0) & (rows <= 5)
    assert inside.sum() > 5 and np.abs(error[inside]).max() < 2e-3


def drawn(planes, seed, sizes=(6, 8), **others):
    acquired = RandAcquired("label", 7.0, ceta_gap=0, **others)
    transform = RandQueried("label", acquired, sizes, 200).set_random_state(seed)
    return transform({"label": planes, "spacing": (1.0, 1.0)})


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [(3, 60, 20), (1, 9, 5)])
def test_queries_are_where_their_voxels_are(seed, shape):
    """On a ramp in each direction, which slices keep within a stack."""
    n, r, c = torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in shape), indexing="ij")
    scale = 1000.0
    found = [drawn(part / scale, seed, spacing_ratio=(0.8, 1.4), max_shift=0.5) for part in (n, r, c)]
    rows, pixels = found[0]["rows"], found[0]["pixels"]
    assert found[0]["image"].shape == (shape[0], 6, 8) and found[0]["label"].shape == (200,)
    assert torch.equal(rows, found[1]["rows"]), "one seed, one draw"
    assert torch.equal(found[0]["label"] * scale, pixels[:, 0].float())
    first = found[2]["image"][0, 0, 0]
    torch.testing.assert_close(found[2]["label"], first + pixels[:, 1] / scale)
    measured = coordinates.between_slices(found[1]["image"][None, ..., None], rows[None], pixels[None])[0, :, 0]
    if shape[1] > 20:  # the ends of a stack, continued by their mirror image, bend the ramp
        inside = (found[1]["label"] * scale > 12) & (found[1]["label"] * scale < shape[1] - 13)
        inside &= (rows >= 0) & (rows <= 5)
        assert inside.sum() > 20
        torch.testing.assert_close(measured[inside], found[1]["label"][inside], atol=0.05 / scale, rtol=0)
