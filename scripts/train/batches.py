"""How a batch becomes the arguments of a network, in either stage."""

from __future__ import annotations

import torch
from monai.engines import PrepareBatch
from monai.inferers import Inferer, SimpleInferer
from torch import Tensor, nn

from ..errors import InputError, flag
from ..method.flow import PathSample, endpoint_biased, state_at


class ProjectionBatch(PrepareBatch):
    """Stage 1: degraded planes in, sharp planes out, thickness beside them."""

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, label, (thickness,), {})` on the device."""
        image, label, thickness = (
            batchdata[key].to(device, non_blocking=non_blocking) for key in ("image", "label", "thickness")
        )
        return image, label, (thickness,), {}


class SliceBatch(PrepareBatch):
    """Stage 1 on the measured slices: patches of them in, sharp rows out, lengths and the rows' places beside them."""

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, label, (lengths, rows), {})` on the device."""
        image, label, lengths, rows = (
            batchdata[key].to(device, non_blocking=non_blocking) for key in ("image", "label", "lengths", "rows")
        )
        return image, label, (lengths, rows), {}


class PrecisionInferer(SimpleInferer):
    """Calls the network, in bfloat16 where autocasting allows it; its weights and what it returns stay in float32.

    MONAI's engines autocast on CUDA alone.

    Args:
        bfloat16: false for float32 throughout.
    """

    def __init__(self, bfloat16: bool):
        super().__init__()
        self.bfloat16 = flag("bfloat16", bfloat16)

    def __call__(self, inputs: Tensor, network: nn.Module, *args, **kwargs) -> Tensor:  # type: ignore[override]
        """Arguments as the network's, its first one first."""
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.bfloat16):
            return network(inputs, *args, **kwargs).float()


class FlowBatch(PrepareBatch):
    """Stage 2: states on the path from the frozen APN's estimate to the truth, for a thickness and its neighbour.

    Both thicknesses of a CETA pair share the time. They make one batch, so that a step evaluates each network once, on
    `B + P` planes. The pair's second member is a training sample of the velocity like any other.

    Args:
        apn: stage 1; put in evaluation mode and frozen.
        inferer: how it is called.
        alpha: exponent of the endpoint-biased times, 2 in the paper.
        ceta_time: at which CETA compares endpoints (Sec. S12), for two more planes of each pair; null for the times of
            the flow's states, which cost nothing.

    Raises:
        InputError: if `ceta_time` is no time.
    """

    def __init__(self, apn: nn.Module, inferer: Inferer, alpha: float, ceta_time: float | None = None):
        if ceta_time is not None and not (isinstance(ceta_time, int | float) and 0 <= ceta_time <= 1):
            raise InputError(f"ceta_time is {ceta_time!r}: expected a time in [0, 1], or null. Set --ceta_time.")
        self.apn = apn.eval().requires_grad_(False)
        self.inferer = inferer
        self.alpha = alpha
        self.ceta_time = ceta_time

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(xt, PathSample, (thickness, t), {})` on the device."""
        batch = {
            key: batchdata[key].to(device, non_blocking=non_blocking)
            for key in ("image", "label", "thickness", "proximal", "proximal_thickness")
        }
        partner = (batch["proximal_thickness"][:, 0] != batch["thickness"][:, 0]).nonzero()[:, 0]
        image = torch.cat([batch["image"], batch["proximal"][partner]])
        thickness = torch.cat([batch["thickness"], batch["proximal_thickness"][partner]])
        x1 = torch.cat([batch["label"], batch["label"][partner]])
        t = endpoint_biased(torch.rand(len(batch["image"]), device=x1.device), self.alpha)
        t = torch.cat([t, t[partner]])
        with torch.no_grad():
            x0 = self.inferer(image, self.apn, thickness)
        beside = 0
        if self.ceta_time is not None:
            first, beside = len(t), 2 * len(partner)
            again = torch.cat([partner, torch.arange(len(batch["image"]), first, device=x1.device)])
            x0, x1, thickness = (torch.cat([whole, whole[again]]) for whole in (x0, x1, thickness))
            t = torch.cat([t, t.new_full((beside,), self.ceta_time)])
            partner = torch.arange(first, first + len(partner), device=x1.device)
        xt = state_at(x0, x1, t)
        return xt, PathSample(xt, x0, x1, t, partner, beside), (thickness, t), {}
