"""Dictionary transforms: files and volumes to network inputs and back, on top of `slice_profile` and `grid`."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.config import KeysCollection
from monai.data import MetaTensor
from monai.transforms import LoadImage, MapTransform, RandomizableTransform
from monai.utils import optional_import
from torch import Tensor
from torch.nn.functional import interpolate

from . import bids, dicom, grid
from .consistency import projects, reconcile
from .errors import InputError
from .files import ITK
from .inference import acquisition
from .slice_profile import SLR, Profile, acquire, degrade, regrid_nearest

logger = logging.getLogger("drift")
_, has_itk = optional_import("itk")


class LoadScand(MapTransform):
    """Reads scans and refuses what is no complete 3-D volume of real numbers on an orthogonal grid.

    Args:
        keys: path of a NIfTI or MGZ file, read by nibabel; of an NRRD or MetaImage file, read by ITK; or a
            `dicom.Series`. An image that a host has loaded already passes, once it is checked. Each becomes a
            `(1, X, Y, Z)` float32 volume with an affine; what a DICOM header says of the slice thickness (mm) is
            `header_thickness` in its meta data.
    """

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        result = dict(data)
        for key in self.key_iterator(result):
            source = result[key]
            if isinstance(source, dicom.Series):
                result[key] = self._series(source)
            elif isinstance(source, (str, Path)):
                path = Path(source)
                result[key] = self._itk(path) if path.name.endswith(ITK) else self._nibabel(path)
            self._check_grid(result[key])
        return result

    def _series(self, series: dicom.Series) -> MetaTensor:
        volume = dicom.read_series(series)
        meta: dict[str, Any] = {"filename_or_obj": series.name}
        if volume.slice_thickness is not None:
            meta["header_thickness"] = volume.slice_thickness
        return MetaTensor(torch.from_numpy(volume.array)[None], affine=torch.from_numpy(volume.affine), meta=meta)

    def _itk(self, path: Path) -> MetaTensor:
        if not has_itk:
            raise InputError(f"{path} needs ITK. Install it with pip install '.[itk]', or convert the scan to NIfTI.")
        try:
            volume = LoadImage("ITKReader", ensure_channel_first=True)(path)
        except Exception as error:  # ITK raises RuntimeError with a page of text
            raise InputError(f"{path} cannot be read by ITK. Convert or download it again.") from error
        if volume.dim() != 4 or volume.shape[0] != 1:
            raise InputError(f"{path} has shape {tuple(volume.shape)}: expected a 3-D volume. Save one volume of it.")
        return volume

    def _nibabel(self, path: Path) -> MetaTensor:
        try:
            if path.suffix in (".gz", ".mgz"):
                with gzip.open(path) as file:
                    while file.read(1 << 20):  # to the end, where the checksum is
                        pass
            image: Any = nib.load(path.absolute())  # nibabel takes a leading ~ for a home, and declares no voxels
            array = np.asanyarray(image.dataobj)
            unit = image.header.get_xyzt_units()[0] if isinstance(image, nib.Nifti1Image) else "mm"
        except Exception as error:  # nibabel raises many types for a broken file
            reason = " ".join(str(error).split())
            raise InputError(f"{path} cannot be read ({reason}). Convert or download it again.") from error
        dtype, shape = image.get_data_dtype(), tuple(int(n) for n in image.shape)
        if dtype.fields is not None or dtype.kind not in "iuf":
            raise InputError(f"{path} holds {dtype} voxels: expected one real number each. Save one channel of it.")
        if len(shape) < 3 or 0 in shape or any(n != 1 for n in shape[3:]):
            raise InputError(f"{path} has shape {shape}: expected a 3-D volume. Save one volume of it.")
        if unit not in ("mm", "unknown"):
            raise InputError(f"{path} states its lengths in {unit}s: expected mm. Scale its affine and save it in mm.")
        with np.errstate(over="ignore"):  # told as infinite, later
            volume = torch.from_numpy(array.reshape(1, *shape[:3]).astype(np.float32))
        return MetaTensor(volume, affine=torch.from_numpy(image.affine), meta={"filename_or_obj": str(path)})

    def _check_grid(self, volume: MetaTensor) -> None:
        name = volume.meta.get("filename_or_obj", "the scan")
        affine = np.asarray(volume.affine)
        if not np.isfinite(affine).all():
            raise InputError(f"{name} has NaN or infinity in its affine: expected numbers. Mend its header.")
        spacing = grid.voxel_spacing(affine)
        if not ((spacing > 0) & (spacing <= grid.MAX_SPACING)).all():
            edges = ", ".join(f"{edge:.4g}" for edge in spacing)
            raise InputError(
                f"{name} has voxel edges of {edges} mm: expected positive lengths of at most {grid.MAX_SPACING} mm. "
                "Mend its header."
            )
        shear = grid.shear_angle(affine)
        if shear > grid.MAX_SHEAR:
            raise InputError(
                f"{name}: affine is sheared, {shear:.2f} degrees off orthogonal, at most {grid.MAX_SHEAR} is "
                "supported. Resample to an orthogonal grid first."
            )


def sidecar_thickness(path: Path) -> tuple[float | None, str]:
    """`SliceThickness` (mm) of the sidecars of a NIfTI file, and from where; None without one.

    Raises:
        InputError: if a sidecar is no JSON object or its value no number.
    """
    value, sidecar = bids.sidecar_value(path, "SliceThickness")
    if value is None:
        return None, ""
    return _length(f"{sidecar}: SliceThickness", value, "Mend it, or remove it."), f"the sidecar {sidecar}"


def _length(name: str, value: Any, remedy: str) -> float:
    """A length in mm that the user or a sidecar gave.

    Raises:
        InputError: if it is not a positive number.
    """
    try:
        length = float(value)
    except (TypeError, ValueError):
        length = float("nan")
    if isinstance(value, bool) or not (np.isfinite(length) and length > 0):
        raise InputError(f"{name} is {value!r}: expected a positive number of millimetres. {remedy}")
    return length


class Acquisitiond(MapTransform):
    """Settles the facts of the acquisition, once, and says where each came from (reading note 4).

    Writes `slice_axis`, and in mm `slice_spacing`, `slice_thickness` and `target_thickness`, to the meta data; besides,
    for people, `assumed`, where each came from, and `warnings`. What the user gives wins. Otherwise the slice axis is
    the one with the largest spacing, the thickness is that of the DICOM header or the BIDS sidecar, else the slice
    spacing, and the target is the finer in-plane spacing, within the trained range.

    Args:
        keys: `(1, X, Y, Z)` volumes with an affine.
        slice_thickness: in mm, or null.
        target_thickness: in mm, or null.
        slice_axis: array axis, 0 to 2, or null.
        trained_target: smallest and largest target thickness that the weights saw, in mm.
        trained_thickness: largest slice thickness that the weights saw, in mm.
    """

    def __init__(
        self,
        keys: KeysCollection,
        slice_thickness: float | None,
        target_thickness: float | None,
        slice_axis: int | None,
        trained_target: tuple[float, float],
        trained_thickness: float,
    ):
        super().__init__(keys)
        self.slice_thickness = self.target_thickness = None
        if slice_thickness is not None:
            self.slice_thickness = _length("slice_thickness", slice_thickness, "Set it as in --slice_thickness 5.")
        if target_thickness is not None:
            self.target_thickness = _length("target_thickness", target_thickness, "Set it as in --target_thickness 1.")
        if slice_axis is not None and (type(slice_axis) is not int or not 0 <= slice_axis <= 2):
            raise InputError(f"slice_axis is {slice_axis!r}: expected 0, 1 or 2, an axis of the voxel array.")
        self.slice_axis = slice_axis
        self.trained_target = trained_target
        self.trained_thickness = trained_thickness

    def __call__(self, data: Mapping[Hashable, MetaTensor]) -> dict[Hashable, MetaTensor]:
        for key in self.key_iterator(data):
            self._settle(data[key])
        return dict(data)

    def _settle(self, volume: MetaTensor) -> None:
        name = str(volume.meta.get("filename_or_obj", "the scan"))
        warnings: list[str] = []
        spacing = grid.voxel_spacing(volume.affine)
        axis = grid.slice_axis(spacing) if self.slice_axis is None else self.slice_axis
        slice_spacing = float(spacing[axis])
        if volume.shape[1 + axis] < grid.MIN_SLICES:
            raise InputError(
                f"{name} has {volume.shape[1 + axis]} slices along axis {axis}: expected {grid.MIN_SLICES} or more. "
                "Set --slice_axis if the slices lie along another axis."
            )
        low, high = self.trained_target
        target = self.target_thickness
        if target is None:
            target = float(np.clip(np.delete(spacing, axis).min(), low, high))
        elif not low <= target <= high:
            warnings.append(
                f"target {target:g} mm is outside the {low:g} to {high:g} mm that the weights were trained for; expect "
                "blur or false detail."
            )
        try:
            thickness, source = self._header_thickness(volume, name)
        except InputError:
            if self.slice_thickness is None:
                raise
            thickness, source = None, ""  # a broken sidecar does not matter where the user knows better
        if self.slice_thickness is not None:
            if thickness is not None and abs(thickness - self.slice_thickness) > 0.01 * thickness:
                warnings.append(
                    f"slice thickness {self.slice_thickness:g} mm is given and used; {source} says {thickness:g} mm."
                )
            thickness, source = self.slice_thickness, "given"
        from_spacing = thickness is None
        if thickness is None:
            thickness, source = slice_spacing, "the slice spacing, for want of better"
        if abs(thickness - target) <= 0.01 * target:
            thickness = target  # headers round
        if thickness < target and (not from_spacing or slice_spacing > 1.01 * target):
            raise InputError(
                f"{name}: slice thickness {thickness:g} mm ({source}) is smaller than the target, {target:g} mm. "
                "Set --slice_thickness to the true thickness or --target_thickness to a smaller one."
            )
        if thickness > self.trained_thickness:
            warnings.append(
                f"slices of {thickness:g} mm are thicker than the {self.trained_thickness:g} mm that the weights were "
                "trained for; expect missing detail."
            )
        for warning in warnings:
            logger.warning(f"{name}: {warning}")
        if max(thickness, slice_spacing) <= 1.01 * target:
            thickness = target = slice_spacing
            logger.info(f"{name}: slices of {slice_spacing:.3g} mm are at the target already; the scan is copied.")
        else:
            logger.info(
                f"{name}: slices along axis {axis}, {slice_spacing:.3g} mm apart; thickness {thickness:.3g} mm "
                f"(from {source}); target {target:.3g} mm"
            )
        volume.meta.update(
            slice_axis=axis,
            slice_spacing=slice_spacing,
            slice_thickness=thickness,
            target_thickness=target,
            warnings=warnings,
            assumed={
                "slice_axis": "the largest spacing" if self.slice_axis is None else "given",
                "slice_thickness": source,
                "target_thickness": "the finer in-plane spacing" if self.target_thickness is None else "given",
            },
        )

    def _header_thickness(self, volume: MetaTensor, name: str) -> tuple[float | None, str]:
        """Slice thickness (mm) that came with the scan, None without one; and from where."""
        if volume.meta.get("header_thickness") is not None:
            return float(volume.meta["header_thickness"]), "the DICOM header"
        return sidecar_thickness(Path(name))


class RegridNearestd(MapTransform):
    """Puts thick slices on the fine grid by nearest neighbour, along the slice axis alone (Eq. S3).

    Args:
        keys: `(1, X, Y, Z)` volumes with the facts of `Acquisitiond`.
    """

    def __call__(self, data: Mapping[Hashable, MetaTensor]) -> dict[Hashable, MetaTensor]:
        result = dict(data)
        for key in self.key_iterator(result):
            thick = result[key]
            axis, spacing, target = (thick.meta[k] for k in ("slice_axis", "slice_spacing", "target_thickness"))
            count = thick.shape[1 + axis]
            fine_count = grid.fine_count(count, spacing, target)
            fine = regrid_nearest(thick.as_tensor(), 1 + axis, spacing, fine_count, target)
            affine = grid.fine_affine(thick.affine.numpy(), axis, count, fine_count, target)
            meta = {name: value for name, value in thick.meta.items() if name != "affine"}
            result[key] = MetaTensor(fine, affine=torch.from_numpy(affine), meta=meta)
        return result


class NormalizeIntensityRanged(MapTransform):
    """Maps a volume's own intensity range linearly to [-1, 1], without clipping; one map for all its slices.

    The range is the minimum and the 99.9th percentile; brighter voxels exceed 1. `intensity_range` in the meta data
    keeps it for `RestoreIntensityRanged`. A constant volume becomes -1.

    Raises:
        InputError: if a voxel is NaN or infinite.
    """

    upper_percentile = 99.9

    def __call__(self, data: Mapping[Hashable, MetaTensor]) -> dict[Hashable, MetaTensor]:
        result = dict(data)
        for key in self.key_iterator(result):
            volume = result[key]
            values = np.asarray(volume)
            if not np.isfinite(values).all():
                name = volume.meta.get("filename_or_obj", "the volume")
                count = np.count_nonzero(~np.isfinite(values))
                raise InputError(f"{name} has {count} NaN or infinite voxels: expected none. Mask or mend them first.")
            low, high = float(values.min()), float(np.percentile(values, self.upper_percentile))
            if high <= low:
                high = max(float(values.max()), low + 1)
            # torch declares that arithmetic on a MetaTensor gives a Tensor
            result[key] = (volume - low) * (2 / (high - low)) - 1  # type: ignore[assignment]
            result[key].meta["intensity_range"] = (low, high)
        return result


class RestoreIntensityRanged(MapTransform):
    """Undoes `NormalizeIntensityRanged`: [-1, 1] back to the scan's own units."""

    def __call__(self, data: Mapping[Hashable, MetaTensor]) -> dict[Hashable, MetaTensor]:
        result = dict(data)
        for key in self.key_iterator(result):
            low, high = (float(v) for v in result[key].meta["intensity_range"])
            # torch declares that arithmetic on a MetaTensor gives a Tensor
            result[key] = (result[key] + 1) * ((high - low) / 2) + low  # type: ignore[assignment]
        return result


