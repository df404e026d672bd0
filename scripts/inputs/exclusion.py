"""Exclusion: which volumes of a folder are no scans, and why."""

import logging
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from ..errors import logger, only
from ..files import ANALYZE, ends_as, stem
from ..stack.acquisition import ALREADY_THIN, is_thin
from ..stack.contents import SCAN, Verdict, verdict
from ..stack.grid import voxel_spacing
from ..stack.spectra import INTERPOLATED, interpolated
from . import bids, dicom, kinds
from .readers import ScanReader, no_volume, pair, unwrapped
from .scan import Scan


def shown(path: Path | dicom.Series, image: Any) -> Verdict:
    """The verdict on a volume or series: standards settle, voxels decide what these leave open."""
    if isinstance(path, dicom.Series):  # whose headers leave it open
        return verdict(image.dataobj)
    fields = bids.sidecar(path)
    if path.with_name(f"{stem(path.name)}.bval").is_file():
        why: str | None = f"{kinds.DIFFUSION_SERIES}, whose b-values lie beside it"
    elif said := kinds.of_sidecar(fields) or kinds.localizer(min(image.shape[:3]), fields):
        why = f"its sidecar says: {said}"
    else:
        why = kinds.of_intent(int(image.header["intent_code"])) if isinstance(image, nib.Nifti1Pair) else None
    return Verdict("none", why) if why else verdict(unwrapped(np.asanyarray(image.dataobj), image))


def needless(source: Path | dicom.Series, thin: float, image: Any = None) -> str:
    """Why slices need no rebuilding, by headers and sidecars; empty if they need it.

    Those no thicker and no farther apart than `thin`, in mm, need none. Slices that are finer than one edge of their
    pixels are a reformat of thick slices, which lie along that edge.
    """
    if isinstance(source, dicom.Series):
        edges, thickness = source.lies[1], float(np.nan_to_num(source.frames[0].thickness))
    else:
        edges, thickness = voxel_spacing(image.affine), float(bids.sidecar_value(source, "SliceThickness")[0] or 0)
    _, pixel, spacing = sorted(map(float, edges))
    found = f"{ALREADY_THIN}: slices {spacing:.3g} mm apart, pixels of {pixel:.3g} mm"
    return found if is_thin(spacing, thickness, pixel, thin) else ""


def looked_at(source: Path | dicom.Series, thin: float | None, asked: bool = False, name: str = "") -> Verdict:
    """The verdict on a volume of a folder or a series. Broken ones are scans, and fail when they are read.

    Thin slices are taken where `thin` is None, and what is asked for by its name is taken whatever it shows.
    """
    found = SCAN
    try:
        if isinstance(source, Path) and ends_as(source, ANALYZE) and len(pair(source)) == 1:
            return Verdict("none", "the other file of its pair, .hdr or .img, is not beside it")
        if isinstance(source, dicom.Series) and thin is not None and (why := needless(source, thin)):
            return Verdict("none", why)  # no pixel is read
        with only(logging.ERROR):  # warnings are said when it is rebuilt
            _, image = ScanReader().read(source)
        if fault := no_volume(image):
            return Verdict("none", f"it {fault}")
        found = SCAN if asked else shown(source, image)
        if found.answer == "none":
            return Verdict("none", found.why + (kinds.OVERRIDE.format(name) if name else ""))
        if thin is not None and (why := needless(source, thin, image)):
            return Verdict("none", f"{why}; {kinds.MARK.format(found.why)}" if found.why else why)
    except Exception as error:  # noqa: BLE001  # what is wrong with it is said when it is read
        logger.debug(f"{source if isinstance(source, Path) else source.name}: {error}")
    return found


def dull(scan: Scan) -> str:
    """A note on a thin scan that is skipped: its slices were interpolated or lost their spacing; else empty."""
    if isinstance(scan.samples, str):
        return f". But {scan.samples}"
    found = interpolated(scan.samples, scan.identity.edges)
    return f". But {INTERPOLATED.format(*found)}. Give it by name, with their --slice_spacing" if found else ""
