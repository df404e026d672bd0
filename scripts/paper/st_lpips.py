"""ST-LPIPS: how different two images look, by features of a network that were weighted to agree with people.

Ghildyal and Liu, *Shift-tolerant Perceptual Similarity Metric*, ECCV 2022: LPIPS (Zhang et al., CVPR 2018) with a
blurred AlexNet that was trained anew. Its numbers are no LPIPS.

The parameters are those of the package stlpips_pytorch (BSD-2-Clause). Its code is not imported: it needs torchvision
in the same build as torch, IPython and torchsummary, none of which it installs.
"""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PARAMETERS = ("stlpips_pytorch", "stlpips_pytorch/weights/vST0.0/alex_shift_tolerant.pth")
IMAGENET = "alexnet-owt-7be5be79.pth"  # which the package lpips would download
LEAST_SIDE = 32  # pixels; less is nothing to the deepest layer
BATCH = 8  # images; the first layer makes 64 of each

Distance = Callable[[Tensor, Tensor], float]


class _Blur(nn.Module):
    """A fixed 3 x 3 filter of each channel, of which every second pixel stays; edges are reflected."""

    filt: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("filt", torch.empty(channels, 1, 3, 3))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (2, 2, 2, 2), mode="reflect"), self.filt, stride=2, groups=x.shape[1])


class _Scale(nn.Module):
    """Channels as the network was trained to see them."""

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.empty(1, 3, 1, 1))
        self.register_buffer("scale", torch.empty(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.shift) / self.scale


class ShiftTolerantLPIPS(nn.Module):
    """The distance of pairs of images; the names of its parameters are those of the published file."""

    def __init__(self) -> None:
        super().__init__()
        self.scaling_layer = _Scale()
        layers = [  # number and layer of each of the five stages; ReLUs have no parameters
            [(0, nn.Conv2d(3, 64, 11, padding=2)), (1, _Blur(64)), (2, nn.ReLU())],
            [(3, nn.MaxPool2d(3, 1)), (4, _Blur(64)), (5, nn.Conv2d(64, 192, 5, padding=2)), (6, nn.ReLU())],
            [(7, nn.MaxPool2d(3, 1)), (8, _Blur(192)), (9, nn.Conv2d(192, 384, 3, padding=1)), (10, nn.ReLU())],
            [(11, nn.Conv2d(384, 256, 3, padding=1)), (12, nn.ReLU())],
            [(13, nn.Conv2d(256, 256, 3, padding=1)), (14, nn.ReLU())],
        ]
        self.net = nn.ModuleDict()
        for k, stage in enumerate(layers):
            self.net[f"slice{k + 1}"] = nn.Sequential()
            for number, layer in stage:
                self.net[f"slice{k + 1}"].add_module(str(number), layer)
        for k, channels in enumerate((64, 192, 384, 256, 256)):
            linear = nn.ModuleDict({"model": nn.ModuleDict({"1": nn.Conv2d(channels, 1, 1, bias=False)})})
            self.add_module(f"lin{k}", linear)
        self._reference: tuple[Tensor, list[Tensor]] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike) -> "ShiftTolerantLPIPS":
        """With the published parameters."""
        metric = cls()
        metric.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        return metric.eval().requires_grad_(False)

    def features(self, images: Tensor) -> list[Tensor]:
        """Activations of the five stages, of unit length at each pixel; of images `(B, 3, H, W)` in [-1, 1]."""
        x, result = self.scaling_layer(images), []
        for stage in self.net.values():
            x = stage(x)
            result.append(x / (x.square().sum(1, keepdim=True).sqrt() + 1e-10))
        return result

    def forward(self, images: Tensor, references: Tensor) -> Tensor:
        """`sum_l mean_pixels w_l (f_l - g_l)^2`, Eq. 1 of Zhang et al.; `(B,)`, 0 for the same image."""
        if self._reference is None or not torch.equal(self._reference[0], references):
            self._reference = references, self.features(references)  # method after method has the same ones
        total = torch.zeros(len(images))
        for k, (f, g) in enumerate(zip(self.features(images), self._reference[1])):
            linear = getattr(self, f"lin{k}")["model"]["1"]
            total = total + linear((f - g).square()).mean((1, 2, 3))
        return total


def mean_distance(metric: nn.Module, images: Tensor, references: Tensor) -> float:
    """Mean distance of gray images.

    Args:
        metric: of pairs `(B, 3, H, W)` in [-1, 1].
        images: `(N, H, W)` in [0, 1].
        references: `(N, H, W)` in [0, 1].

    Returns:
        The mean over N; NaN for images of fewer than 32 pixels along a side.
    """
    if min(images.shape[1:]) < LEAST_SIDE:
        return float("nan")
    pairs = zip(*((2 * x[:, None].expand(-1, 3, -1, -1) - 1).split(BATCH) for x in (images, references)))
    with torch.inference_mode():
        return torch.cat([metric(*pair).flatten() for pair in pairs]).double().mean().item()


def lpips() -> nn.Module | None:
    """LPIPS of AlexNet by the package lpips, where it can be imported and ImageNet's weights are there; else null.

    They are looked for where torch keeps downloads. Nothing is downloaded.
    """
    if not (Path(torch.hub.get_dir()) / "checkpoints" / IMAGENET).is_file():
        return None
    try:
        from lpips import LPIPS
    except (ImportError, RuntimeError):  # a torchvision that was built for another torch raises the latter
        return None
    return LPIPS(net="alex", verbose=False).eval().requires_grad_(False)
