"""How a batch becomes the arguments of a network, in either stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from monai.engines import PrepareBatch
from monai.inferers import Inferer, SimpleInferer
from torch import Tensor, nn

from ..errors import flag
from ..method.flow import PathSample, endpoint_biased, state_at
from ..method.networks import Drift, stage2_lengths
from ..method.schedule import euler_times

THICKNESS = ("thickness",)  # the paper's stage 1 gets it beside the image; one on the slices gets lengths and rows


def _on(device, batchdata, names: Iterable[str], non_blocking: bool) -> list[Tensor]:
    return [batchdata[name].to(device, non_blocking=non_blocking) for name in names]


def _without_noise(conditions: Sequence[Tensor]) -> list[Tensor]:
    lengths = conditions[0].clone()
    lengths[:, 4] = 0
    return [lengths, *conditions[1:]]


@dataclass(eq=False)
class ProjectionBatch(PrepareBatch):
    """Stage 1: degraded planes in, sharp planes out.

    Attributes:
        told: keys of the conditions, which the network gets beside the image.
    """

    told: Sequence[str] = THICKNESS

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, label, conditions, {})` on the device."""
        image, label, *conditions = _on(device, batchdata, ("image", "label", *self.told), non_blocking)
        return image, label, tuple(conditions), {}


@dataclass(eq=False)
class TaughtBatch(PrepareBatch):
    """Stage 1 beside a teacher: another stage 1's answer to the slices without noise is a part of the target.

    The best answer to noisy slices is the mean of the truths that they may come from. It is as well the mean of the
    best answers to the noiseless slices. Such a target varies less than truths do, so that a training of fewer patches
    reaches it, and slices without noise lose nothing.

    Attributes:
        teacher: stage 1 of a trained network; put in evaluation mode and frozen.
        share: of the teacher's answer in the target; the truth has the rest.
        told: see `ProjectionBatch`. The first one is the lengths, whose last number is the noise.
    """

    teacher: nn.Module
    inferer: Inferer
    share: float
    told: Sequence[str]

    def __post_init__(self) -> None:
        self.teacher.eval().requires_grad_(False)

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(image, target, conditions, {})` on the device.

        The target is `(B, 2, H, W)`, see `LesionLoss`; NaN where the truth is not known.
        """
        names = ("image", "label", "noiseless", "lesions", *self.told)
        image, label, noiseless, lesions, *conditions = _on(device, batchdata, names, non_blocking)
        with torch.no_grad():
            taught = self.inferer(noiseless, self.teacher, *_without_noise(conditions))
        return image, torch.cat([label + self.share * (taught - label), lesions], dim=1), tuple(conditions), {}


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
    """

    apn: nn.Module
    inferer: Inferer
    alpha: float
    told: Sequence[str] = THICKNESS

    def __post_init__(self) -> None:
        self.apn.eval().requires_grad_(False)

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(xt, PathSample, (thickness, t), {})` on the device."""
        label, *first = _on(device, batchdata, ("label", "image", *self.told), non_blocking)
        pairs = _on(device, batchdata, ("proximal", *(f"proximal_{name}" for name in self.told)), non_blocking)
        partner = (pairs[1][:, 0] != first[1][:, 0]).nonzero()[:, 0]
        image, *conditions = (torch.cat([a, b[partner]]) for a, b in zip(first, pairs))
        thickness, x1 = stage2_lengths(conditions[0]), torch.cat([label, label[partner]])
        t = endpoint_biased(torch.rand(len(label), device=x1.device), self.alpha)
        t = torch.cat([t, t[partner]])
        with torch.no_grad():
            x0 = self.inferer(image, self.apn, *conditions)
        for rows in conditions[1:2]:  # a pair's thinner slices hold fewer of them
            outside = (rows < -0.5) | (rows >= image.shape[2] - 0.5)
            x1 = x1.masked_fill(outside[:, None, :, None], torch.nan)
        xt = state_at(x0, x1.where(x1.isfinite(), x0), t)
        return xt, PathSample(xt, x0, x1, t, partner), (thickness, t), {}


@dataclass(eq=False)
class DistilBatch(PrepareBatch):
    """Distillation: one Euler step is to land where the flow of both stages lands (Liu et al., ICLR 2023).

    Attributes:
        teacher: both stages; put in evaluation mode and frozen.
        steps: Euler steps of the teacher.
        told: see `ProjectionBatch`.
    """

    teacher: Drift
    inferer: Inferer
    steps: int
    told: Sequence[str] = THICKNESS

    def __post_init__(self) -> None:
        self.teacher.eval().requires_grad_(False)
        self.times = euler_times(self.steps)

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns `(x0, PathSample, (thickness, 0), {})` on the device; there are no pairs."""
        image, *conditions = _on(device, batchdata, ("image", *self.told), non_blocking)
        with torch.no_grad():
            x0, x1 = self.both(image, conditions)
        return _one_step(x0, x1, conditions[0])

    def both(self, image: Tensor, conditions: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Planes by the teacher's stage 1 alone, and by both stages."""
        times = self.times.to(image)
        x0 = self.inferer(image, self.teacher.apn, *conditions)
        return x0, self.inferer(x0, self.teacher.refine, self.teacher.modulations(conditions[0], times), times)


def _one_step(x0: Tensor, x1: Tensor, lengths: Tensor):
    t, nobody = x0.new_zeros(len(x0)), torch.zeros(0, dtype=torch.long, device=x0.device)
    return x0, PathSample(x0, x0, x1, t, nobody), (stage2_lengths(lengths), t), {}


@dataclass(eq=False)
class TaughtDistilBatch(DistilBatch):
    """Distillation of noise: from another stage 1's estimate one step leads to `TaughtBatch`'s target of both stages.

    Attributes:
        apn: the stage 1 whose estimates the step leaves; put in evaluation mode and frozen.
        share: of the teacher's answer in the target.
    """

    apn: nn.Module = field(kw_only=True)
    share: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.apn.eval().requires_grad_(False)

    def __call__(self, batchdata, device=None, non_blocking=False, **kwargs):
        """Returns what `DistilBatch` does; the target is NaN where the truth is not known."""
        names = ("image", "label", "noiseless", *self.told)
        image, label, noiseless, *conditions = _on(device, batchdata, names, non_blocking)
        with torch.no_grad():
            taught = self.both(noiseless, _without_noise(conditions))[1]
            x0 = self.inferer(image, self.apn, *conditions)
        return _one_step(x0, label + self.share * (taught - label), conditions[0])
