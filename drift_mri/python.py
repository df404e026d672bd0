"""The Python door: `rebuild` takes a scan and returns its rebuilt volume, by configs/inference.yaml as the command."""

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from inspect import signature
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nibabel as nib
import numpy as np
from nibabel.spatialimages import SpatialImage

from . import BUNDLE
from .scripts.command_line import check_config  # type: ignore[import-not-found]
from .scripts.errors import InputError, mistakes_alone  # type: ignore[import-not-found]
from .scripts.options import as_arguments, check_texts, check_there  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from monai.bundle import ConfigParser

PROCESS = os.getpid()  # that has imported this
logging.getLogger("drift").addHandler(logging.NullHandler())  # a library prints nothing unless its user asks for it


class RebuiltImage(nib.Nifti1Image):
    """A rebuilt scan, a nibabel image.

    Attributes:
        record: the one that the command writes beside a result.
        error_map: half-widths of the intervals that hold the truth, on the same grid; None unless it is asked for.
    """

    record: dict[str, Any]
    error_map: nib.Nifti1Image | None = None


def _config(config: str | None, ckpt_path: str | None, **given: Any) -> "ConfigParser":
    """configs/inference.yaml, a config stacked on it, weights and options."""
    from monai.bundle import ComponentLocator, ConfigParser  # here: it takes seconds

    class Locator(ComponentLocator):
        """Finds the components that configs call `scripts...` in the bundle, whatever else has that name."""

        def get_component_module_name(self, name: str) -> list[str] | str | None:
            return __package__ if name.startswith("scripts.") else super().get_component_module_name(name)

    if config is not None:
        check_config(config)
    files = [str(BUNDLE / "configs" / "inference.yaml"), *([] if config is None else [config])]
    sys.path += {str(Path(path).absolute().parent) for path in files[1:]} - {*sys.path}  # for its modules
    given |= {} if ckpt_path is None else {"ckpt_path": ckpt_path}
    check_texts(given)
    parser = ConfigParser(ConfigParser.load_config_files(files))
    parser.locator = Locator()
    parser.read_meta(str(BUNDLE / "configs" / "metadata.json"))
    parser.update({"bundle_root": str(BUNDLE), "inferer::progress": False, **given})
    return parser


@lru_cache(maxsize=2)  # networks stay loaded between calls
def _network(config: str | None, ckpt_path: str | None, stamps: tuple[float, ...]) -> tuple[Any, Any]:
    """The network on its device. Files that were replaced under one name have other `stamps`."""
    parser = _config(config, ckpt_path)
    return parser.get_parsed_content("network"), parser.get_parsed_content("device")


def _source(scan: Any, argument: str, thin: float | None, longest_part: bool) -> Any:
    """A source for the deployed preprocessing: a path, a DICOM series, or an image in memory."""
    from .scripts.inputs.scans import scan_named  # type: ignore[import-not-found]

    if isinstance(scan, tuple) and len(scan) == 2:
        array, affine = (np.asarray(one) for one in scan)
        if affine.shape != (4, 4):
            raise InputError(f"affine has shape {affine.shape}: expected (4, 4), voxel -> mm. Give (array, affine).")
        return SpatialImage(array, affine)
    if isinstance(scan, SpatialImage):
        return scan
    if not isinstance(scan, str | os.PathLike):
        raise InputError(
            f"{argument} is a {type(scan).__name__}: expected a path, a nibabel image, or (array, affine). Give one."
        )
    return scan_named(scan, argument, thin, longest_part).source


