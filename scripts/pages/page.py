"""The page of a rebuilt scan: one HTML file on the disk, with its volumes to scroll through.

`page.js` shows them. NiiVue does not: its script is 2.3 MB, it needs WebGL 2, it has one volume to a canvas, and it
draws no difference of two.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from monai.data import MetaTensor

from ..files import whole_file
from ..rebuild.rebuilt import Rebuilt
from ..stack import spectra
from ..stack.grid import centre, voxel_spacing
from ..stack.settle import GUESS
from ..stack.slices import Slices
from . import planes, viewer
from .templates import TEMPLATES


def _pictures(name: str, volume: MetaTensor, place: MetaTensor, low: float, high: float) -> list[dict[str, Any]]:
    """Three planes of a volume as the template draws them, each with its size in mm and the patient's sides.

    They lie where the middle slices of `place` lie, a volume with the same centre.
    """
    array, affine = planes.ras(volume)
    slices, slice_affine = planes.ras(place)
    spacing, slice_spacing, sides = voxel_spacing(affine), voxel_spacing(slice_affine), planes.sides(affine)
    pictures: list[dict[str, Any]] = []
    for view, normal, across, up in planes.VIEWS:
        count = slices.shape[normal]
        offset = (count // 2 - (count - 1) / 2) * slice_spacing[normal]  # mm from the centre
        plane = planes.cut(array, normal, round((array.shape[normal] - 1) / 2 + offset / spacing[normal]))
        pictures.append(
            {
                "name": f"{view}, {name}",
                "source": planes.png(planes.shades(plane, low, high)),
                "width": plane.shape[1] * spacing[across],
                "height": plane.shape[0] * spacing[up],
                "sides": [sides[across][1], sides[across][0], sides[up][1], sides[up][0]],  # left, right, top, bottom
            }
        )
    return pictures


def _stack(name: str, slices: Slices) -> list[dict[str, Any]]:
    """Three planes of measured slices."""
    volume = MetaTensor(slices.array, affine=slices.affine)
    return _pictures(name, volume, volume, *planes.window(slices.array, slices.tissue_range))


def _spectrum(measured: MetaTensor, result: MetaTensor, axis: int) -> dict[str, Any]:
    """Power spectra through the slices, measured and rebuilt, and within the slices, as the template draws them.

    The curves have points in a unit square, "x,y x,y ...", y downwards. Its sides are at `frequency`, the largest, in
    cycles/mm, and at `low` and `high`, in dB.
    """
    edges = [voxel_spacing(volume.affine) for volume in (measured, result)]
    curves = {
        "through the slices, measured": spectra.power_density(measured.as_tensor(), axis, edges[0][axis]),
        "through the slices, rebuilt": spectra.power_density(result.as_tensor(), axis, edges[1][axis]),
    }
    for other in (a for a in range(3) if a != axis):
        curves[f"within the slices, axis {other}"] = spectra.power_density(result.as_tensor(), other, edges[1][other])
    levels = {
        name: (f[1:].numpy(), 10 * power[1:].clamp(min=1e-12).log10().numpy()) for name, (f, power) in curves.items()
    }
    every = np.concatenate([level for _, level in levels.values()])
    low, high = 10 * np.floor(every.min() / 10), 10 * np.ceil(every.max() / 10 + 0.01)
    frequency = 1 / (2 * min(edges[1]))
    points = {
        name: " ".join(f"{x / frequency:.4f},{(high - y) / (high - low):.4f}" for x, y in zip(*curve))
        for name, curve in levels.items()
    }
    return {"curves": points, "frequency": float(frequency), "low": float(low), "high": float(high)}


def _geometry(name: str, volume: MetaTensor) -> tuple[str, str, str, str]:
    """Name, voxels, voxel edges in mm, centre in mm."""
    return (
        name,
        " x ".join(str(n) for n in volume.shape),
        " x ".join(f"{edge:.4g}" for edge in voxel_spacing(volume.affine)),
        ", ".join(f"{c:.2f}" for c in centre(volume.affine, volume.shape)),
    )


def write_page(
    path: str | os.PathLike,
    rebuilt: Rebuilt,
    record: Mapping[str, Any],
    error: MetaTensor | None = None,
    others: Sequence[Slices] = (),
) -> None:
    """Writes the page of a rebuilt scan from `page.html` and `page.js`: one file that needs no other and no network.

    Args:
        error: `(X, Y, Z)`, the result's error map.
        others: further stacks that the result was made of.
    """
    slices, result = rebuilt.slices, rebuilt.volume
    acquisition, measured = slices.acquisition, MetaTensor(slices.array, affine=slices.affine)
    guide: Any = None if rebuilt.guide is None else rebuilt.guide.volume[0].nan_to_num(-1.0)
    marks = [odd["Place"] for stack in record.get("Stacks", ()) for odd in stack.get("Disputes", ())]
    borders = record.get("Guide", {}).get("Borders", {})
    facts, volumes = viewer.pack(slices, result, error=error, marks=marks, borders=borders)
    low, high = planes.window(slices.array, slices.tissue_range)
    largest = (high - low) / 10
    series = slices.meta.get("series")  # DICOM
    names = [Path(source).name for source in record["Sources"]]
    settings = {name: "not set" if value is None else value for name, value in record["Settings"].items()}
    ran = {"network": record["Network"]["Description"], "weights": record["WeightsSHA256"] or "none of a file"}
    provenance = {**ran, "version": record["Version"], **settings}
    identity = {"file": names[0]}
    if series is not None:
        identity = {**series, "date": re.sub(r"^(\d{4})\.?(\d\d)\.?(\d\d)$", r"\1-\2-\3", series["date"])}

    given = [*record.get("Stacks", ()), *([record["Guide"]] if "Guide" in record else [])]
    stacks = sorted((one["Name"] for one in given), key=len, reverse=True)  # paths, or series

    def shown(text: str) -> str:
        for name in stacks:
            text = text.replace(name, Path(name).name)
        return text

    content = TEMPLATES.get_template("page.html").render(
        name=Path(path).name.removesuffix(".html"),
        identity={name: value for name, value in identity.items() if value},
        record=record,
        shown=shown,
        guess=None if acquisition.at_target else GUESS,
        window=(low, high),
        geometry=[_geometry("measured", measured), _geometry("rebuilt", result)],
        viewer={**facts, "window": (low, high)},
        volumes=volumes,
        middle_planes=[
            _stack("measured", slices),
            *(_stack(f"stack {k}", one) for k, one in enumerate(others, 2)),
            _pictures("rebuilt", result, measured, low, high),
            *([] if guide is None else [_pictures("guide", guide, measured, -1.0, 1.0)]),
        ],
        spectrum=_spectrum(measured, result, acquisition.slice_axis),
        differences=_pictures(
            "difference", MetaTensor(rebuilt.difference, affine=measured.affine), measured, -largest, largest
        ),
        provenance=provenance.items(),
    )
    with whole_file(path) as partial:
        partial.write_text(content, encoding="utf-8", errors="backslashreplace")  # names need not be UTF-8
