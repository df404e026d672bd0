"""Truths without noise: a training scan's own noise would be learnt.

The simulated slices of a sharp scan measure its noise, too. Least squares then rewards a network that draws the noise
of a slice's pixel over the whole thickness of the slice: streaks along the slice axis, and steps between slices.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import MapTransform

from ..stack.grid import meta_without_affine
from ..stack.intensity import intensity_range
from ..stack.noise import noise_of
from ..stack.tissue import head_mask

LEAST = 0.002  # of the range of tissue; less noise is none
STRENGTH = 0.7  # of the noise; how much alike patches are to be


def denoised(volume: MetaTensor, sharp_axes: tuple[int, ...]) -> MetaTensor:
    """A sharp volume `(1, X, Y, Z)` without its noise, by non-local means (Buades et al., CVPR 2005), of scikit-image.

    The noise is the one that planes of two sharp axes show, or of a single one and another. Voxels of 0 stay: a mask
    made them.
    """
    array = volume.as_tensor()[0].float().cpu()
    if array.min() == array.max():
        return volume
    tissue_range = intensity_range(array)
    across = max({0, 1, 2} - {*sharp_axes[:2]})
    deviation = noise_of(array - tissue_range.low, across, head_mask(array, tissue_range)).deviation
    if deviation < LEAST * tissue_range.extent:
        return volume
    from skimage.restoration import denoise_nl_means  # of the extra [train], which an evaluation seldom needs

    clean = denoise_nl_means(
        array.numpy(), patch_size=3, patch_distance=2, h=STRENGTH * deviation, sigma=deviation, fast_mode=True
    )
    clean = np.where(array.numpy() == 0, 0, clean).astype(np.float32)
    return MetaTensor(torch.from_numpy(clean)[None], affine=volume.affine, meta=meta_without_affine(volume))


class Denoised(MapTransform):
    """Takes the noise out of sharp volumes, see `denoised`.

    Args:
        keys: `(1, X, Y, Z)` volumes; `sharp_axes` in the data names the axes along which they are sharp.
    """

    def __init__(self, keys: KeysCollection):
        super().__init__(keys)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result = dict(data)
        for key in self.key_iterator(result):
            result[key] = denoised(data[key], tuple(data["sharp_axes"]))
        return result
