"""Pictures of one volume by several methods: reformats, and gradient maps along the slice axis (Secs. S13, S15)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nibabel as nib
import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from ..evaluate.paired import central_slab, read_volume
from ..files import stem, whole_file
from ..pages.planes import cut, hang
from ..stack import grid
from ..stack.acquisition import Acquisition
from ..stack.intensity import intensity_range
from ..train.simulation import simulate
from .trained_variants import Bench, Spec, methods_of


def rebuilt(
    bench: Bench, spec: Spec, thickness: float, index: int, slab: int | None
) -> tuple[dict[str, Tensor], int, float]:
    """One held-out volume by each method of an experiment, or by each of its variants, and the truth.

    Each result is kept as a NIfTI file in `OUTPUT_DIR/volumes`, and made once.

    Args:
        bench: what experiments share; variants are trained.
        spec: `methods`, with the shipped weights, or `variants`.
        thickness: of the slices, mm, along the first sharp axis.
        index: of the volume.
        slab: see `evaluation.central_slab`.

    Returns:
        Name -> `(X, Y, Z)` in RAS+ order; the slice axis there; the truth's brightest tissue.
    """
    item = bench.volumes[index]
    axis = item["sharp_axes"][0]
    sharp = central_slab(read_volume(item["label"]), axis, slab)
    spacing = float(grid.voxel_spacing(sharp.affine)[axis])
    acquisition = Acquisition.of_truth(axis, sharp.shape[1 + axis], spacing, thickness)
    results = {}
    for name, variant, _, run in (told for told in bench.variants(spec) if told[2] == bench.seed):
        made, config = bench.evaluation_of(bench.weights if run is None else bench.exported(run), variant, spec)
        for method in methods_of(variant, spec):
            label = name if "variants" in spec and method == methods_of(variant, spec)[-1] else method
            file = f"{index}_{stem(Path(item['label']).name)}_{method.replace(' ', '-')}_{thickness:g}mm"
            path = bench.output / "volumes" / made.name / f"{file}_{slab or 'whole'}.nii.gz"
            if not path.is_file():
                volume = config.get_parsed_content(f"methods#{method}")(simulate(sharp, acquisition), acquisition)
                with whole_file(path) as partial:
                    nib.save(nib.Nifti1Image(volume[0].numpy(), sharp.affine.numpy()), partial)
            results[label] = read_volume(path).as_tensor()[0].float()
    results["truth"] = sharp.as_tensor()[0].float()
    axes, flipped = grid.canonical(sharp.affine.numpy())
    turned = {name: volume.permute(axes).flip(flipped) for name, volume in results.items()}
    return turned, axes.index(axis), intensity_range(results["truth"]).high


def _normal(volume: Tensor, axis: int) -> int:
    """Of the planes that contain the slice axis and are seen: the shorter of the other two axes."""
    return min((a for a in range(3) if a != axis), key=lambda a: volume.shape[a])


def _panels(lines: Mapping[str, Mapping[str, Tensor]], maps: Sequence[str], tops: Sequence[float]) -> Figure:
    """Row -> column -> plane `(H, W)`; each row has a colour map and a largest value."""
    columns = list(next(iter(lines.values())))
    figure = Figure(figsize=(2.2 * len(columns), 2.4 * len(lines)), layout="constrained")
    panels = figure.subplots(len(lines), len(columns), squeeze=False)
    for line, row, colours, top in zip(panels, lines, maps, tops):
        for panel, column in zip(line, columns):
            least = 0 if colours == "gray" else -top
            panel.imshow(hang(lines[row][column]), cmap=colours, vmin=least, vmax=top)
            panel.set(xticks=[], yticks=[])
        line[0].set_ylabel(row)
    for panel, column in zip(panels[0], columns):
        panel.set_title(column, fontsize=9)
    return figure


def reformats(
    rows: pd.DataFrame,
    bench: Callable[[], Bench],
    methods: Sequence[str],
    thickness: float,
    index: int = 0,
    slab: int | None = None,
) -> Figure:
    """The middle sagittal, coronal and axial plane of one volume by each method, and of the truth (Sec. S15).

    Args:
        rows: of the experiment; the picture does not need them.
        bench: makes what experiments share.
        methods: of `configs/evaluate.yaml`; the others as in `rebuilt`.
        thickness: mm.
        index: of the volume.
        slab: slices.
    """
    volumes, _, top = rebuilt(bench(), {"methods": methods}, thickness, index, slab)
    lines = {
        name: {method: volume.select(normal, volume.shape[normal] // 2) for method, volume in volumes.items()}
        for normal, name in enumerate(("sagittal", "coronal", "axial"))
    }
    return _panels(lines, ["gray"] * 3, [top] * 3)


def gradients(
    rows: pd.DataFrame,
    bench: Callable[[], Bench],
    methods: Sequence[str],
    thickness: float,
    index: int = 0,
    slab: int | None = None,
) -> Figure:
    """A plane along the slice axis, its gradient along that axis, and the gradient's error, by method (Sec. S13).

    Args:
        rows: of the experiment; the picture does not need them.
        bench: makes what experiments share.
        methods: of `configs/evaluate.yaml`; the others as in `rebuilt`.
        thickness: mm.
        index: of the volume.
        slab: slices.
    """
    volumes, axis, top = rebuilt(bench(), {"methods": methods}, thickness, index, slab)
    normal = _normal(volumes["truth"], axis)
    planes = {name: volume.select(normal, volume.shape[normal] // 2) for name, volume in volumes.items()}
    slopes = {name: plane.diff(dim=axis - (axis > normal)) for name, plane in planes.items()}
    errors = {name: slope - slopes["truth"] for name, slope in slopes.items()}
    lines = {"plane": planes, "gradient": slopes, "its error": errors}
    return _panels(lines, ["gray", "RdBu_r", "RdBu_r"], [top, top / 4, top / 4])


def gallery(
    rows: pd.DataFrame,
    bench: Callable[[], Bench],
    variants: Mapping[str, Spec],
    thickness: float,
    index: int = 0,
    slab: int | None = None,
    columns: int = 5,
) -> Figure:
    """One plane along the slice axis by each variant of an experiment, and of the truth.

    Args:
        rows: of the experiment; the picture does not need them.
        bench: makes what experiments share.
        variants: of the experiment; the others as in `rebuilt`.
        thickness: mm.
        index: of the volume.
        slab: slices.
        columns: pictures beside each other.
    """
    volumes, axis, top = rebuilt(bench(), {"variants": variants}, thickness, index, slab)
    normal = _normal(volumes["truth"], axis)
    figure = Figure(figsize=(2.4 * columns, 2.9 * math.ceil(len(volumes) / columns)), layout="constrained")
    panels = figure.subplots(math.ceil(len(volumes) / columns), columns, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, (name, volume) in zip(panels, volumes.items()):
        panel.imshow(cut(volume, normal, volume.shape[normal] // 2), cmap="gray", vmin=0, vmax=top)
        panel.set_title(name, fontsize=9)
    return figure
