"""The deployed step between a scan that is read and the network: how it was acquired is settled."""

import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import MapTransform

from ..errors import InputError, flag, is_number, logger, printable
from ..method.weights import Card
from ..stack import grid
from ..stack.acquisition import ROUNDING, SLR, Acquisition, Profile, length
from ..stack.intensity import intensity_range
from ..stack.interleaving import disorder, evened
from ..stack.interpolation import at_spacing, respaced, with_square_pixels
from ..stack.profile import slice_profile
from ..stack.settle import Given, settle
from ..stack.spectra import SPACING_LOST, dull, sharpness

MOST_NOISE = 30.0  # % of the range of tissue; noisier slices show nothing

SENTENCE, OPTION = r"(?<=[.;:])\s+", r"--\w"  # between two sentences or their parts; in one that names an option
MEND_GUIDE = "Mend its header, or leave the guide out."
RESPACE = "Their --slice_spacing, with --slice_thickness where it is another, rebuilds them."


class SettleAcquisitiond(MapTransform):
    """Settles how each scan was acquired (`settle.settle`), logs it, and attaches it to the volume.

    Args:
        keys: of `(1, X, Y, Z)` volumes with an affine.
        card: of the weights, with the range that they were trained for.
        slice_thickness, target_thickness: in mm; null for what `settle` finds.
        slice_axis: array axis, 0 to 2; null likewise.
        slice_spacing: in mm, of slices that were interpolated to a finer spacing: the volume is taken back to it first.
        isotropic: resamples the pixels to the target, so that the result has cubes for voxels.
        noise: standard deviation of the slices' noise, in % of the range of their tissue; auto to estimate it.
    """

    cubes = " (--isotropic makes cubes of them)"  # after voxels that are none

    def __init__(
        self,
        keys: KeysCollection,
        card: Card,
        slice_thickness: float | None = None,
        target_thickness: float | None = None,
        slice_axis: int | None = None,
        profile: Profile = SLR,
        isotropic: bool = False,
        slice_spacing: float | None = None,
        noise: float | str = "auto",
    ):
        super().__init__(keys)
        self.card = card
        self.slice_spacing = _given("slice_spacing", slice_spacing, 5)
        whole = isinstance(slice_axis, int | np.integer) and not isinstance(slice_axis, bool)
        if slice_axis is not None and not (whole and 0 <= slice_axis <= 2):
            raise InputError(f"slice_axis is {slice_axis!r}: expected 0, 1 or 2, an axis of the voxel array.")
        slice_profile(profile)
        self.given = Given(
            _given("slice_thickness", slice_thickness, 5),
            _given("target_thickness", target_thickness, 1),
            None if slice_axis is None else int(slice_axis),
            profile,
            flag("isotropic", isotropic),
        )
        if noise != "auto" and not (is_number(noise, 0) and float(noise) <= MOST_NOISE):
            raise InputError(
                f"noise is {noise!r}: expected auto, or 0 to {MOST_NOISE:g} % of the range of tissue. Set --noise."
            )
        self.noise = None if noise == "auto" else float(noise) / 100

    def __call__(self, data: Mapping[Hashable, MetaTensor]) -> dict[Hashable, MetaTensor]:
        """The scans, of slices of one brightness, each with its acquisition."""
        result = dict(data)
        for key in self.key_iterator(result):
            name = grid.name_of(result[key], "the scan")
            volume = self._as_acquired(result[key], name)
            acquisition = self._settle(volume, name)
            volume, acquisition = _evened(volume, acquisition, name)
            result[key] = volume
            if self.given.isotropic:
                edges = np.delete(grid.voxel_spacing(volume.affine), acquisition.slice_axis)
                result[key] = with_square_pixels(volume, acquisition.slice_axis, acquisition.target_spacing)
                if np.abs(edges / acquisition.target_spacing - 1).max() > ROUNDING - 1:
                    source = f"resampled from {edges[0]:.4g} x {edges[1]:.4g} mm by the option isotropic"
                    acquisition = replace(acquisition, sources={**acquisition.sources, "pixels": source})
            _log(printable(name), volume, result[key], acquisition, self.cubes)
            acquisition.attach(result[key])
        return result

    def _settle(self, volume: MetaTensor, name: str) -> Acquisition:
        stated = self._stated(volume)
        a = settle(name, volume.affine, tuple(volume.shape[1:]), stated, self.given, self.card)
        axes = range(3) if a.at_target else [a.slice_axis]
        doubt = dull(volume.as_tensor()[0], grid.voxel_spacing(volume.affine), axes)
        mend = "Mend its header." if doubt == SPACING_LOST else RESPACE
        warnings = [*filter(None, [volume.meta.get("warning"), doubt and f"{doubt}. {mend}"]), *a.warnings]
        packages, source = stated.get("packages", ("", ""))
        axis, timed, sidecar = volume.meta.get("beside", {}).get("packages", (None, "", ""))
        if not packages and self.slice_spacing is None and axis == a.slice_axis:
            packages, source = timed, sidecar
        if len(packages) == a.slice_count:
            a = replace(a, packages=packages, sources={**a.sources, "packages": source})
        return replace(a, noise=self.noise, warnings=tuple(warnings))

    def _stated(self, volume: MetaTensor) -> dict[str, tuple[Any, str]]:
        """Facts of the header, and the sidecars' lengths where it has none: name -> (value, source)."""
        beside = volume.meta.get("beside", {})
        if "broken" in beside and self.given.slice_thickness is None:  # else the user knows better
            raise InputError(beside["broken"])
        lengths = ["slice_thickness", *(["slice_spacing"] if self.slice_spacing is None else [])]
        return {**{fact: beside[fact] for fact in lengths if fact in beside}, **volume.meta.get("stated", {})}

    def _as_acquired(self, volume: MetaTensor, name: str) -> MetaTensor:
        """Interpolated slices, taken back to the spacing that the user states; other volumes as they are."""
        if self.slice_spacing is None:
            return volume
        edges = grid.voxel_spacing(volume.affine)
        sharp = np.array(sharpness(volume.as_tensor()[0], edges))
        axis = int(np.argmax(sharp / edges)) if self.given.slice_axis is None else self.given.slice_axis
        if self.slice_spacing <= ROUNDING * edges[axis]:
            raise InputError(
                f"{name}: --slice_spacing is {self.slice_spacing:g} mm, and the slices are {edges[axis]:.4g} mm apart: "
                "expected the larger spacing that they were interpolated from. Leave it out for slices as they were "
                "acquired."
            )
        found = respaced(volume, axis, self.slice_spacing, at_spacing)
        found.meta["stated"] = {"slice_axis": [axis, "the axis that was interpolated"]}
        found.meta["warning"] = (
            f"the slices were interpolated: one is taken every {self.slice_spacing:g} mm along axis {axis}"
        )
        return found


