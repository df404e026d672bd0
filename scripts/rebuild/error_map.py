"""How sure each voxel of a result is: the half-width of the interval that holds the truth.

error network -> where errors are large -> x scale of the scan x calibration -> half-width in the scan's units
"""

import os
from dataclasses import dataclass

import numpy as np
import torch
from monai.data import MetaTensor
from scipy import ndimage
from torch import Tensor

from ..errors import InputError, flag
from ..method.calibration import Calibration, confidence_level, scan_scale
from ..method.networks import Drift
from ..stack import grid
from ..stack.acquisition import Acquisition
from ..stack.interpolation import interpolate
from ..stack.profile import acquire
from ..stack.slices import Slices
from .inferer import longer_first
from .rebuilt import ErrorMap, Rebuilt
from .windows import in_calls, signal_box

CUBE = 20.0  # mm; edge of the cubes over which the power of detail is averaged
FAINT = 0.1  # of its mean; added to a power, so that noise in air says nothing


@dataclass
class ErrorMaps:
    """Whether error maps are made, and how sure they are: the options `error_map`, `confidence` and `regions`.

    Attributes:
        wanted: whether each result gets one.
        confidence: share of voxels whose truth is inside of the interval.
        calibration: of the weights' card; None where there is none.
        regions: a label map whose regions get a mean and its error bar; None for none.
        sharp: whether it is the one of sharp results.
    """

    wanted: bool = False
    confidence: float = 0.9
    calibration: Calibration | None = None
    regions: str | None = None
    sharp: bool | str = False

    def __post_init__(self) -> None:
        self.wanted, self.confidence = flag("error_map", self.wanted), confidence_level(self.confidence)
        if self.wanted and self.calibration is None and flag("sharp", self.sharp):
            raise InputError(
                "these weights can make no error map of sharp results: expected a card with sharp_error_map. Leave out "
                "--error_map or --sharp, or calibrate them: run id calibration (docs/training.md)."
            )
        if self.wanted and self.calibration is None:
            raise InputError(
                "these weights can make no error map: expected ones with an error network and its calibration. Leave "
                "out --error_map, or train one for them: run id error (docs/training.md)."
            )
        if self.regions is not None and not self.wanted:
            raise InputError("regions need error maps: expected --error_map with --regions. Set both, or neither.")
        if self.regions is not None and not os.path.isfile(self.regions):
            raise InputError(f"regions {self.regions} is not there: expected a label map. Set --regions.")


def network_inputs(slices: Slices, result: Tensor, spread: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """A volume as the error network sees it: the arguments of `ErrorPatternNetwork.forward`.

    Args:
        result: `(X, Y, Z)` on the fine grid, in the same units.
        spread: `(X, Y, Z)`, half the distance between both families of planes; None where one was made.
    """
    a, tissue_range = slices.acquisition, slices.tissue_range
    between = interpolate(slices.tissue.array, a, "linear")
    other = longer_first(result.shape, a.slice_axis)[0]
    apart = torch.full_like(result, torch.nan) if spread is None else spread * (2 / tissue_range.extent)
    volumes = torch.stack([tissue_range.to_unit(tissue_range.tissue(result)), tissue_range.to_unit(between), apart])
    planes = volumes.permute(4 - a.slice_axis - other, 0, 1 + a.slice_axis, 1 + other)
    lengths = slices.lengths(other)[0, [0, 1, 2, 4]]
    return planes, torch.from_numpy(a.fine_rows).float(), lengths


def expected_error(
    slices: Slices,
    result: Tensor,
    spread: Tensor | None,
    network: Drift,
    device: torch.device | str,
    bfloat16: bool = False,
) -> Tensor:
    """The error network's numbers: mean absolute errors, up to a factor for each scan.

    Args:
        slices, result, spread: as in `network_inputs`.
        network: with an error network, on the device.
        bfloat16: convolutions in bfloat16, which changes the numbers by 1 %.

    Returns:
        `(X, Y, Z)` on the fine grid, on the CPU, in the units of the scan. Air outside of the box around the head
        (`windows.signal_box`) has the least number of the box.
    """
    pattern = network.error
    if pattern is None:
        raise ValueError("the network has no error network: load weights that hold one.")
    tissue_range, axis = slices.tissue_range, slices.acquisition.slice_axis
    planes, rows, lengths = network_inputs(slices, result, spread)
    box = signal_box(planes[:, 0])
    if not planes[:, 0][box].numel():
        box = (slice(None),) * 3  # nothing but air: all of it
    inside, rows, lengths = planes[box[0], :, box[1], box[2]], rows[box[1]].to(device), lengths.to(device)
    with torch.no_grad(), torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bfloat16):
        logs = in_calls(lambda part: pattern(part.to(device), rows, lengths).cpu(), inside[0, 0].numel(), inside)
    found = logs[:, 0].float().exp()
    sizes = torch.full_like(planes[:, 0], found.min().item())
    sizes[box] = found
    sizes = sizes.movedim((1, 2), (axis, longer_first(result.shape, axis)[0]))
    return sizes * (tissue_range.extent / 2)


