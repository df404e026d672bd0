"""What a person looks at: the page of a rebuilt scan."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from monai.data import MetaTensor
from nibabel.orientations import apply_orientation, io_orientation
from PIL import Image
from torch import Tensor

from . import spectra
from .acquisition import GUESS, Acquisition
from .files import whole_file
from .grid import voxel_spacing

WIDTH = 420  # pixels on the screen of the widest view

# What each plane of a volume in RAS+ order shows: normal axis, its name, letters at left, right, top and bottom. The
# patient's right is on the left, as radiologists hang films.
VIEWS = ((2, "axial", "RLAP"), (1, "coronal", "RLSI"), (0, "sagittal", "APSI"))


def _ras(volume: MetaTensor) -> tuple[np.ndarray, np.ndarray]:
    """The volume `(X, Y, Z)` in the array order closest to RAS+, and its voxel edges in mm."""
    orientation = io_orientation(np.asarray(volume.affine))
    array = apply_orientation(np.asarray(volume.as_tensor()), orientation)
    spacing = voxel_spacing(volume.affine)
    return array, spacing[np.argsort(orientation[:, 0])]


def _plane(
    array: np.ndarray, spacing: np.ndarray, normal: int, offset: float = 0.0
) -> tuple[np.ndarray, tuple[float, float]]:
    """The plane nearest to `offset` mm from the centre, as it hangs, first row on top; its width and height in mm."""
    index = round((array.shape[normal] - 1) / 2 + offset / spacing[normal])
    plane = array.take(min(max(index, 0), array.shape[normal] - 1), axis=normal).T[::-1]
    height, width = (n * s for n, s in zip(plane.shape, np.delete(spacing, normal)[::-1]))
    return plane[:, ::-1], (width, height)  # right and front come to the left


def _png(plane: np.ndarray, low: float, high: float) -> str:
    """A grey picture as a data URL."""
    grey = np.clip((plane - low) / max(high - low, 1e-12), 0, 1) * 255
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(grey.astype(np.uint8))).save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _views(measured: MetaTensor, result: MetaTensor, window: tuple[float, float]) -> list[dict[str, Any]]:
    """Three planes through the centre, which both grids share, before and after; sizes in pixels of the screen."""
    before, after = _ras(measured), _ras(result)
    scale = WIDTH / max(n * s for n, s in zip(after[0].shape, after[1]))
    views = []
    for normal, name, letters in VIEWS:
        count = before[0].shape[normal]
        offset = (count // 2 - (count - 1) / 2) * before[1][normal]  # where a measured slice lies: both show one place
        (old, _), (new, (width, height)) = (_plane(*volume, normal, offset) for volume in (before, after))
        pictures = {"measured": _png(old, *window), "rebuilt": _png(new, *window)}
        views.append({"name": name, "letters": letters, "width": scale * width, "height": scale * height, **pictures})
    return views


def _differences(difference: MetaTensor, window: tuple[float, float]) -> list[dict[str, Any]]:
    """The map of what the rebuilt scan, acquired again, has more or less than the measurement."""
    array, spacing = _ras(difference)
    largest = (window[1] - window[0]) / 10
    scale = WIDTH / 1.6 / max(n * s for n, s in zip(array.shape, spacing))
    views = []
    for normal, name, _ in VIEWS:
        plane, (width, height) = _plane(array, spacing, normal)
        picture = _png(plane, -largest, largest)
        views.append({"name": name, "picture": picture, "width": scale * width, "height": scale * height})
    return views


def _spectrum(measured: MetaTensor, result: MetaTensor, axis: int) -> str:
    """Power through the slices before and after, and within them, as an inline SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    edges = [voxel_spacing(volume.affine) for volume in (measured, result)]
    curves = {
        "through the slices, measured": spectra.power_density(measured.as_tensor(), axis, edges[0][axis]),
        "through the slices, rebuilt": spectra.power_density(result.as_tensor(), axis, edges[1][axis]),
    }
    for other in (a for a in range(3) if a != axis):
        curves[f"within the slices, axis {other}"] = spectra.power_density(result.as_tensor(), other, edges[1][other])
    figure, panel = plt.subplots(figsize=(7, 3.2))
    for (name, (frequencies, power)), style in zip(curves.items(), ("k--", "C1-", "C0-", "C2-")):
        panel.plot(frequencies[1:], 10 * np.log10(power[1:].clamp(min=1e-12)), style, lw=1.2, label=name)
    panel.set(xlabel="cycles / mm", ylabel="power density (dB)", xlim=(0, 1 / (2 * min(edges[1]))))
    panel.legend(fontsize=8)
    figure.tight_layout()
    stream = io.StringIO()
    figure.savefig(stream, format="svg")
    plt.close(figure)
    return stream.getvalue()[stream.getvalue().index("<svg") :]


def _geometry(name: str, volume: MetaTensor) -> tuple[str, str, str, str]:
    """Name, voxels, voxel edges in mm, centre in mm."""
    centre = np.asarray(volume.affine) @ [*(np.array(volume.shape) - 1) / 2, 1]
    return (
        name,
        " x ".join(str(n) for n in volume.shape),
        " x ".join(f"{edge:.4g}" for edge in voxel_spacing(volume.affine)),
        ", ".join(f"{c:.2f}" for c in centre[:3]),
    )


def write_page(
    path: str | os.PathLike, measured: MetaTensor, result: MetaTensor, difference: Tensor, record: Mapping[str, Any]
) -> None:
    """Writes one self-contained HTML file about a rebuilt scan, from `page.html`; it needs no network.

    Args:
        path: file to write.
        measured: `(X, Y, Z)` thick slices with their affine and their acquisition.
        result: `(X, Y, Z)` on the fine grid with its affine, in the same units.
        difference: `(X, Y, Z)`, the map of `consistency.difference`.
        record: of the result, see `cohort`.
    """
    acquisition = Acquisition.of(measured)
    low, high = np.percentile(np.asarray(measured.as_tensor()), (0.5, 99.7))
    window = (float(low), float(high))
    provenance = {"scan": record["Sources"][0], "weights": record["WeightsSHA256"], "version": record["Version"]}
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    content = templates.get_template("page.html").render(
        name=Path(path).name.removesuffix(".html"),
        record=record,
        guess=None if acquisition.at_target else GUESS,
        window=window,
        geometry=[_geometry("measured", measured), _geometry("rebuilt", result)],
        views=_views(measured, result, window),
        spectrum=_spectrum(measured, result, acquisition.slice_axis),
        differences=_differences(MetaTensor(difference, affine=measured.affine), window),
        provenance=[*provenance.items(), *record["Settings"].items()],
    )
    with whole_file(path) as partial:
        partial.write_text(content, encoding="utf-8")
