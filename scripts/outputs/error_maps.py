"""The files of a result's error map: the map, a table of regions, and their entries in the record."""

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from monai.data import MetaTensor
from monai.transforms import ResampleToMatch
from nibabel.affines import apply_affine
from torch import Tensor

from ..errors import InputError, logger
from ..files import sha256, whole_file
from ..inputs.scan import Scan
from ..inputs.transforms import LoadScand
from ..rebuild.error_map import ErrorMaps
from ..rebuild.rebuilt import Rebuilt
from ..stack.grid import voxel_spacing
from ..stack.tissue import head_mask
from ..train.recipe import digest
from .bids import kept
from .dicom import check_series_folder
from .provenance import file_of, write_json
from .results import Output, read, write

REGIONS = "_regions.csv"
WHOLE_NUMBERS = 2**24  # which float32 tells apart
SEEN = 0.5  # of a region; of one that lies less in the field of view, its mean is not known
WHOLE = 0.9  # of a region in the field of view, or of the head in the label map; less is cut
ROUNDING = 1e-3  # of a voxel; a centre that lies so far beyond a grid is on its border


def error_stem(stem: Path) -> Path:
    """Path of the error map of the result `stem`, without its ending: `a_sr_error`, in BIDS `a_desc-srerror_T2w`."""
    name = re.sub(r"(_desc-[^_]*sr)_", r"\1error_", stem.name)
    return stem.with_name(name if name != stem.name else f"{name}_error")


def asked(maps: ErrorMaps) -> dict[str, Any]:
    """Entries of a record whose error map is the one that is asked for; empty if none is."""
    if not maps.wanted:
        return {}
    regions = None if maps.regions is None else sha256([maps.regions])
    calibration = None if maps.calibration is None else digest(asdict(maps.calibration))
    return {"Confidence": maps.confidence, "Regions": regions, "Calibration": calibration}


def describe_error_map(rebuilt: Rebuilt, maps: ErrorMaps) -> dict[str, Any]:
    """The record's entry on the error map that is asked for. Shares are of the range of the scan's tissue."""
    if rebuilt.error_map is None:
        return {"Description": "None: nothing was rebuilt.", **asked(maps)}
    try:
        width = rebuilt.error_map.half_width(maps.confidence).as_tensor()
        median = width[head_mask(rebuilt.volume.as_tensor())].median().item()
    except ValueError:  # constant
        median = 0.0
    return {
        "Description": _said(maps),
        "Median": float(f"{median:.5g}"),
        "MedianOfRange": float(f"{median / rebuilt.slices.tissue_range.extent:.4g}"),
        "Noise": float(f"{rebuilt.error_map.noise:.4g}"),
        **asked(maps),
    }


def _said(maps: ErrorMaps) -> str:
    return f"Half-width of the interval that holds the truth in {maps.confidence:.0%} of voxels."


def regions_of(rebuilt: Rebuilt, maps: ErrorMaps) -> tuple["Regions | None", list[str]]:
    """The regions on a result's grid, with warnings of what is cut; None where there is no table of them."""
    if maps.regions is None or rebuilt.error_map is None:
        return None, []
    slices, volume = rebuilt.slices, rebuilt.volume
    regions = Regions.on(maps.regions, volume.shape, volume.affine)
    return regions, [*regions.cut(), *regions.ends_in(slices.head, slices.affine)]


def write_error_map(
    scan: Scan,
    rebuilt: Rebuilt,
    maps: ErrorMaps,
    output: Output,
    made: Mapping,
    regions: "Regions | None" = None,
    **derivation: Any,
) -> list[Path]:
    """Writes the error map, if there is one, and the table of `regions`; returns their paths.

    `derivation` is what `results.write` says of the result itself: the map is made by the same guide, say.
    """
    stem, meta, error_map = error_stem(scan.result), rebuilt.slices.meta, rebuilt.error_map
    if error_map is None:
        return []
    width = error_map.half_width(maps.confidence)
    what = f"error bar: the truth of {maps.confidence:.0%} of voxels is within this much of the rebuilt series"
    made = {**made, "error map": maps.confidence}
    header = meta.get("header", {})
    written = [write(scan, stem, width, header, output, made, what, **derivation)]
    if scan.dataset is not None and not output.as_dicom(scan):  # BIDS wants one beside each derivative
        written.append(file_of(stem, ".json"))
        write_json(written[-1], {"Description": _said(maps), **kept(scan.path)[0]})
    if regions is not None:
        written.append(file_of(error_stem(scan.page), REGIONS))
        write_regions(written[-1], rebuilt.volume, width, regions)
    if outside := error_map.calibration.outside(error_map.thickness):
        logger.warning(f"{scan.name}: {outside}.")
    return written


def read_error_map(stem: Path, record: Mapping[str, Any]) -> MetaTensor | None:
    """The `(X, Y, Z)` error map of the result `stem` whose record this is; None where it has none that is unharmed."""
    paths = (error_stem(stem), file_of(error_stem(stem), ".nii.gz"))  # a DICOM series, or NIfTI
    return next((read(path) for path in paths if path.name in record["Results"]), None)