def rebuild(
    scan: str | os.PathLike | SpatialImage | tuple[np.ndarray, np.ndarray],
    *,
    guide: str | os.PathLike | SpatialImage | tuple[np.ndarray, np.ndarray] | None = None,
    slice_thickness: float | None = None,
    slice_spacing: float | None = None,
    target_thickness: float | None = None,
    slice_axis: int | None = None,
    noise: float | str = "auto",
    sharp: bool = False,
    isotropic: bool = False,
    motion: bool = True,
    error_map: bool = False,
    confidence: float = 0.9,
    check: bool = False,
    missing_slices: str = "refuse",
    ckpt_path: str | os.PathLike | None = None,
    config: str | os.PathLike | None = None,
) -> RebuiltImage:
    """Rebuilds a thick-slice scan, as `drift-mri` does. Nothing is written or printed.

    The networks stay loaded between calls. They run on CUDA where there is one.

    Args:
        scan: a file, a folder with one DICOM series, a nibabel image, or `(array, affine)`: voxels `(X, Y, Z)`, and a
            4 x 4 matrix from voxels to mm in RAS+.
        guide: a sharp scan of another contrast of the same head, as `scan`. It is registered.
        slice_thickness: of the measured slices, in mm. None takes the header's, else the slice spacing.
        slice_spacing: of slices that were interpolated to a finer spacing, in mm: they are taken back to it first.
        target_thickness: to reach, in mm. None takes the finer in-plane spacing, within the trained range.
        slice_axis: array axis of the slices, 0 to 2. None takes the header's, else the axis of the largest spacing.
        noise: standard deviation of the slices' noise, in % of the range of tissue; `"auto"` to estimate it.
        sharp: take the flow beyond the mean: a sharper result, whose detail is drawn from what heads look like. PSNR
            falls, and lesions may be drawn or lost.
        isotropic: resample the pixels to the target too.
        motion: take the slices of a head that moved between the packages of its stack back to their places; False
            leaves them.
        error_map: estimate the uncertainty of each voxel, too.
        confidence: share of voxels whose truth is in the interval that the error map gives.
        check: test the method on the scan's own slices: the record's `Check`.
        missing_slices: of a DICOM series: `"refuse"`, or `"longest"`, its longest unbroken part.
        ckpt_path: weights, with their card beside them. None takes those that ship.
        config: a file to stack on configs/inference.yaml, as the command's `--config`.

    Returns:
        A nibabel image in the scan's units and place, `float32`. Its `record` has the facts of the acquisition and the
        agreement of the result with the measured slices.

    Raises:
        InputError: for every mistake in the input.

    Example:
        >>> result = rebuild("scan.nii.gz", slice_thickness=5)  # doctest: +SKIP
        >>> result.to_filename("scan_sr.nii.gz")  # doctest: +SKIP
    """
    given, defaults = dict(locals()), {name: one.default for name, one in signature(rebuild).parameters.items()}
    others = ("scan", "guide", "ckpt_path", "config")
    options = {name: given[name] for name in defaults if name not in others and given[name] is not defaults[name]}
    files = [None if one is None else str(Path(one).absolute()) for one in (config, ckpt_path)]
    with mistakes_alone(as_arguments), warnings.catch_warnings():
        check_there({"scan": scan, "guide": guide, **dict(zip(("config", "ckpt_path"), files))})
        warnings.filterwarnings("ignore", module="monai|torch")  # of their own machinery, not of the scan
        if os.getpid() == PROCESS and parent_process() is None:
            return _rebuild(scan, guide, options, *files)
        # A forked process has none of the threads of OpenMP that its first thread would wait for.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_rebuild, scan, guide, options, *files).result()


def _rebuild(
    scan: Any, guide: Any, options: Mapping[str, Any], config: str | None, ckpt_path: str | None
) -> RebuiltImage:
    from .scripts.inputs.scan import Scan  # type: ignore[import-not-found]
    from .scripts.inputs.scans import takes_longest_part  # type: ignore[import-not-found]
    from .scripts.method.origin import Origin  # type: ignore[import-not-found]
    from .scripts.outputs.record import asked_check, describe, describe_check  # type: ignore[import-not-found]
    from .scripts.outputs.results import nifti_image  # type: ignore[import-not-found]

    stamps = (Path(file).stat().st_mtime for file in (config, ckpt_path) if file is not None and Path(file).is_file())
    network, device = _network(config, ckpt_path, tuple(stamps))
    parser = _config(config, ckpt_path, **options)
    parser.update({"network": network, "device": device})
    thin, missing_slices = map(parser.get_parsed_content, ("selection::thin", "missing_slices"))
    longest_part = takes_longest_part(missing_slices)
    source = _source(scan, "scan", thin, longest_part)
    rebuilder = parser.get_parsed_content("rebuilder")
    measured, placed = rebuilder.measure(source), None
    if isinstance(guide, str) and guide == "auto":
        raise InputError(
            "guide is auto, which finds a scan among others, and a single scan has none: expected the guide itself. "
            "Set guide to a path or an image; the command drift-mri finds it in a folder, by its option guide."
        )
    if guide is not None:
        placed = rebuilder.place(rebuilder.read_guide(_source(guide, "guide", None, longest_part)), measured)
        placed.check(measured)
    rebuilt = rebuilder(measured, placed)
    header = rebuilt.slices.meta.get("header", {})
    written = nifti_image(rebuilt.volume, header)
    result = RebuiltImage(written.dataobj, written.affine, written.header)
    name = str(rebuilt.slices.meta["filename_or_obj"])
    origin = Origin.of(network)
    made = {"Network": origin.entry(), "WeightsSHA256": origin.weights, "Version": parser["_meta_"]["version"]}
    if rebuilder.check:
        made["check"] = describe_check(rebuilder.checked(measured), measured, asked_check(rebuilder))
    record = describe(Scan(name, Path(name), (), Path(name)), rebuilt, rebuilder.error_maps, origin, **made)
    result.record = record.replaced(Warnings=[as_arguments(one) for one in record["Warnings"]])
    if rebuilt.error_map is not None:
        result.error_map = nifti_image(rebuilt.error_map.half_width(rebuilder.error_maps.confidence), header)
    return result