class ReconcileSlicesd(MapTransform):
    """Moves a rebuilt volume onto its measured slices, as far as their noise and gains allow (`consistency.reconcile`).

    A scan that was isotropic, whose slices are as thin and as near as the target, stays as it is.

    Args:
        keys: `(1, X, Y, Z)` on the fine grid with its affine, in the scan's own units.
        measured_key: `(1, X, Y, Z)`, the slices, with the meta data of `Acquisitiond`.
        consistency: `"project"`; `"measure"` leaves all as it is.
        profile: of the slices, see `slice_profile.slice_profile`.
    """

    def __init__(self, keys: KeysCollection, measured_key: str, consistency: str, profile: Profile):
        super().__init__(keys)
        self.measured_key = measured_key
        self.projects = projects(consistency)
        self.profile = profile

    def __call__(self, data: Mapping[Hashable, MetaTensor]) -> dict[Hashable, MetaTensor]:
        result = dict(data)
        if not self.projects:
            return result
        measured = result[self.measured_key]
        axis, spacing, thickness, target = acquisition(measured)
        if max(spacing, thickness) <= target:
            return result
        for key in self.key_iterator(result):
            volume, fine = result[key], float(grid.voxel_spacing(result[key].affine)[axis])
            slices = measured.as_tensor()[0]
            moved = reconcile(volume.as_tensor()[0], slices, axis, fine, thickness, spacing, self.profile)
            result[key] = MetaTensor(moved[None], meta=volume.meta, applied_operations=volume.applied_operations)
        return result


