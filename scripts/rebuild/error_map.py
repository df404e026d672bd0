"""How sure each voxel of a result is: the half-width of the interval that holds the truth.

    error network -> where errors are large -> x the scan's own scale -> x calibration -> half-width in the scan's units

The scan's own scale comes from the scan itself. Its slices are sharp within themselves. Some of them are degraded along
a pixel axis by the scan's own slice model, rebuilt, and compared with what was measured.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from monai.data import MetaTensor
from torch import Tensor

from ..errors import InputError, flag
from ..method.calibration import Calibration, confidence_level
from ..method.networks import Drift
from ..stack import grid, spectra
from ..stack.acquisition import Acquisition
from ..stack.intensity import IntensityRange, intensity_range
from ..stack.interpolation import interpolate, resample
from ..stack.profile import acquire
from ..stack.tissue import head_mask
from .inferer import DriftInferer, longer_first
from .windows import PIXELS_ON_CPU, in_parts, signal_box

OWN_SLICES = 8  # that are degraded (docs/benchmarks.md)
BELIEF = 0.5  # in what the slices tell: 0 leaves the scale to calibration, 1 to them (docs/benchmarks.md)
LEAST_ROWS = 48  # pixels along either side of a slice
LEAST_RATIO = 1.8  # slice thickness over pixel; less leaves nothing to compare
BLURRED = 6.0  # dB between the pixel axes; more says that the one with less power was interpolated


@dataclass
class ErrorMaps:
    """Whether error maps are made, and how sure they are: the options `error_map`, `confidence` and `regions`.

    Attributes:
        wanted: whether each result gets one.
        confidence: share of voxels whose truth is inside of the interval.
        calibration: of the weights' card; None where there is none.
        regions: a label map whose regions get a mean and its error bar; None for none.

    Raises:
        InputError: if an option has a value that it does not take, the weights can make no error map, or regions are
            given without it.
    """

    wanted: bool
    confidence: float
    calibration: Calibration | None
    regions: str | None = None

    def __post_init__(self) -> None:
        self.wanted, self.confidence = flag("error_map", self.wanted), confidence_level(self.confidence)
        if self.wanted and self.calibration is None:
            raise InputError(
                "these weights can make no error map: expected ones with an error network and its calibration. Leave "
                "out --error_map, or train one for them: run id error (docs/training.md)."
            )
        if self.regions is not None and not self.wanted:
            raise InputError("regions need error maps: expected --error_map with --regions. Set both, or neither.")


class Scale(NamedTuple):
    """Of a scan: what expected errors are multiplied by.

    Attributes:
        value: 1 where the scan cannot tell.
        own: whether the scan tells it.
        source: where it comes from, for people.
    """

    value: float
    own: bool
    source: str


def seen(
    measured: Tensor, result: Tensor, spread: Tensor | None, acquisition: Acquisition, scale: IntensityRange
) -> tuple[Tensor, Tensor, Tensor]:
    """What the error network is told of a volume: the arguments of `ErrorPatternNetwork.forward`.

    Args:
        measured: `(X, Y, Z)` slices.
        result: `(X, Y, Z)` on the fine grid, in the same units.
        spread: `(X, Y, Z)`, half the distance between both families of planes; None where one was made.
        acquisition: of the slices.
        scale: range of the slices' tissue.
    """
    a = acquisition
    slices = interpolate(scale.tissue(measured), a, "linear")
    other = longer_first(result.shape, a.slice_axis)[0]
    apart = torch.full_like(result, torch.nan) if spread is None else spread * (2 / (scale.high - scale.low))
    volumes = torch.stack([scale.to_unit(scale.tissue(result)), scale.to_unit(slices), apart])
    planes = volumes.permute(4 - a.slice_axis - other, 0, 1 + a.slice_axis, 1 + other)
    lengths = torch.tensor([a.slice_thickness, a.target_spacing, a.slice_spacing])
    return planes, torch.from_numpy(a.fine_rows).float(), lengths


def expected_error(
    measured: Tensor,
    result: Tensor,
    spread: Tensor | None,
    acquisition: Acquisition,
    network: Drift,
    device: torch.device | str,
) -> Tensor:
    """The error network's numbers: mean absolute errors, up to a factor for each scan.

    Args:
        measured, result, spread, acquisition: as in `seen`.
        network: with an error network, on the device.
        device: of the network.

    Returns:
        `(X, Y, Z)` on the fine grid, on the CPU, in the units of the scan. Air outside of the box around the head
        (`windows.signal_box`) has the least number of the box.
    """
    tell = network.error
    if tell is None:
        raise ValueError("the network has no error network: load weights that hold one.")
    scale = intensity_range(measured)
    planes, rows, lengths = seen(measured, result, spread, acquisition, scale)
    box = signal_box(planes[:, 0])
    inside, rows, lengths = planes[box[0], :, box[1], box[2]], rows[box[1]].to(device), lengths.to(device)
    calls = inside.split(max(1, PIXELS_ON_CPU // inside[0, 0].numel()))
    with torch.no_grad():
        parts = [in_parts(lambda part: tell(part, rows, lengths), call.to(device)).cpu() for call in calls]
    told = torch.cat(parts)[:, 0].exp()
    sizes, axis = torch.full_like(planes[:, 0], told.min().item()), acquisition.slice_axis
    sizes[box] = told
    sizes = sizes.movedim((1, 2), (axis, longer_first(result.shape, axis)[0]))
    return sizes * ((scale.high - scale.low) / 2)


def own_planes(
    measured: Tensor, acquisition: Acquisition, spacing: np.ndarray
) -> tuple[Tensor, Acquisition, float] | None:
    """Some of a scan's slices, and how they are degraded along a pixel axis as the scan was through its slices.

    Args:
        measured: `(X, Y, Z)` slices, tissue alone, not constant.
        acquisition: of the slices.
        spacing: `(3,)`, edges of the voxels of `measured`, in mm.

    Returns:
        `(N, H, W)`, whose second axis is the sharper pixel axis; the acquisition along it; and the pixel's other edge,
        in mm. None where slices have few pixels, or are hardly thicker than these are large.
    """
    a = acquisition
    first, other = longer_first(measured.shape, a.slice_axis)
    coarser = float(max(spacing[first], spacing[other], a.target_spacing))
    if min(measured.shape[first], measured.shape[other]) < LEAST_ROWS or a.slice_thickness < LEAST_RATIO * coarser:
        return None
    edges, band = [float(edge) for edge in spacing], (0.25 / coarser, 0.5 / coarser)
    if spectra.directional_power_ratio(measured, other, first, edges, band) > BLURRED:
        first, other = other, first
    shares = head_mask(measured).float().mean((first, other)).numpy()
    (inside,) = np.nonzero(shares >= shares.max() / 3)
    chosen = inside[np.unique(np.linspace(0, len(inside) - 1, OWN_SLICES).round().astype(int))]
    planes, edge = measured.permute(a.slice_axis, first, other)[chosen].contiguous(), edges[first]
    if edge < a.target_spacing:  # finer than networks were trained for
        planes, edge = resample(planes, 1, edge, a.target_spacing), a.target_spacing
    own = Acquisition.of_truth(1, planes.shape[1], edge, a.slice_thickness, a.slice_spacing, a.profile)
    return planes, own, edges[other]


def one_family(inferer: DriftInferer) -> DriftInferer:
    """The inferer as it rebuilds a scan's own slices: in one family of planes, without deblocking and reconciling.

    The slices lie too far apart for a second family, and they tell neither noise nor flat tissue as a volume does.
    """
    alone = copy.copy(inferer)
    alone.both_planes = alone.projects = alone.deblocked = False
    return alone


def own_scale(
    measured: Tensor,
    acquisition: Acquisition,
    spacing: np.ndarray,
    network: Drift,
    inferer: DriftInferer,
    device: torch.device | str,
) -> Scale:
    """The scale of a scan, from the scan itself: the median of true over expected error in some of its own slices.

    The slices tell it but roughly: their noise counts as error, and they are few. So it is taken to the power `BELIEF`.

    They are rebuilt in one family of planes (`one_family`). Calibration, which is done in the same way, makes good for
    that.

    Args:
        measured, acquisition, spacing: see `own_planes`; all intensities.
        network, inferer, device: as the scan is rebuilt.
    """
    scale = intensity_range(measured)
    found = own_planes(scale.tissue(measured), acquisition, spacing)
    if found is None:
        return Scale(1.0, False, "calibration alone: the scan's slices are too small or too thin to tell its own scale")
    planes, own, pixel = found
    thick = acquire(planes, own)
    edges = torch.tensor([acquisition.slice_spacing, own.slice_spacing, pixel, 1.0], dtype=torch.float64)
    stack = MetaTensor(thick[None, None].to(device), affine=edges.diag())
    own.attach(stack)
    result: MetaTensor = one_family(inferer)(stack, network)[0, 0]  # type: ignore[assignment]  # of one, one
    expected = expected_error(thick, result.as_tensor(), None, own, network, device)
    inside = head_mask(planes)
    value = ((planes - result.as_tensor()).abs() / expected)[inside].median().item() ** BELIEF
    return Scale(value, True, f"the scan's own slices: {len(planes)} of them, degraded along a pixel axis and rebuilt")


@torch.no_grad()
def error_map(
    measured: MetaTensor,
    result: MetaTensor,
    network: Drift,
    inferer: DriftInferer,
    device: torch.device | str,
    calibration: Calibration,
    confidence: float,
    without: str | None = None,
) -> tuple[MetaTensor, Scale]:
    """The half-width of the interval around each voxel of a result that holds the truth.

    Args:
        measured: `(1, X, Y, Z)` slices with their acquisition.
        result: `(1, X', Y', Z')` of `inferer.rebuild`, with its `spread` where the inferer made two families of planes.
        network: with an error network, on the device.
        inferer: that made the result.
        device: of the network.
        calibration: of the weights' card.
        confidence: share of voxels whose truth is inside.
        without: a person whose scans do not calibrate.

    Returns:
        `(1, X', Y', Z')` in the units of the scan, with the result's affine; and the scan's scale. 0 everywhere where
        nothing was rebuilt.
    """
    stored = Acquisition.of(measured)
    thick = measured.as_tensor()[0].cpu().float()
    if stored.at_target or thick.min() == thick.max():
        nothing = MetaTensor(torch.zeros_like(result.as_tensor()), affine=result.affine)
        return nothing, Scale(1.0, False, "none: nothing was rebuilt")
    axes, flipped = grid.canonical(measured.affine)
    acquisition = stored.moved(axes, flipped)

    def turned(volume: Tensor) -> Tensor:
        return volume.permute(axes).flip(flipped).contiguous()

    thick, rebuilt = turned(thick), turned(result.as_tensor()[0].cpu().float())
    spread = turned(result.meta["spread"]) if "spread" in result.meta else None
    spacing = grid.voxel_spacing(measured.affine)[list(axes)]
    scale = own_scale(thick, acquisition, spacing, network, inferer, device)
    factor = calibration.factor(acquisition.slice_thickness, confidence, scale.own, without)
    width = expected_error(thick, rebuilt, spread, acquisition, network, device) * (factor * scale.value)
    if not torch.isfinite(width).all():
        raise InputError("the error network gives NaN or infinite numbers: it is broken. Leave out --error_map.")
    stored_width = width.flip(flipped).permute([axes.index(a) for a in range(3)]).contiguous()
    return MetaTensor(stored_width[None], affine=result.affine), scale