def detail(volume: Tensor, acquisition: Acquisition) -> Tensor:
    """Detail of a volume `(X, Y, Z)` that its slices do not hold: the volume less the spline between its slices."""
    return volume - interpolate(acquire(volume, acquisition), acquisition, "cubic")


def guided_error(guided: Tensor, plain: Tensor, acquisition: Acquisition, edges: np.ndarray) -> Tensor:
    """Errors with a guide over those without one, as far as both results show it.

    An estimate of least squared error shows as much detail as it is sure of. A guide's detail does not correlate with
    the estimate without it (law of total variance): added to that or taken from it, it gives the same power. Errors go
    as the inverse root of that power. Where the two differ, the guide only strengthens or dampens what the scan
    itself gave, as a copy of the scan does; the lesser counts.

    Args:
        guided, plain: `(X, Y, Z)`, the results with and without the guide.
        edges: `(3,)`, of the voxels, in mm.

    Returns:
        `(X, Y, Z)`: 1 where the guide changed nothing, less where it brought detail, more where it took detail away.
    """
    own, other = detail(plain, acquisition), detail(guided, acquisition)
    sizes = np.maximum(np.round(CUBE / edges), 1).astype(int).tolist()
    without, added, taken = (
        torch.from_numpy(ndimage.uniform_filter(one.square().numpy(), sizes)).clamp(min=0)
        for one in (own, other, 2 * own - other)
    )
    least = (FAINT * without.mean()).clamp(min=torch.finfo(without.dtype).tiny)
    return ((without + least) / (torch.minimum(added, taken) + least)).sqrt()


@torch.no_grad()
def error_map(
    rebuilt: Rebuilt,
    network: Drift,
    device: torch.device | str,
    calibration: Calibration,
    bfloat16: bool = False,
    plain: MetaTensor | None = None,
    steady: Slices | None = None,
) -> ErrorMap | None:
    """How far each voxel of a rebuilt scan may be off; None where nothing was rebuilt.

    Args:
        rebuilt: with its spread where the inferer made two families of planes.
        plain: the result without a guide, where one took part; intervals are narrower as far as `guided_error` says,
            but no narrower than whole, sharp guides made them (`Calibration.narrowest`).
        steady: the slices in their places, where the result was made of those of a head that moved. The change is an
            error of the result that the network knows nothing of: squares of both add.
    """
    if rebuilt.slices.acquisition.at_target or rebuilt.slices.constant:
        return None
    turn, slices = rebuilt.slices.turn, rebuilt.slices.canonical
    volume = turn.into(rebuilt.volume.as_tensor().cpu().float())
    affine, thickness = rebuilt.volume.affine, slices.acquisition.slice_thickness
    spread = None if rebuilt.spread is None else turn.into(rebuilt.spread)
    noise = slices.noise_share
    scale = scan_scale(calibration.exponents, slices.acquisition.slice_spacing / thickness, noise)
    expected = expected_error(slices, volume, spread, network, device, bfloat16)
    if not torch.isfinite(expected).all():
        raise InputError("the error network gives NaN or infinite numbers: it is broken. Leave out --error_map.")
    if plain is not None:
        edges = grid.voxel_spacing(affine)[list(turn.axes)]
        less = guided_error(volume, turn.into(plain.as_tensor().cpu().float()), slices.acquisition, edges)
        expected *= less.clamp(min=calibration.narrowest(thickness))
    if steady is not None:
        change = (turn.into(steady.array) - slices.array).abs()
        expected = torch.hypot(expected, interpolate(change, slices.acquisition, "linear") / scale)
    return ErrorMap(MetaTensor(turn.back(expected), affine=affine), thickness, noise, scale, calibration)
