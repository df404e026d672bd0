"""A whole volume through the network: planes that contain the slice axis, sliding windows, averaging."""

from __future__ import annotations

import numpy as np
import torch
from monai.data import MetaTensor
from monai.inferers import Inferer, SlidingWindowInferer
from torch import Tensor, nn

from .errors import flag
from .schedule import N_MAX, ais_steps, euler_times


def acquisition(image: MetaTensor) -> tuple[int, float, float, float]:
    """Slice axis; slice spacing, slice thickness and target thickness (mm) from one volume's meta data, batched or not.

    Raises:
        ValueError: if the image does not carry them.
    """
    keys = ("slice_axis", "slice_spacing", "slice_thickness", "target_thickness")
    meta = getattr(image, "meta", {})
    missing = [key for key in keys if key not in meta]
    if missing:
        raise ValueError(f"image meta data lack {missing}: run the bundle's preprocessing, or set them (mm).")
    # collated values are one-element arrays
    axis, spacing, thickness, target = (float(np.ravel(meta[key])[0]) for key in keys)
    return int(axis), spacing, thickness, target


class DriftInferer(Inferer):
    """Rebuilds a re-gridded volume plane by plane with Gaussian-weighted sliding windows (Secs. 3.6, S4.5).

    Every window of a volume shares one Euler schedule, which depends on thickness alone. Windows that hold one value
    hold no signal: they are returned as they are, at no cost.

    Args:
        roi_size: edge of the square windows, in pixels.
        overlap: of neighbouring windows, as a share of `roi_size`; 0.25 of 128 is 32 pixels.
        sw_batch_size: windows per network call.
        both_planes: rebuild in the planes along either in-plane axis and average. Otherwise the planes along the
            longer in-plane axis are used.
        steps: Euler steps; null for AIS, 0 for stage 1 alone.
        n_max: most steps of AIS.
        progress: show a progress bar.
    """

    def __init__(
        self,
        roi_size: int = 128,
        overlap: float = 0.25,
        sw_batch_size: int = 16,
        both_planes: bool = False,
        steps: int | None = None,
        n_max: int = N_MAX,
        progress: bool = False,
    ):
        super().__init__()
        self.both_planes = flag("both_planes", both_planes)
        self.steps = steps
        self.n_max = n_max
        self.windows = SlidingWindowInferer(
            (roi_size, roi_size), sw_batch_size, overlap, mode="gaussian", padding_mode="replicate", progress=progress
        )

    def step_count(self, slice_thickness: float, target_thickness: float) -> int:
        """Euler steps for a scan; thicknesses in mm."""
        return ais_steps(slice_thickness, target_thickness, self.n_max) if self.steps is None else self.steps

    # hosts pass these two alone; MONAI declares *args and **kwargs as well
    @torch.no_grad()
    def __call__(self, inputs: MetaTensor, network: nn.Module) -> MetaTensor:  # type: ignore[override]
        """Rebuilds one volume.

        Args:
            inputs: `(1, 1, X, Y, Z)` on the fine grid, in [-1, 1], with `slice_axis` and, in mm, `slice_spacing`,
                `slice_thickness` and `target_thickness` in its meta data. A volume whose slices are as thin and as near
                as the target comes back as it is.
            network: a `Drift`.

        Returns:
            The volume, same shape and meta data, with `steps`, the number of Euler steps, among them.

        Raises:
            ValueError: if the batch holds more than one volume or the meta data are missing.
        """
        if inputs.dim() != 5 or inputs.shape[:2] != (1, 1):
            raise ValueError(f"inputs are {tuple(inputs.shape)}: expected one volume, (1, 1, X, Y, Z).")
        axis, slice_spacing, slice_thickness, target_thickness = acquisition(inputs)
        if max(slice_spacing, slice_thickness) <= target_thickness:
            return MetaTensor(inputs, meta={**inputs.meta, "steps": 0})
        volume = inputs.as_tensor()[0, 0]
        thickness = volume.new_tensor([[slice_thickness, target_thickness]])
        steps = self.step_count(slice_thickness, target_thickness)
        times = euler_times(steps).to(volume)

        def rebuild(windows: Tensor) -> Tensor:
            flat = windows.flatten(1)
            signal = flat.amax(1) > flat.amin(1)
            result = windows.clone()
            if signal.any():
                result[signal] = network(windows[signal], thickness, times).to(result)
            return result

        others = sorted((a for a in range(3) if a != axis), key=lambda a: -volume.shape[a])
        results = []
        for other in others if self.both_planes else others[:1]:
            planes = volume.movedim((axis, other), (1, 2))[:, None]  # (normal, 1, slice axis, other)
            rebuilt = self.windows(planes, rebuild)[:, 0]  # type: ignore[call-overload]  # MONAI: or a tuple
            results.append(rebuilt.movedim((1, 2), (axis, other)))
        result = torch.stack(results).mean(0)[None, None]
        meta = {**inputs.meta, "steps": steps}
        return MetaTensor(result, meta=meta, applied_operations=inputs.applied_operations)