class RandPlaned(RandomizableTransform, MapTransform):
    """Draws a slice axis and a plane that contains it, both sharp; the slice axis becomes the plane's first axis.

    A plane orthogonal to the slice axis would show no stair steps (Sec. S1). `spacing` in the result holds the plane's
    two voxel edges, in mm.

    Args:
        keys: one key, a `(1, X, Y, Z)` volume with an affine; `sharp_axes` in the data names the axes to choose from.
    """

    def __init__(self, keys: KeysCollection):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)

    # MONAI declares one argument
    def randomize(self, shape: tuple[int, ...], sharp_axes: tuple[int, ...]) -> None:  # type: ignore[override]
        """Draws the slice axis, the plane's other axis and its index."""
        self._axis, self._other = (int(a) for a in self.R.permutation(sharp_axes)[:2])
        self._normal = 3 - self._axis - self._other
        self._index = int(self.R.randint(shape[self._normal]))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        volume = data[key]
        self.randomize(volume.shape[1:], data["sharp_axes"])
        spacing = grid.voxel_spacing(volume.affine)
        plane = volume.as_tensor().select(1 + self._normal, self._index).float()  # (1, two axes in array order)
        if self._axis > self._other:
            plane = plane.transpose(1, 2)
        return {key: plane, "spacing": (float(spacing[self._axis]), float(spacing[self._other]))}


