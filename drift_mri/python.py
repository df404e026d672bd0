"""The Python door: `rebuild` takes a scan and returns its rebuilt volume, by configs/inference.yaml as the command.

The bundle's own package is called `scripts`, as hosts expect. Here it is loaded as `drift_mri.scripts`, so that nothing
of that name is put on the user's path.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import nibabel as nib
import numpy as np
from nibabel.spatialimages import SpatialImage

from . import BUNDLE, SHIPPED

if TYPE_CHECKING:
    from monai.bundle import ConfigParser

NAME = f"{__package__}.scripts"


def _load_scripts() -> ModuleType:
    """The bundle's package under its name here. Its imports are relative, so they follow."""
    if NAME not in sys.modules:
        folder = BUNDLE / "scripts"
        found = importlib.util.spec_from_file_location(
            NAME, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        module = importlib.util.module_from_spec(found)  # type: ignore[arg-type]  # the file is there
        sys.modules[NAME] = sys.modules[__package__].scripts = module  # type: ignore[attr-defined]  # as an import does
        found.loader.exec_module(module)  # type: ignore[union-attr]
    return sys.modules[NAME]


_load_scripts()
from .scripts.errors import InputError, input_error  # type: ignore[import-not-found]  # noqa: E402

logging.getLogger("drift").addHandler(logging.NullHandler())  # a library prints nothing unless its user asks for it


class Rebuilt(nib.Nifti1Image):
    """A rebuilt scan, a nibabel image.

    Attributes:
        record: what the command writes beside a result.
        error_map: half-widths of the intervals that hold the truth, on the same grid; None unless it is asked for.
    """

    record: dict[str, Any]
    error_map: nib.Nifti1Image | None = None


def _here(config: Any) -> Any:
    """A config whose components are those of `drift_mri.scripts`."""
    if isinstance(config, Mapping):
        return {key: _here(value) for key, value in config.items()}
    if isinstance(config, list):
        return [_here(value) for value in config]
    if isinstance(config, str) and config.startswith("scripts."):
        return f"{__package__}.{config}"
    return config


def _config(size: str | None, **given: Any) -> ConfigParser:
    """configs/inference.yaml under the options."""
    from monai.bundle import ConfigParser  # here: it takes seconds

    configs = BUNDLE / "configs"
    sizes = {path.stem: path for path in sorted((configs / "models").glob("*.yaml"))}
    if size is not None and size not in sizes:
        raise InputError(f"size is {size!r}: expected {' or '.join(sizes)}. Leave it out for the shipped weights.")
    if size not in (None, SHIPPED) and "ckpt_path" not in given:
        raise InputError(f"size is {size}, and no weights are given: {SHIPPED} alone ships. Give ckpt_path, too.")
    files = [configs / "inference.yaml", *([] if size is None else [sizes[size]])]
    parser = ConfigParser(_here(ConfigParser.load_config_files([str(file) for file in files])))
    parser.read_meta(str(configs / "metadata.json"))
    parser.update({"bundle_root": str(BUNDLE), "inferer::progress": False, **given})
    return parser


@lru_cache(maxsize=2)  # networks stay loaded between calls
def _network(size: str | None, ckpt_path: str | None, stamp: float | None) -> tuple[Any, Any]:
    """The network on its device. `stamp` tells weights that were replaced under one name."""
    parser = _config(size, **({} if ckpt_path is None else {"ckpt_path": ckpt_path}))
    return parser.get_parsed_content("network"), parser.get_parsed_content("device")


def _measured(scan: Any, thin: float, longest_part: bool) -> Any:
    """What the deployed preprocessing reads: a path, a DICOM series, or a volume with its affine; and its name."""
    import torch
    from monai.data import MetaTensor

    from .scripts.files import VOLUMES  # type: ignore[import-not-found]
    from .scripts.inputs import dicom  # type: ignore[import-not-found]
    from .scripts.inputs.readers import ScanReader  # type: ignore[import-not-found]

    if isinstance(scan, tuple) and len(scan) == 2:
        array, affine = (np.asarray(one) for one in scan)
        if affine.shape != (4, 4):
            raise InputError(f"affine has shape {affine.shape}: expected (4, 4), voxel -> mm. Give (array, affine).")
        scan = SpatialImage(array, affine)
    if isinstance(scan, SpatialImage):
        voxels, meta = ScanReader().get_data((scan.get_filename() or "the scan", scan))
        return MetaTensor(torch.from_numpy(voxels)[None], affine=torch.from_numpy(meta.pop("affine")), meta=meta)
    if not isinstance(scan, str | os.PathLike):
        raise InputError(
            f"scan is a {type(scan).__name__}: expected a path, a nibabel image, or (array, affine). Give one of them."
        )
    path = Path(scan)
    if not path.exists():
        raise InputError(f"{path} is not there: expected a scan, or a folder with one DICOM series. Check the path.")
    if path.is_file() and path.name.lower().endswith(VOLUMES):
        return str(path)
    found = dicom.find_series(path if path.is_dir() else [path], thin, longest_part)
    series = [one for one in found if not one.skipped]
    if len(series) != 1:
        named = ", ".join(one.name for one in series) or "none"
        raise InputError(f"{path} holds {len(series)} thick DICOM series ({named}): expected one. Give its own folder.")
    return series[0]


def rebuild(
    scan: str | os.PathLike | SpatialImage | tuple[np.ndarray, np.ndarray],
    *,
    slice_thickness: float | None = None,
    target_thickness: float | None = None,
    slice_axis: int | None = None,
    isotropic: bool = False,
    flips: bool = False,
    both_planes: bool = True,
    speed: str = "fast",
    bfloat16: bool | None = None,
    consistency: str = "project",
    profile: str | float = 4.0,
    error_map: bool = False,
    confidence: float = 0.9,
    missing_slices: str = "refuse",
    ckpt_path: str | os.PathLike | None = None,
    size: str | None = None,
) -> Rebuilt:
    """Rebuilds a thick-slice scan, as `drift-mri` does. Nothing is written or printed.

    The networks stay loaded between calls. They run on CUDA where there is one.

    Args:
        scan: a file, a folder with one DICOM series, a nibabel image, or `(array, affine)`: voxels `(X, Y, Z)`, and a
            4 x 4 matrix from voxels to mm in RAS+.
        slice_thickness: of the measured slices, in mm. None takes the header's, else the slice spacing.
        target_thickness: to reach, in mm. None takes the finer in-plane spacing, within what the weights know.
        slice_axis: array axis of the slices, 0 to 2. None takes the header's, else that of the largest spacing.
        isotropic: resample the pixels to the target too.
        error_map: estimate how sure each voxel is, too.
        confidence: share of voxels whose truth is in the interval that the error map gives.
        flips, both_planes, speed, bfloat16, consistency, profile, missing_slices: as the options of
            `drift-mri --help`.
        ckpt_path: weights, with their card beside them. None takes those that ship.
        size: of the network that `ckpt_path` holds.

    Returns:
        A nibabel image in the scan's units and place, `float32`. Its `record` says what was taken for the acquisition
        and how the result agrees with the measured slices.

    Raises:
        InputError: for every mistake in what was given. Its message says what is allowed and what to do.

    Example:
        >>> result = rebuild("scan.nii.gz", slice_thickness=5)  # doctest: +SKIP
        >>> result.to_filename("scan_sr.nii.gz")  # doctest: +SKIP
    """
    options = {
        **{"slice_thickness": slice_thickness, "target_thickness": target_thickness, "slice_axis": slice_axis},
        **{"isotropic": isotropic, "flips": flips, "both_planes": both_planes, "speed": speed, "bfloat16": bfloat16},
        **{"consistency": consistency, "profile": profile, "missing_slices": missing_slices},
        **{"error_map": error_map, "confidence": confidence},
    }
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="monai|torch")  # of their own machinery, not of the scan
            return _rebuild(scan, options, None if ckpt_path is None else str(Path(ckpt_path).absolute()), size)
    except Exception as error:
        mistake = input_error(error)
        if mistake is None:
            raise
        raise mistake from None


