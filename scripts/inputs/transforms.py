"""A scan as the network's steps take it: read, or loaded already by a host, and checked."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from monai.data import MetaTensor
from monai.transforms import MapTransform

from ..errors import logger
from ..stack import grid
from ..stack.intensity import check_finite, is_background, without_signal
from . import bids
from .readers import ScanReader


class LoadScand(MapTransform):
    """Reads scans, and refuses all but complete 3-D volumes of finite numbers on an orthogonal grid.

    A scan that `readers.ScanReader` reads becomes a `(1, X, Y, Z)` float32 volume with affine and meta data.
    An image that a host has loaded already is checked and stays. The meta data of either has `bids.beside` of its file.
    """

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result, reader = dict(data), ScanReader()
        for key in self.key_iterator(result):
            if not isinstance(result[key], MetaTensor):
                array, meta = reader.get_data(reader.read(result[key]))
                affine = torch.from_numpy(meta.pop("affine"))
                result[key] = MetaTensor(torch.from_numpy(array)[None], affine=affine, meta=meta)
            name = grid.name_of(result[key], "the scan")
            result[key] = _without_nan(result[key], name)
            if Path(name).exists():  # an image in memory has no sidecar
                result[key].meta["beside"] = bids.beside(name)
            check_finite(result[key], name)
            grid.check_orthogonal(np.asarray(result[key].affine), name)
        return result


def _without_nan(volume: MetaTensor, name: str) -> MetaTensor:
    """A `(1, X, Y, Z)` volume whose background is no signal where it was NaN, as programs write it; a line says so.

    Few voxels of NaN elsewhere are no signal, either. More NaN within the head stays, and is refused.
    """
    nan = torch.isnan(volume.as_tensor())
    if not nan.any() or not is_background(nan[0]):
        return volume
    array, floor = without_signal(volume.as_tensor())
    logger.info(f"{name}: {int(nan.sum())} NaN voxels of the background become {floor:g}, no signal.")
    return MetaTensor(array, affine=volume.affine, meta=grid.meta_without_affine(volume))