class RandResampled(RandomizableTransform, MapTransform):
    """Draws a voxel size and resamples a plane to it: target thickness, pixel size and head size vary.

    Scans are often interpolated in plane, so the pixels may become finer than they were; the target thickness may not,
    since the plane is the truth along that axis. Empty pixels stay empty, and do not darken their neighbours. `spacing`
    in the data is updated.

    Args:
        keys: one key, a `(1, H, W)` plane, not negative, 0 where it is empty, whose first axis is the slice axis;
            `spacing` in the data, in mm.
        target_range: `T_hr` is uniform in this range, in mm, but never finer than the plane.
        pixel_range: the other edge is uniform in this range, in mm, for half of the planes, `T_hr` for the others; null
            for `T_hr` in all.
        size_range: the spacing is first multiplied by a factor uniform in this range, as if the head were larger or
            smaller.
    """

    def __init__(
        self,
        keys: KeysCollection,
        target_range: tuple[float, float],
        pixel_range: tuple[float, float] | None,
        size_range: tuple[float, float],
    ):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        self.target_range = target_range
        self.pixel_range = pixel_range
        self.size_range = size_range

    def randomize(self, spacing: tuple[float, float]) -> None:  # type: ignore[override]  # MONAI declares Any
        """Draws the head's size and both edges of the new pixels."""
        self._native = np.array(spacing) * self.R.uniform(*self.size_range)
        low, high = self.target_range
        target = max(self._native[0], self.R.uniform(min(max(low, self._native[0]), high), high))
        low, high = self.pixel_range or (target, target)
        pixel = self.R.uniform(low, high) if self.R.random_sample() < 0.5 else target
        self._spacing = (float(target), float(pixel))

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        self.randomize(data["spacing"])
        plane = data[key]
        size = [max(1, round(n * s / new)) for n, s, new in zip(plane.shape[1:], self._native, self._spacing)]
        filled = (plane > 0).to(plane)  # a scan without skull ends at a hard edge, which the filter would soften
        values, coverage = interpolate(torch.stack([plane, filled]), size=size, mode="bicubic", antialias=True)
        # bicubic undershoots beside bright edges
        label = (values / coverage.clamp(min=0.5)).clamp(min=0) * (coverage >= 0.5)
        return {**data, key: label, "spacing": self._spacing}