def _rebuild(scan: Any, options: Mapping[str, Any], ckpt_path: str | None, size: str | None) -> Rebuilt:
    stamp = None if ckpt_path is None or not Path(ckpt_path).is_file() else Path(ckpt_path).stat().st_mtime
    network, device = _network(size, ckpt_path, stamp)
    parser = _config(size, **options, **({} if ckpt_path is None else {"ckpt_path": ckpt_path}))
    from .scripts.inputs.scans import takes_longest_part  # type: ignore[import-not-found]
    from .scripts.outputs.error_maps import describe_error_map  # type: ignore[import-not-found]
    from .scripts.outputs.record import agreement, describe  # type: ignore[import-not-found]
    from .scripts.outputs.results import nifti_image  # type: ignore[import-not-found]
    from .scripts.rebuild.consistency import difference  # type: ignore[import-not-found]
    from .scripts.rebuild.error_map import error_map  # type: ignore[import-not-found]
    from .scripts.rebuild.inferer import rebuild as rebuild_stack  # type: ignore[import-not-found]
    from .scripts.stack.acquisition import Acquisition  # type: ignore[import-not-found]

    longest_part = takes_longest_part(parser.get_parsed_content("missing_slices"))
    image = _measured(scan, max(parser.get_parsed_content("card").target_range), longest_part)
    measured = parser.get_parsed_content("preprocessing")({"image": image})["image"]
    maps, inferer = (parser.get_parsed_content(name) for name in ("error_maps", "inferer"))
    result = rebuild_stack(measured, network, inferer, device)[0]
    written = nifti_image(result, measured.meta.get("header", {}))
    rebuilt = Rebuilt(written.dataobj, written.affine, written.header)
    gap = difference(result.as_tensor(), measured[0].as_tensor(), Acquisition.of(measured))
    item = {"image": str(measured.meta["filename_or_obj"]), "sources": []}
    rebuilt.record = describe(item, measured[0], result, agreement(gap, measured[0]))
    if maps.wanted:
        by = (network, device, maps.calibration, maps.confidence)
        width = error_map(measured, result[None], *by, bfloat16=inferer.bfloat16)
        rebuilt.error_map = nifti_image(width[0], measured.meta.get("header", {}))
        rebuilt.record["ErrorMap"] = describe_error_map(measured[0], result, width[0], maps)
    return rebuilt
