"""Pictures of the first held-out volume by several methods (Secs. S13, S15).

Each is called with the rows of its experiment, which it does not need.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import nibabel as nib
import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from ..evaluate.paired import volume_of
from ..files import stem, whole_file
from ..pages.planes import hang
from ..stack import grid
from ..stack.acquisition import Acquisition
from ..stack.intensity import intensity_range
from ..train.simulation import central_slab, simulate
from ..train.truth import read_volume
from .trained_variants import Entry, TrainedVariants, Variant, methods_of


def rebuilt(
    trained: TrainedVariants, entry: Entry, thickness: float, slab: int | None = None, index: int = 0
) -> tuple[dict[str, Tensor], int, float]:
    """A held-out volume by each method of an experiment, or by each of its variants, and the truth.

    Each result is kept as a NIfTI file in `OUTPUT_DIR/volumes`, and made once.

    Args:
        trained: has the variants' weights.
        entry: `methods`, with the shipped weights, or `variants`.
        thickness: of the slices, mm, along the first sharp axis.
        slab: see `simulation.central_slab`.
        index: of the volume.

    Returns:
        Name -> `(X, Y, Z)` in RAS+ order; the slice axis there; the truth's brightest tissue.
    """
    item = trained.volumes[index]
    axis = item["sharp_axes"][0]
    sharp = central_slab(read_volume(item["label"]), axis, slab)
    spacing = float(grid.voxel_spacing(sharp.affine)[axis])
    acquisition = Acquisition.of_truth(axis, sharp.shape[1 + axis], edge=spacing, thickness=thickness)
    results = {}
    for name, variant, _, stage in (told for told in trained.variants(entry) if told[2] == trained.seed):
        made, config = trained.evaluation_of(
            trained.weights if stage is None else trained.exported(stage), variant, entry
        )
        for method in methods_of(variant, entry):
            label = name if "variants" in entry and method == methods_of(variant, entry)[-1] else method
            file = f"{index}_{stem(Path(item['label']).name)}_{method.replace(' ', '-')}_{thickness:g}mm"
            path = trained.output / "volumes" / made.name / f"{file}_{slab or 'whole'}.nii.gz"
            if not path.is_file():
                volume = volume_of(
                    config.get_parsed_content(f"methods#{method}")(simulate(sharp, acquisition), acquisition)
                )
                with whole_file(path) as partial:
                    nib.save(nib.Nifti1Image(volume[0].numpy(), sharp.affine.numpy()), partial)
            results[label] = read_volume(path).as_tensor()[0].float()
    results["truth"] = sharp.as_tensor()[0].float()
    turn = grid.Turn.of(sharp.affine.numpy())
    turned = {name: turn.into(volume) for name, volume in results.items()}
    return turned, turn.axes.index(axis), intensity_range(results["truth"]).high


def _middle(volume: Tensor, normal: int) -> Tensor:
    return volume.select(normal, volume.shape[normal] // 2)


def _across(volume: Tensor, slice_axis: int) -> int:
    """The shorter one of the other two axes: the planes across it contain the slice axis."""
    return min((a for a in range(3) if a != slice_axis), key=lambda a: volume.shape[a])


def _panels(lines: Mapping[str, Mapping[str, Tensor]], maps: Sequence[str], tops: Sequence[float]) -> Figure:
    """Row -> column -> plane `(across, up)`; each row has a colour map and a largest value."""
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
    rows: pd.DataFrame, trained: Callable[[], TrainedVariants], methods: Sequence[str], thickness: float
) -> Figure:
    """The middle sagittal, coronal and axial plane by each method, and of the truth (Sec. S15); see `rebuilt`."""
    volumes, _, top = rebuilt(trained(), {"methods": methods}, thickness)
    lines = {
        name: {method: _middle(volume, normal) for method, volume in volumes.items()}
        for normal, name in enumerate(("sagittal", "coronal", "axial"))
    }
    return _panels(lines, ["gray"] * 3, [top] * 3)


def gradients(
    rows: pd.DataFrame, trained: Callable[[], TrainedVariants], methods: Sequence[str], thickness: float, slab: int
) -> Figure:
    """A plane along the slice axis, its gradient along it, and the gradient's error (Sec. S13); see `rebuilt`."""
    volumes, axis, top = rebuilt(trained(), {"methods": methods}, thickness, slab)
    normal = _across(volumes["truth"], axis)
    planes = {name: _middle(volume, normal) for name, volume in volumes.items()}
    slopes = {name: plane.diff(dim=axis - (axis > normal)) for name, plane in planes.items()}
    errors = {name: slope - slopes["truth"] for name, slope in slopes.items()}
    lines = {"plane": planes, "gradient": slopes, "its error": errors}
    return _panels(lines, ["gray", "RdBu_r", "RdBu_r"], [top, top / 4, top / 4])


def gallery(
    rows: pd.DataFrame,
    trained: Callable[[], TrainedVariants],
    variants: Mapping[str, Variant],
    thickness: float,
    slab: int,
    columns: int = 5,
) -> Figure:
    """A plane along the slice axis by each variant, and of the truth, in rows of so many columns; see `rebuilt`."""
    volumes, axis, top = rebuilt(trained(), {"variants": variants}, thickness, slab)
    normal, lines = _across(volumes["truth"], axis), math.ceil(len(volumes) / columns)
    figure = Figure(figsize=(2.4 * columns, 2.9 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel in panels:
        panel.set_axis_off()
    for panel, (name, volume) in zip(panels, volumes.items()):
        panel.imshow(hang(_middle(volume, normal)), cmap="gray", vmin=0, vmax=top)
        panel.set_title(name, fontsize=9)
    return figure
