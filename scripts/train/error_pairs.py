"""Training pairs of the error network: slabs of sharp volumes, rebuilt as scans are, and how far off these are."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.engines import PrepareBatch
from monai.transforms import MapTransform, RandomizableTransform
from monai.utils import convert_to_tensor
from torch import Tensor

from ..errors import InputError
from ..method.error_pattern import ErrorPatternNetwork
from ..method.networks import Drift
from ..rebuild.error_map import network_inputs
from ..rebuild.inferer import DriftInferer
from ..stack.slices import Slices
from ..stack.tissue import TISSUE
from .random_acquisitions import RandAcquired
from .slice_patches import first_in_tissue


class RandSlabd(RandomizableTransform, MapTransform):
    """Cuts a slab of neighbouring planes where there is tissue, draws an acquisition, and simulates it.

    Replaces the planes by the sharp slab, `(1, P, H, W)`. Adds `image`, `(1, P, S, W)`, its thick slices with their
    affine and acquisition; and `alone`, whether it is rebuilt in one family of planes.

    Args:
        keys: one key, `(P, H, W)` planes in [0, 1] whose second axis is the slice axis; `spacing` and
            `plane_spacing` in the data, in mm.
        size: rows and columns of the slab at most.
        alone: share of the slabs that are rebuilt in one family of planes.
    """

    def __init__(self, keys: KeysCollection, acquired: RandAcquired, size: Sequence[int], alone: float):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.acquired = acquired
        self.size = size
        self.alone = alone

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        label: Tensor = convert_to_tensor(data[key], track_meta=False)
        _, pixel = data["spacing"]
        for dim, size in zip((1, 2), self.size):
            tissue = (label > TISSUE).float().mean((0, 3 - dim))
            label = label.narrow(dim, first_in_tissue(self.R, tissue, size), min(size, label.shape[dim]))
        self.acquired.set_random_state(state=self.R)
        label, stacks = self.acquired.stacks(label, data["spacing"])
        thick, acquisition = stacks[0]
        edges = torch.tensor([data["plane_spacing"], acquisition.slice_spacing, pixel, 1.0], dtype=torch.float64)
        image = MetaTensor(thick[None].contiguous(), affine=edges.diag())
        acquisition.attach(image)
        return {key: label[None].contiguous(), "image": image, "alone": bool(self.R.random() < self.alone)}


def one_family(inferer: DriftInferer) -> DriftInferer:
    """The inferer without its second family of planes, neither deblocked nor reconciled: results that err more."""
    return replace(inferer, both_planes=False, deblocked=False, consistency="measure")


def error_network(network: Drift) -> ErrorPatternNetwork:
    """The third network, which is to be trained."""
    if network.error is None:
        raise InputError(
            "network_def has no error network: expected one to train. Set network_def::error, as train.yaml has it."
        )
    return network.error


class ErrorBatch(PrepareBatch):
    """Rebuilds a slab by the deployed inferer, or in one family of planes, and measures how far the result is off.

    The batch holds the inputs of the error network, and the errors. Both stages are frozen.
    """

    def __init__(self, network: Drift, inferer: DriftInferer):
        for stage in (network.apn, network.velocity):
            stage.eval().requires_grad_(False)
        self.network = network
        self.inferer = inferer

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Takes a batch of one slab. Returns `(planes, |error|, (rows, lengths), {})` on the device."""
        slices = Slices.of(batchdata["image"])
        inferer = one_family(self.inferer) if batchdata["alone"] else self.inferer
        rebuilt = inferer.rebuilt(slices, self.network)
        result = rebuilt.volume.as_tensor()
        truth, tissue_range = convert_to_tensor(batchdata["label"][0, 0], track_meta=False), slices.tissue_range
        planes, rows, lengths = network_inputs(slices, result, rebuilt.spread)
        error = (tissue_range.to_unit(truth) - tissue_range.to_unit(result)).abs()
        label = error.movedim((slices.acquisition.slice_axis, 2), (1, 2))[:, None]
        return planes.to(device), label.to(device), (rows.to(device), lengths.to(device)), {}
