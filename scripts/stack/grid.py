"""The geometry of a stack of slices: axes, counts, positions, the fine grid and its affine (docs/geometry.md).

Lengths are in mm. Both grids, thick and fine, are centred on the same point of the slice axis, whatever their ratio.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from nibabel.orientations import io_orientation
from numpy.typing import ArrayLike
from torch import Tensor

from ..errors import InputError

MIN_SLICES = 3  # a slice and its two neighbours: less has no through-plane structure to work with
MAX_SPACING = 20.0  # mm; no slices of a head lie farther apart
PLANES = ("sagittal", "coronal", "axial")  # across the patient's x, y and z
SIDES = ("LR", "PA", "IS")  # where the patient's x, y and z come from and go to
SAME_PLACE = 0.05  # mm between positions that count as rounding of the header
SPACING_TOLERANCE = 0.01  # of the spacing: how far a slice may lie off the even grid
MAX_SHEAR = 0.1  # degrees off orthogonal that count as rounding of the header, not as shear


def voxel_spacing(affine: ArrayLike) -> np.ndarray:
    """Lengths of the three voxel edges, `(3,)` in mm, from a `(4, 4)` affine."""
    return np.linalg.norm(np.asarray(affine, dtype=float)[:3, :3], axis=0)


def shear_angle(affine: np.ndarray) -> float:
    """Largest deviation of two voxel axes from a right angle, in degrees."""
    columns = np.asarray(affine, dtype=float)[:3, :3] / voxel_spacing(affine)
    cosines = (columns.T @ columns)[np.triu_indices(3, k=1)]
    return float(np.degrees(np.arcsin(np.clip(np.abs(cosines), 0, 1).max())))


def is_flat(affine: np.ndarray) -> bool:
    """Whether an affine brings voxels onto a plane, or nowhere."""
    return not np.isfinite(affine).all() or abs(np.linalg.det(affine[:3, :3])) < 1e-9


def check_orthogonal(affine: np.ndarray, name: str) -> None:
    """Refuses an affine that is no orthogonal grid of a head."""
    if not np.isfinite(affine).all():
        raise InputError(f"{name} has NaN or infinity in its affine: expected numbers. Mend its header.")
    spacing = voxel_spacing(affine)
    if not ((spacing > 0) & (spacing <= MAX_SPACING)).all():
        edges = ", ".join(f"{edge:.4g}" for edge in spacing)
        raise InputError(
            f"{name} has voxel edges of {edges} mm: expected positive lengths of at most {MAX_SPACING} mm. Mend its "
            "header."
        )
    if (shear := shear_angle(affine)) > MAX_SHEAR:
        raise InputError(
            f"{name}: affine is sheared, {shear:.2f} degrees off orthogonal, at most {MAX_SHEAR} is supported. "
            "Resample to an orthogonal grid first."
        )


def centre(affine: ArrayLike, shape: Sequence[int]) -> np.ndarray:
    """The middle of a volume, `(3,)` in mm."""
    return (np.asarray(affine) @ [*((np.array(shape) - 1) / 2), 1])[:3]


class Turn(NamedTuple):
    """The way of a volume's array into the order that is nearest to RAS+, by transposing and flipping, and back.

    Attributes:
        axes: the array axes that become X, Y and Z.
        flipped: the axes among X, Y and Z that are then flipped.
    """

    axes: tuple[int, ...]
    flipped: tuple[int, ...]

    @classmethod
    def of(cls, affine: ArrayLike) -> Self:
        """The turn of a volume with this affine, `(4, 4)`, voxel -> mm."""
        orientation = io_orientation(np.asarray(affine, dtype=float))
        axes = tuple(int(a) for a in np.argsort(orientation[:, 0]))
        return cls(axes, tuple(k for k, a in enumerate(axes) if orientation[a, 1] < 0))

    def into(self, volume: Tensor) -> Tensor:
        """A volume, three dimensions as it is stored, in RAS+ order."""
        return volume.permute(self.axes).flip(self.flipped).contiguous()

    def back(self, volume: Tensor) -> Tensor:
        """Undoes `into`."""
        return volume.flip(self.flipped).permute([self.axes.index(a) for a in range(3)]).contiguous()


def plane_name(affine: ArrayLike, axis: int) -> str:
    """The name of slices along an array axis: axial, coronal or sagittal, whichever is nearest."""
    return PLANES[Turn.of(affine).axes.index(axis)]


def slice_axis(spacing: ArrayLike) -> int:
    """Array axis along which the slices are stacked: the one with the largest spacing, the last of equals."""
    edges = np.round(np.asarray(spacing), 4)  # headers round
    return int(len(edges) - 1 - np.argmax(edges[::-1]))


def fine_count(thick_count: int, slice_spacing: float, target_spacing: float) -> int:
    """Number of fine slices that cover the thick stack, to the nearest one."""
    return max(1, round(thick_count * slice_spacing / target_spacing))


def thick_count(fine_count: int, fine_spacing: float, slice_spacing: float) -> int:
    """Number of thick slices that cover the fine grid."""
    return max(1, int(np.ceil(fine_count * fine_spacing / slice_spacing - 1e-6)))


def centred_positions(count: int, spacing: float, other_count: int, other_spacing: float) -> np.ndarray:
    """Where the slices of one grid lie, `(count,)`, in slices from the first centre of another grid; spacings in mm."""
    return (np.arange(count) - (count - 1) / 2) * (spacing / other_spacing) + (other_count - 1) / 2


def respaced_affine(affine: np.ndarray, axis: int, count: int, new_count: int, new_spacing: float) -> np.ndarray:
    """Affine `(4, 4)`, voxel -> mm, with slices `new_spacing` mm apart along an axis; axes and centre stay."""
    respaced = np.array(affine, dtype=float)
    edge = respaced[:3, axis].copy()
    step = edge / np.linalg.norm(edge) * new_spacing
    respaced[:3, axis] = step
    respaced[:3, 3] += edge * (count - 1) / 2 - step * (new_count - 1) / 2
    return respaced


def meta_without_affine(volume: Any) -> dict[str, Any]:
    """The meta data of a `MetaTensor` for a volume on another grid."""
    return {name: value for name, value in volume.meta.items() if name != "affine"}


def name_of(volume: Any, default: str) -> str:
    """The name of a volume's file, as the reader or a host wrote it into the meta data."""
    return str(getattr(volume, "meta", {}).get("filename_or_obj", default))


def check_pair(prediction: Tensor, truth: Tensor) -> None:
    """Refuses volumes that do not lie on one grid."""
    if prediction.shape != truth.shape or truth.dim() != 3:
        raise ValueError(
            f"prediction is {tuple(prediction.shape)}, truth {tuple(truth.shape)}: expected two volumes (X, Y, Z) of "
            "one shape. Resample the prediction to the truth's grid first."
        )
