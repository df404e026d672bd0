"""How a batch becomes the arguments of a network, in either stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from monai.engines import PrepareBatch
from monai.inferers import Inferer, SimpleInferer
from torch import Tensor, nn

from ..errors import flag
from ..method.flow import PathSample, endpoint_biased, state_at
from ..method.networks import stage2_lengths

THICKNESS = ("thickness",)  # the paper's stage 1 gets it beside the image; one on the slices gets lengths and rows


def _on(device, batchdata, names: Iterable[str], non_blocking: bool) -> list[Tensor]:
    return [batchdata[name].to(device, non_blocking=non_blocking) for name in names]


@dataclass(eq=False)
class ProjectionBatch(PrepareBatch):
    """Stage 1: degraded planes in, sharp planes out.

    Attributes:
        told: keys of the conditions, which the network gets beside the image.
        target: keys of what the loss gets, beside each other as channels.
    """

    told: Sequence[str] = THICKNESS
    target: Sequence[str] = ("label",)

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, target, conditions, {})` on the device."""
        image, *conditions = _on(device, batchdata, ("image", *self.told), non_blocking)
        target = torch.cat(_on(device, batchdata, self.target, non_blocking), dim=1)
        return image, target, tuple(conditions), {}


class PrecisionInferer(SimpleInferer):
    """Calls the network, in bfloat16 where autocasting allows it; its weights and results stay in float32.

    MONAI's engines autocast on CUDA alone.
    """

    def __init__(self, bfloat16: bool):
        super().__init__()
        self.bfloat16 = flag("bfloat16", bfloat16)

    def __call__(self, inputs: Tensor, network: nn.Module, *args, **kwargs) -> Tensor:  # type: ignore[override]
        """Arguments as the network's, its first one first."""
        with torch.autocast(inputs.device.type, torch.bfloat16, enabled=self.bfloat16):
            return network(inputs, *args, **kwargs).float()


@dataclass(eq=False)
class FlowBatch(PrepareBatch):
    """Stage 2: states on the path from the frozen APN's estimate to the truth, for a thickness and its neighbour.

    Both thicknesses of a CETA pair share the time. They make one batch, so that a step evaluates each network once, on
    `B + P` planes. The pair's second member is a training sample of the velocity like any other.

    Attributes:
        apn: stage 1; put in evaluation mode and frozen.
        alpha: exponent of the endpoint-biased times, 2 in the paper.
        told: see `ProjectionBatch`; the first one begins with thickness and target, the second one is rows.
        times: of each patch's path; 1 in the paper. To simulate a patch and to estimate it takes longer than to learn
            of one time.
    """

    apn: nn.Module
    inferer: Inferer
    alpha: float
    told: Sequence[str] = THICKNESS
    times: int = 1

    def __post_init__(self) -> None:
        self.apn.eval().requires_grad_(False)

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(xt, PathSample, (thickness, t), {})` on the device."""
        label, *first = _on(device, batchdata, ("label", "image", *self.told), non_blocking)
        pairs = _on(device, batchdata, ("proximal", *(f"proximal_{name}" for name in self.told)), non_blocking)
        partner = (pairs[1][:, 0] != first[1][:, 0]).nonzero()[:, 0]
        image, *conditions = (torch.cat([a, b[partner]]) for a, b in zip(first, pairs))
        thickness, x1 = stage2_lengths(conditions[0]), torch.cat([label, label[partner]])
        with torch.no_grad():
            x0 = self.inferer(image, self.apn, *conditions)
        for rows in conditions[1:2]:  # a pair's thinner slices hold fewer of them
            outside = (rows < -0.5) | (rows >= image.shape[2] - 0.5)
            x1 = x1.masked_fill(outside[:, None, :, None], torch.nan)
        patches, count = torch.arange(len(image), device=x0.device), len(label)
        again = torch.cat([patches[:count].repeat(self.times), patches[count:].repeat(self.times)])
        thickness, x1, x0 = thickness[again], x1[again], x0[again]
        partner = torch.cat([partner + count * k for k in range(self.times)])
        t = endpoint_biased(torch.rand(count * self.times, device=x0.device), self.alpha)
        t = torch.cat([t, t[partner]])
        xt = state_at(x0, x1.where(x1.isfinite(), x0), t)
        return xt, PathSample(xt, x0, x1, t, partner), (thickness, t), {}