class RandAcquired(RandomizableTransform, MapTransform):
    """Draws an acquisition and simulates it on a sharp plane: the training pair of both stages (Sec. 3.1).

    The slices are stacked along the plane's first axis, and its spacing along that axis is the target thickness `T_hr`.
    Adds `image`, the degraded plane; `thickness`, `[T_i, T_hr]` in mm; `proximal` and `proximal_thickness`, the same
    plane at `T_j = T_i - gap`, for CETA. Where `T_j` would not exceed `T_hr`, `proximal` repeats `image` at `T_i`,
    which tells `FlowBatch` to leave the pair out. The defaults are the paper's.

    Args:
        keys: one key, a `(1, H, W)` plane in [0, 1]; `spacing` in the data, in mm.
        max_thickness: `T_i` is uniform in `(T_hr, max_thickness]` mm.
        ceta_gap: `Delta T` of CETA in mm; 0 for no pairs.
        profiles: of which one is drawn, see `slice_profile.slice_profile`.
        spacing_ratio: slice spacing / slice thickness is uniform in this range for half of the stacks, else 1.
        max_shift: the stack lies off its centred place by a length uniform up to this share of `T_hr`, either way.
        max_gain: slices differ in gain by a standard deviation uniform up to this share, for half of the stacks; for
            half of those it alternates between odd and even slices, as interleaved acquisitions do.
        max_noise: standard deviation of the Rician noise in the thick slices, uniform up to this share of the intensity
            range, for half of the stacks.

    Raises:
        InputError: if `ceta_gap` is no length.
    """

    def __init__(
        self,
        keys: KeysCollection,
        max_thickness: float,
        ceta_gap: float = 1.0,
        profiles: Sequence[Profile] = (SLR,),
        spacing_ratio: tuple[float, float] = (1.0, 1.0),
        max_shift: float = 0.0,
        max_gain: float = 0.0,
        max_noise: float = 0.0,
    ):
        MapTransform.__init__(self, keys)
        RandomizableTransform.__init__(self, prob=1.0)
        if not isinstance(ceta_gap, int | float) or not ceta_gap >= 0:
            raise InputError(f"ceta_gap is {ceta_gap!r}: expected millimetres, or 0 for no pairs. Set --ceta_gap.")
        self.max_thickness = max_thickness
        self.ceta_gap = ceta_gap
        self.profiles = profiles
        self.spacing_ratio = spacing_ratio
        self.max_shift = max_shift
        self.max_gain = max_gain
        self.max_noise = max_noise

    def _half_of_the_time(self, largest: float) -> float:
        """Uniform in [0, largest], or 0."""
        value = float(self.R.uniform(0, largest))
        return value if self.R.random_sample() < 0.5 else 0.0

    def randomize(self, target: float) -> None:  # type: ignore[override]  # MONAI declares Any
        """Draws how the stack is acquired."""
        # uniform on the half-open interval (T_hr, max]: 1 - [0, 1) is (0, 1]
        self._thickness = target + (1 - float(self.R.random_sample())) * (self.max_thickness - target)
        ratio = float(self.R.uniform(*self.spacing_ratio))
        self._ratio = ratio if self.R.random_sample() < 0.5 else 1.0
        self._profile = self.profiles[self.R.randint(len(self.profiles))]
        self._shift = float(self.R.uniform(-1, 1)) * self.max_shift * target
        self._gain = self._half_of_the_time(self.max_gain)
        self._interleaved = bool(self.R.random_sample() < 0.5)
        self._noise = self._half_of_the_time(self.max_noise)
        self._seed = int(self.R.randint(2**31))  # of the gains and the noise, whose number depends on the slices'

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        label, target = data[key], data["spacing"][0]
        self.randomize(target)
        thick = proximal_thick = self._thickness
        generator = np.random.default_rng(self._seed)
        image = proximal = self._degrade(label, target, thick, generator)
        if self.ceta_gap > 0 and thick - self.ceta_gap > target:
            proximal_thick = thick - self.ceta_gap
            proximal = self._degrade(label, target, proximal_thick, generator)
        return {
            key: label,
            "image": image,
            "thickness": torch.tensor([thick, target]),
            "proximal": proximal,
            "proximal_thickness": torch.tensor([proximal_thick, target]),
        }

    def _degrade(self, plane: Tensor, target: float, thickness: float, generator: np.random.Generator) -> Tensor:
        spacing = max(self._ratio * thickness, target)  # slices nearer than the target would leave nothing to do
        thick = acquire(plane, 1, target, thickness, spacing, self._profile, self._shift)
        if self._gain:
            gain = generator.normal(size=thick.shape[1])
            if self._interleaved:
                gain = np.where(np.arange(len(gain)) % 2, gain[:1], -gain[:1])
            thick = thick * torch.from_numpy(1 + self._gain * gain).float()[:, None]
        if self._noise:
            real, imaginary = torch.from_numpy(generator.normal(scale=self._noise, size=(2, *thick.shape))).float()
            thick = torch.hypot(thick + real, imaginary)
        return regrid_nearest(thick, 1, spacing, plane.shape[1], target, self._shift)


