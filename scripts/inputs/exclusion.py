"""Exclusion: why a volume of a folder is not rebuilt, and why a scan guides no other."""

import re
from pathlib import Path

import numpy as np

from ..errors import InputError, logger
from ..files import ANALYZE, ends_as, stem
from ..stack.acquisition import ALREADY_THIN, is_thin
from ..stack.grid import voxel_spacing
from ..stack.spectra import interpolated
from . import bids, kinds
from .identity import Identity
from .readers import ScanReader, is_header, no_volume
from .roles import THINNER
from .scan import Scan


def shows_no_head(path: Path) -> str | None:
    """Why a volume is no MR scan of a head, by its name and the files beside it; None if it may be."""
    if why := kinds.of_name(path.name):
        return f"its name says that it shows {why}"
    if path.with_name(f"{stem(path.name)}.bval").is_file():
        return "a diffusion series, whose b-values lie beside it"
    twin = path.with_name(path.name.replace(stem(path.name), f"{stem(path.name)}_Eq_1"))
    if twin.is_file():
        return f"its slices lie unevenly, and dcm2niix interpolated them in {twin.name}. Give the DICOM series"
    if re.search(r"_Eq_\d+$", stem(path.name)):
        return "its slices were interpolated by dcm2niix, since they lie unevenly. Give the DICOM series"
    try:
        why = kinds.of_sidecar(bids.sidecar(path))
    except InputError:  # which the preprocessing says
        return None
    return f"its sidecar says: {why}" if why else None


def unfit(path: Path, thin: float | None) -> str | None:
    """Why a volume of a folder is not rebuilt; None for scans, and for broken files, which fail when they are read.

    Thin scans are taken where `thin` is None.
    """
    if ends_as(path, ANALYZE) and not is_header(path):
        return "it is no header of a volume"
    try:
        _, image = ScanReader().read(path)
        if why := no_volume(image):
            return f"it {why}"
        if why := kinds.of_voxels(image.dataobj, path.name):
            return f"{why}. Give it by name if it is a scan"
        thickness, _ = bids.sidecar_value(path, "SliceThickness")
        _, pixel, spacing = sorted(map(float, voxel_spacing(image.affine)))
        if thin is not None and is_thin(spacing, None if thickness is None else float(thickness), pixel, thin):
            return f"{ALREADY_THIN}: slices {spacing:.3g} mm apart, pixels of {pixel:.3g} mm"
    except Exception as error:  # noqa: BLE001  # what is wrong with the file is said when it is read
        logger.debug(f"{path}: {error}")
    return None


def dull(scan: Scan) -> str:
    """The reason why a thin scan is skipped, as far as its slices were interpolated; empty for a sharp one."""
    try:
        found = interpolated(scan.sharpness, scan.identity.edges)
    except Exception as error:  # noqa: BLE001  # what is wrong with it is said where it is to guide
        logger.debug(f"{scan.name}: {error}")
        return ""
    if found is None:
        return ""
    axis, spacing = found
    dull = f"interpolated along axis {axis}: it shows no more than {spacing:.2g} mm slices do"
    return f". But it was {dull}. Give it by name, with their --slice_spacing"


def guides_not(scan: Scan, thick: Identity) -> str | None:
    """Why a scan guides no thick one, by what it shows and how sharp it is across the thick slices; None if it may."""
    path, theirs = scan.path, scan.identity
    if path is not None and (why := shows_no_head(path) or unfit(path, None)):
        return why
    try:
        sharp = scan.sharpness
    except Exception as error:  # noqa: BLE001  # a broken scan guides nothing, and says so when it is rebuilt
        return f"it cannot be read ({error})"
    across = sharp[int(np.abs(thick.normal @ theirs.axes).argmax())]
    if across > THINNER * thick.edges[thick.slice_axis]:
        return (
            f"its slices were interpolated: across the thick slices it shows no more than samples {across:.2g} mm apart"
        )
    return None