def clear_error_map(scan: Scan) -> None:
    """Removes the error map of an earlier result, with its table; a folder of other files stays."""
    series = error_stem(scan.result)
    for path in (file_of(series, ".nii.gz"), file_of(series, ".json"), file_of(error_stem(scan.page), REGIONS)):
        path.unlink(missing_ok=True)
    if series.is_dir():
        check_series_folder(series)
        shutil.rmtree(series)


@dataclass(frozen=True, eq=False)
class Regions:
    """The regions of a label map, on the grid of a result and in its field of view.

    Attributes:
        voxels: `(X, Y, Z)`, the label of each voxel of the result; 0 for none.
        shares: of each label of the file, the share whose voxels' centres lie in the field of view.
        volumes: of these parts in mm3, by the voxels of the file.
        shape, affine: of the file's grid.
    """

    voxels: np.ndarray
    shares: Mapping[int, float]
    volumes: Mapping[int, float]
    shape: tuple[int, ...]
    affine: Tensor

    @classmethod
    def on(cls, labels: str, shape: Sequence[int], affine: Tensor) -> Self:
        """Those of a file, on the grid of a result.

        The file may have any grid. It is 0 outside of all regions, and by its affine in the place of the scan.
        """
        read = LoadScand("label")({"label": labels})["label"]
        file = np.asarray(read)[0]
        inside = file != 0
        values, which = np.unique(file[inside], return_inverse=True)
        wrong = values[(values != np.rint(values)) | (np.abs(values) >= WHOLE_NUMBERS)]
        if len(wrong):
            raise InputError(
                f"{labels} holds {wrong[0]:g}, which is no label: expected whole numbers below {WHOLE_NUMBERS:,}. Set "
                "--regions to a label map."
            )
        seen = np.bincount(which, _lie_on(inside, read.affine, shape, affine))
        if not seen.any():
            raise InputError(
                f"{labels} has no label where the scan is: expected a label map in its place. Set --regions."
            )
        there = MetaTensor(torch.zeros(1).expand(1, *shape), affine=affine)
        onto = ResampleToMatch(mode="nearest", padding_mode="zeros")
        names, voxel = values.astype(int).tolist(), float(np.prod(voxel_spacing(read.affine)))
        return cls(
            np.asarray(onto(read, there)[0]).round().astype(int),
            dict(zip(names, (seen / np.bincount(which)).tolist())),
            dict(zip(names, (seen * voxel).tolist())),
            file.shape,
            read.affine,
        )

    def has_mean(self, label: int) -> bool:
        """Whether enough of a region is known: a voxel of the result, and half of the region in the field of view."""
        return self.shares[label] >= SEEN and bool((self.voxels == label).any())

    def cut(self) -> list[str]:
        """Warnings: a line for each region that the field of view cuts, or that is smaller than a voxel."""
        said = []
        for label, share in self.shares.items():
            has = self.has_mean(label)
            if share < WHOLE:
                then = "its volume and mean are of that part." if has else "it has no mean."
                said.append(f"{share:.0%} of the region {label} lies in the field of view: {then}")
            elif not has:
                said.append(f"the region {label} is smaller than a voxel of the result: it has no mean.")
        return said

    def ends_in(self, head: Tensor, affine: Tensor) -> list[str]:
        """A warning where the file's grid, with labels or without, holds less than nearly all of a head.

        The head is `(X, Y, Z)` bool with its affine.
        """
        share = float(_lie_on(head.numpy(), affine, self.shape, self.affine).mean())
        return [f"the label map covers {share:.0%} of the head: it may cut regions."] if share < WHOLE else []


def _lie_on(inside: np.ndarray, affine: Tensor, shape: Sequence[int], other: Tensor) -> np.ndarray:
    """Whether a mask's voxels, in the order of `argwhere`, have their centres on another grid: `(N,)` bool."""
    index = apply_affine(np.linalg.inv(other) @ np.asarray(affine), np.argwhere(inside))
    return ((index > -0.5 - ROUNDING) & (index < np.asarray(shape) - 0.5 + ROUNDING)).all(1)


def write_regions(path: Path, result: MetaTensor, width: MetaTensor, regions: Regions) -> None:
    """Writes a table: each label's voxels, volume, mean and the mean of its voxels' half-widths.

    Errors along a tissue's border have one sign: a mean over it does not gain by the number of its voxels. So the
    table counts on no error that cancels another. A region has neither mean where too little of it is known.

    `result` and `width` are `(X, Y, Z)`, the volume and its error map.
    """
    volumes, halves = (volume.as_tensor().double().numpy() for volume in (result, width))
    rows = []
    for label, volume in regions.volumes.items():
        inside = regions.voxels == label
        means = (
            (f"{volumes[inside].mean():.6g}", f"{halves[inside].mean():.4g}") if regions.has_mean(label) else ("", "")
        )
        rows.append((label, int(inside.sum()), f"{volume:.6g}", *means))
    table = pd.DataFrame(rows, columns=["label", "voxels", "volume_mm3", "mean", "half_width"])
    with whole_file(path) as partial:
        table.to_csv(partial, index=False, lineterminator="\n")