class Acquired(MapTransform):
    """Simulates one acquisition of a sharp volume, back on its own grid: the paired input of validation.

    Adds `image`, whose meta data hold the facts of `Acquisitiond`.

    Args:
        keys: one key, a `(1, X, Y, Z)` volume with an affine.
        slice_thickness: in mm.
        axis: index into the item's `sharp_axes`, which is the slice axis.
        slice_spacing: in mm; null for no gap.
        profile: of the slices, see `slice_profile.slice_profile`.
    """

    def __init__(
        self,
        keys: KeysCollection,
        slice_thickness: float,
        axis: int = 0,
        slice_spacing: float | None = None,
        profile: Profile = SLR,
    ):
        super().__init__(keys)
        self.slice_thickness = slice_thickness
        self.axis = axis
        self.slice_spacing = slice_thickness if slice_spacing is None else slice_spacing
        self.profile = profile

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        (key,) = self.keys
        volume = data[key]
        axis = data["sharp_axes"][self.axis]
        target = float(grid.voxel_spacing(volume.affine)[axis])
        image = degrade(volume.as_tensor(), 1 + axis, target, self.slice_thickness, self.slice_spacing, self.profile)
        facts = {
            "slice_axis": axis,
            "slice_spacing": self.slice_spacing,
            "slice_thickness": self.slice_thickness,
            "target_thickness": target,
        }
        meta = {name: value for name, value in volume.meta.items() if name != "affine"} | facts
        return {**data, "image": MetaTensor(image, affine=volume.affine, meta=meta)}
