"""A rebuilt scan and its facts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from monai.data import MetaTensor
from torch import Tensor

from ..method.calibration import Calibration
from ..stack.slices import Slices
from .consistency import difference, relative_rmse, rmse
from .guide import PlacedGuide
from .motion import Motion

ESTIMATED, DRAWN = "estimated", "drawn from what heads look like"  # detail that no slice measured


@dataclass(frozen=True)
class ErrorMap:
    """How far each voxel of a result may be off.

    Attributes:
        expected: `(X', Y', Z')`, half-widths up to the factor that a confidence asks for, in the units of the scan.
        thickness: of the slices, in mm.
        noise: of the slices, as a share of the range of their tissue.
        scale: of the scan, see `calibration.scan_scale`.
    """

    expected: MetaTensor
    thickness: float
    noise: float
    scale: float
    calibration: Calibration

    def half_width(self, confidence: float) -> MetaTensor:
        """The half-width of the intervals that hold the truth in a share of the voxels, `(X', Y', Z')`.

        It is right to 0.4 %: more digits would only make its file larger.
        """
        factor = self.scale * self.calibration.factor(self.thickness, confidence)
        return (self.expected * factor).bfloat16().float()  # type: ignore[return-value]  # torch: Tensor


@dataclass(frozen=True)
class Rebuilt:
    """A rebuilt scan.

    Attributes:
        slices: that it was made of; where `taken_back`, in their places.
        volume: `(X', Y', Z')` on the fine grid with its affine, float32, in the units of the scan, on the CPU.
        steps: of the method; None where a method has no such number.
        steps_source: where their number comes from.
        spread: `(X', Y', Z')`, half the distance between both families of planes, in the units of the scan; None where
            one was made.
        error_map: None unless it is asked for.
        guide: that took part; None for none.
        motion: between the packages of the stack; None where nothing can be said.
        taken_back: whether slices of the package that moved were taken back to their places.
        scores: further numbers of a method on the scan, for tables.
        sharp: whether its detail is drawn from what heads look like, by the option of this name.
    """

    slices: Slices
    volume: MetaTensor
    steps: int | None = None
    steps_source: str = ""
    spread: Tensor | None = None
    error_map: ErrorMap | None = None
    guide: PlacedGuide | None = None
    motion: Motion | None = None
    taken_back: bool = False
    scores: Mapping[str, float] = field(default_factory=dict)
    sharp: bool = False

    @property
    def detail(self) -> str:
        """The origin of the detail that no slice measured, in words."""
        return DRAWN if self.sharp else ESTIMATED

    @cached_property
    def difference(self) -> Tensor:
        """`(X, Y, Z)`: the slices that a scanner would measure of the volume, less the measured ones."""
        return difference(self.volume.as_tensor(), self.slices)

    @cached_property
    def agreement(self) -> float | None:
        """`consistency.relative_rmse` of volume and slices, rounded; None for a constant scan, which has no head."""
        try:
            number = relative_rmse(self.difference, self.slices)
        except ValueError:
            return None
        return None if math.isnan(number) else round(number, 5)

    @property
    def noise_left(self) -> float | None:
        """`consistency.rmse` over the noise of the slices: 1 where noise alone is left; None without noise."""
        deviation = self.slices.noise.deviation
        return rmse(self.difference, self.slices) / deviation if deviation else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Those of the slices, the acquisition, the head's motion and the error map, for people."""
        error, slices = self.error_map, self.slices
        outside = "" if error is None else error.calibration.outside(error.thickness)
        every = (*slices.warnings, *slices.acquisition.warnings, self.motion_said, outside)
        return tuple(filter(None, every))

    @cached_property
    def motion_said(self) -> str:
        """The words for a stack whose head moved between its packages; none for a still one."""
        if self.motion is None or not self.motion.moved:
            return ""
        if self.taken_back:
            became = "they were taken back to one place"
        else:
            spacing = self.slices.acquisition.slice_spacing
            became = self.motion.stays(spacing) or "set --motion true to take them back"
        return f"{self.motion}; {became}."
