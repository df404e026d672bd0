"""Pictures of one volume by several methods: reformats, and gradient maps along the slice axis (Secs. S13, S15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nibabel as nib
import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from . import grid
from .acquisition import Acquisition
from .evaluation import central_slab, read_volume
from .files import sha256, stem, whole_file
from .intensity import intensity_range
from .simulation import simulate
from .stage import data_key
from .variants import Bench, key


def rebuilt(
    bench: Bench, methods: Sequence[str], thickness: float, index: int, slab: int | None
) -> tuple[dict[str, Tensor], int, float]:
    """One held-out volume, rebuilt by methods of `configs/evaluate.yaml` with the shipped weights, and its truth.

    Each result is kept as a NIfTI file in `OUTPUT_DIR/volumes`, and made once.

    Args:
        bench: what experiments share.
        methods: names.
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
    config = bench.config("evaluate.yaml", [], {**bench.evaluation, "ckpt_path": str(bench.weights)})
    made_by = [sha256([bench.weights]), bench.evaluation, list(bench.files), bench.size]
    folder = bench.output / "volumes" / f"{stem(Path(item['label']).name)}-{key(made_by, data_key([item], []))}"
    results = {}
    for name in methods:
        path = folder / f"{name.replace(' ', '-')}_{thickness:g}mm_{slab or 'whole'}.nii.gz"
        if not path.is_file():
            volume = config.get_parsed_content(f"methods#{name}")(simulate(sharp, acquisition), acquisition)
            with whole_file(path) as partial:
                nib.save(nib.Nifti1Image(volume[0].numpy(), sharp.affine.numpy()), partial)
        results[name] = read_volume(path).as_tensor()[0].float()
    results["truth"] = sharp.as_tensor()[0].float()
    axes, flipped = grid.canonical(sharp.affine.numpy())
    turned = {name: volume.permute(axes).flip(flipped) for name, volume in results.items()}
    return turned, axes.index(axis), intensity_range(results["truth"]).high


def _panels(lines: Mapping[str, Mapping[str, Tensor]], maps: Sequence[str], tops: Sequence[float]) -> Figure:
    """Row -> column -> plane `(H, W)`; each row has a colour map and a largest value."""
    columns = list(next(iter(lines.values())))
    figure = Figure(figsize=(2.2 * len(columns), 2.4 * len(lines)), layout="constrained")
    panels = figure.subplots(len(lines), len(columns), squeeze=False)
    for line, row, colours, top in zip(panels, lines, maps, tops):
        for panel, column in zip(line, columns):
            least = 0 if colours == "gray" else -top
            panel.imshow(lines[row][column].rot90().numpy(), cmap=colours, vmin=least, vmax=top)
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
        methods: see `rebuilt`, as the others.
        thickness: mm.
        index: of the volume.
        slab: slices.
    """
    volumes, _, top = rebuilt(bench(), methods, thickness, index, slab)
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
        methods: see `rebuilt`, as the others.
        thickness: mm.
        index: of the volume.
        slab: slices.
    """
    volumes, axis, top = rebuilt(bench(), methods, thickness, index, slab)
    normal = min((a for a in range(3) if a != axis), key=lambda a: volumes["truth"].shape[a])
    planes = {name: volume.select(normal, volume.shape[normal] // 2) for name, volume in volumes.items()}
    slopes = {name: plane.diff(dim=axis - (axis > normal)) for name, plane in planes.items()}
    errors = {name: slope - slopes["truth"] for name, slope in slopes.items()}
    lines = {"plane": planes, "gradient": slopes, "its error": errors}
    return _panels(lines, ["gray", "RdBu_r", "RdBu_r"], [top, top / 4, top / 4])