class SettleGuided(SettleAcquisitiond):
    """Settles how guides were acquired. Options describe the scan, so no message on a guide names one."""

    cubes = ""

    def __init__(self, keys: KeysCollection, card: Card):
        super().__init__(keys, card)

    def _settle(self, volume: MetaTensor, name: str) -> Acquisition:
        def without_options(message: str) -> str:
            kept = [part for part in re.split(SENTENCE, message) if not re.search(OPTION, part)]
            return re.sub(r"[;:]$", ".", " ".join(kept))

        try:
            acquisition = super()._settle(volume, name)
        except InputError as mistake:
            said = without_options(str(mistake))
            raise InputError(said if said == str(mistake) else f"{said} {MEND_GUIDE}") from None
        return replace(acquisition, warnings=tuple(map(without_options, acquisition.warnings)))


def _evened(volume: MetaTensor, acquisition: Acquisition, name: str) -> tuple[MetaTensor, Acquisition]:
    """Slices of one brightness, where cross-talk dimmed every other one; those in another order are refused."""
    array, axis = volume.as_tensor()[0].cpu(), acquisition.slice_axis
    if acquisition.at_target or array.min() == array.max():
        return volume, acquisition
    tissue_range = intensity_range(array)
    if why := disorder(array, axis, tissue_range):
        raise InputError(f"{name}: {why}, or convert the series again.")
    even, warning = evened(array, axis, tissue_range)
    if not warning:
        tissue_range.attach(volume)
        return volume, acquisition
    result = MetaTensor(even[None], affine=volume.affine, meta=grid.meta_without_affine(volume))
    return result, replace(acquisition, warnings=(*acquisition.warnings, warning))


def _given(option: str, value: Any, example: int) -> float | None:
    return None if value is None else length(option, value, f"Set it as in --{option} {example}.")


def _log(name: str, scan: MetaTensor, volume: MetaTensor, a: Acquisition, not_cubes: str) -> None:
    for warning in a.warnings:
        logger.warning(f"{name}: {warning}")
    if a.at_target:
        what = "taken as it is" if torch.allclose(scan.affine, volume.affine) else "resampled in plane"
        logger.info(f"{name}: slices of {a.slice_spacing:.3g} mm are at the target already; it is {what}.")
        return
    edges = grid.voxel_spacing(volume.affine)
    edges[a.slice_axis] = a.target_spacing
    cubes = "" if edges.max() <= ROUNDING * edges.min() else not_cubes
    logger.info(
        f"{name}: {grid.plane_name(scan.affine, a.slice_axis)} slices along axis {a.slice_axis} "
        f"({a.sources['slice_axis']}), {a.slice_spacing:.3g} mm apart; "
        f"thickness {a.slice_thickness:.3g} mm ({a.sources['slice_thickness']}); "
        f"result voxels {' x '.join(f'{edge:.3g}' for edge in edges)} mm{cubes}"
    )
