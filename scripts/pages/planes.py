"""Planes of a volume as radiologists hang them: the patient's right, or front, on the left, the head on top."""

import base64
import io

import nibabel as nib
import numpy as np
from monai.data import MetaTensor
from PIL import Image
from torch import Tensor

from ..stack.grid import SIDES, voxel_spacing
from ..stack.intensity import IntensityRange, intensity_range

OBLIQUE = 0.25  # cosine from which a second or third letter is named, about 15 degrees
# Name of each plane of a volume in RAS+ order, and the axes normal to it, across it and upwards. The last two grow to
# the left and to the top.
VIEWS = (("axial", 2, 0, 1), ("coronal", 1, 0, 2), ("sagittal", 0, 1, 2))


def ras(volume: MetaTensor) -> tuple[np.ndarray, np.ndarray]:
    """The volume `(X, Y, Z)` in the array order closest to RAS+, and its affine `(4, 4)`, voxel -> mm."""
    image = nib.Nifti1Image(np.asarray(volume.as_tensor()), np.asarray(volume.affine, dtype=float))
    turned = nib.as_closest_canonical(image)
    return np.ascontiguousarray(turned.dataobj), np.array(turned.affine)


def sides(affine: np.ndarray) -> list[tuple[str, str]]:
    """The patient's sides where each axis of a volume in RAS+ order begins and ends: `[("L", "R"), ("P", "A"), ...]`.

    An oblique axis has more letters: `RA` is right and in front (PS3.3, C.7.6.1.1.1). `nibabel.aff2axcodes` names the
    first letter alone.
    """
    names = []
    for column in (affine[:3, :3] / voxel_spacing(affine)).T:
        order = [k for k in np.argsort(-np.abs(column)) if abs(column[k]) >= OBLIQUE]
        ends = ["".join(SIDES[k][int((column[k] > 0) == end)] for k in order) for end in (False, True)]
        names.append((ends[0], ends[1]))
    return names


def beside_midline(count: int) -> int:
    """Which of `count` planes shows most of a head: one a little off the middle, which is behind the face as well."""
    return 2 * count // 5


def hang(plane: np.ndarray | Tensor) -> np.ndarray:
    """A plane `(across, up)` of a volume in RAS+ order as a picture `(rows, columns)`, first row on top."""
    return np.asarray(plane).T[::-1, ::-1]


def central(plane: np.ndarray | Tensor, edge: int) -> np.ndarray:
    """The middle of a plane, of so many pixels along each axis at most."""
    array = np.asarray(plane)
    return array[tuple(slice(max(n - edge, 0) // 2, max(n - edge, 0) // 2 + edge) for n in array.shape)]


def cut(volume: np.ndarray | Tensor, normal: int, index: int) -> np.ndarray:
    """A plane of a volume `(X, Y, Z)` in RAS+ order as it hangs; beyond the ends, the first or last one is taken."""
    return hang(np.asarray(volume).take(min(max(index, 0), volume.shape[normal] - 1), axis=normal))


def window(volume: Tensor, tissue_range: IntensityRange | None = None) -> tuple[float, float]:
    """Intensities of a scan that are drawn black and white; hot spots do not count. The range may be known."""
    low, high, _ = intensity_range(volume) if tissue_range is None else tissue_range
    bottom, top = np.percentile(np.asarray(volume.detach().cpu()), (0.5, 99)).clip(low, high).tolist()
    return bottom, top


def shades(plane: np.ndarray, low: float, high: float) -> np.ndarray:
    """Intensities from `low` to `high` as 0 to 1, clipped."""
    return np.clip((plane - low) / max(high - low, 1e-12), 0, 1)


def png(shades: np.ndarray) -> str:
    """A grey picture of shades from 0 to 1 as a data URL."""
    stream = io.BytesIO()
    Image.fromarray(np.rint(shades * 255).astype(np.uint8)).save(stream, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
