"""The facts of a result in its record: how the slices were acquired, their noise, and the texture of the result."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
from monai.data import MetaTensor

from ..rebuild.error_map import ErrorMaps
from ..rebuild.rebuilt import Rebuilt
from ..stack.grid import plane_name
from ..stack.interpolation import interpolate
from ..stack.slices import Slices
from ..stack.tissue import flat_tissue
from ..stack.trace import step_ratio, streak

LARGEST_RATIO = 1000.0  # stands for infinity, which JSON does not know
CALIBRATED = (  # source of an error map's numbers
    "calibrated on people that no network has seen, {} in all; it holds for people like them (docs/trust.md says who "
    "they are for the weights that ship)"
)
COARSE = 1.5  # pixels of the image; an acquired pixel that is wider leaves a third of k-space empty
ACQUIRED = ("{:.1f} x {:.1f} of the image's", "their noise; k-space was filled with zeros")


def facts(rebuilt: Rebuilt, steps: int | None) -> dict[str, tuple[str, str]]:
    """Facts that were taken for the acquisition: name -> value, and where it came from.

    `steps` are Euler steps; None where nobody knows them.
    """
    a, affine = rebuilt.slices.acquisition, rebuilt.slices.affine
    shape = a.profile if isinstance(a.profile, str) else f"SLR pulse, time-bandwidth product {a.profile:g}"
    return {
        "slice axis": (f"{a.slice_axis}, {plane_name(affine, a.slice_axis)} slices", a.sources["slice_axis"]),
        "slice spacing": (f"{a.slice_spacing:.4g} mm", a.sources["slice_spacing"]),
        "slice thickness": (f"{a.slice_thickness:.4g} mm", a.sources["slice_thickness"]),
        "gap": (f"{round(a.gap, 4) + 0.0:.4g} mm", "spacing less thickness; negative for overlap"),
        "target thickness": (f"{a.target_spacing:.4g} mm", a.sources["target_spacing"]),
        **({} if steps is None else {"steps": (str(steps), rebuilt.steps_source)}),
        "slice profile": (shape, "the option profile"),
        **({"pixels": (f"{a.target_spacing:.4g} mm", a.sources["pixels"])} if "pixels" in a.sources else {}),
    }


def rounding(path: Path) -> dict[str, tuple[str, str]]:
    """The fact that a result of integers is rounded; no fact of other results."""
    image: Any = None if path.is_dir() else nib.load(path)
    if image is None or image.get_data_dtype().kind == "f":
        return {}
    half = float(image.dataobj.slope) / 2
    return {"voxels": (str(image.get_data_dtype()), f"the option dtype; intensities are right to {half:.3g}")}


def noise_entry(rebuilt: Rebuilt) -> dict[str, Any]:
    """The record's entry of the slices' noise; empty where nothing was rebuilt."""
    slices = rebuilt.slices
    if slices.acquisition.at_target or slices.constant:
        return {}
    noise, left = slices.noise, rebuilt.noise_left
    return {
        "Deviation": float(f"{noise.deviation:.4g}"),
        "Share": float(f"{slices.noise_share:.4g}"),
        "Widths": [round(width, 2) for width in noise.widths],
        "Source": "the slices" if slices.acquisition.noise is None else "the option noise",
        "Left": None if left is None else float(f"{left:.3g}"),
    }


def acquired(noise: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The fact that the image's pixels are finer than the acquired ones, where they are by far."""
    widths, (said, why) = noise.get("Widths", (1.0, 1.0)), ACQUIRED
    return {"acquired pixels": (said.format(*widths), why)} if max(widths) >= COARSE else {}


def calibrated(error: Mapping[str, Any], maps: ErrorMaps) -> dict[str, tuple[str, str]]:
    """The fact of an error map; none where nothing was rebuilt."""
    if "Median" not in error or maps.calibration is None:
        return {}
    return {
        "error map": (f"median ±{error['Median']:.4g} in the head", CALIBRATED.format(len(maps.calibration.people)))
    }


def texture(slices: Slices, result: MetaTensor) -> tuple[float | None, float | None, float | None]:
    """The step ratio and both numbers of the streak (`stack.trace`), in flat tissue of the cubic spline.

    The middle third of the volume is looked at. The last number is a share of the range of tissue. None stands where
    there is no number.
    """
    acquisition = slices.acquisition
    across = (acquisition.slice_axis + 1) % 3
    count = result.shape[across]
    third = [one.narrow(across, count // 3, -(-count // 3)) for one in (slices.array, result.as_tensor())]
    try:
        spline = interpolate(third[0], acquisition, "cubic")
        flat = flat_tissue(spline.clamp(min=third[0].min()))  # its undershoot is no floor
    except ValueError:  # constant
        return None, None, None
    ratio, steps = streak(third[1], acquisition.slice_axis, flat)
    numbers = (
        step_ratio(third[1], acquisition, flat),
        ratio,
        steps / slices.tissue_range.extent,
    )
    first, second, last = (None if math.isnan(one) else round(min(one, LARGEST_RATIO), 4) for one in numbers)
    return first, second, last
