"""The results of a run on disk: their form, how they are written, and read again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor, NibabelReader, PydicomReader
from torch import nn

from ..errors import InputError, flag
from ..files import sha256, whole_file
from ..inputs.bids import reports
from ..inputs.scan import Scan
from ..method.origin import Origin
from ..method.weights import Card
from ..pages.index import check_foreign_index
from . import bids
from .dicom import write_series
from .provenance import file_of, made_with
from .summary import read_rows

DTYPES = ("float32", "int16")  # of NIfTI voxels


@dataclass
class Output:
    """The form of a run's results.

    Attributes:
        folder: of the run; `inputs.bids.reports` says where in it `summary.csv` goes, and scans where results do.
        format: `"nifti"`; `"dicom"`, by which scans that did not come as DICOM are skipped; or `"auto"`, by which each
            result has the format of its scan.
        dtype: of NIfTI voxels: `"float32"`, or `"int16"`, which is scaled and takes half the space.
        config: of the run, of which `made_with` makes the settings of its results.
        settings, method: options and settings of the inferer that change results.
        card: of the weights.
        network: that rebuilds.
        origin: of the network.
        made: `provenance.made_with` for this run.
    """

    folder: str
    format: str
    dtype: str
    report: bool
    settings: Mapping[str, Any]
    method: Mapping[str, Any]
    card: Card
    version: str
    config: InitVar[ConfigParser]
    network: InitVar[nn.Module]
    made: dict[str, Any] = field(init=False)
    origin: Origin = field(init=False)

    def __post_init__(self, config: ConfigParser, network: nn.Module) -> None:
        if self.format not in ("nifti", "dicom", "auto"):
            raise InputError(f"format is {self.format!r}: expected nifti, dicom or auto. Set --output_format.")
        if self.dtype not in DTYPES:
            raise InputError(f"dtype is {self.dtype!r}: expected {' or '.join(DTYPES)}. Set --dtype.")
        if self.format == "dicom" and self.dtype != "float32":
            raise InputError(f"dtype is {self.dtype}, of NIfTI: DICOM has integers of its own. Leave out --dtype.")
        self.report = flag("report", self.report)
        switches = {k: flag(k, v) for k, v in self.settings.items() if str(v).lower() in ("true", "false")}
        self.settings = {**self.settings, **switches}  # the text true, of a command line, is True
        bids.check_derivative_folder(self.folder)
        read_rows(reports(Path(self.folder)) / "summary.csv")
        check_foreign_index(reports(Path(self.folder)))
        self.origin = Origin.of(network)
        settings = {**self.settings, **self.method, "dtype": self.dtype}
        if not self.origin.flows:
            for name in ("n_max", "sharp_velocity", "sharp_detail"):
                settings.pop(name, None)  # of a card that is not the network's
        self.made = made_with(config, self.card, self.origin, self.version, settings)

    def as_dicom(self, scan: Scan) -> bool:
        """Whether a scan's result is a DICOM series."""
        return self.format == "dicom" or (self.format == "auto" and scan.is_dicom)

    def made_from(self, scan: Scan) -> dict[str, Any]:
        """Entries of the record of a scan's result that is complete."""
        settings = {**self.made["Settings"], "format": "dicom" if self.as_dicom(scan) else "nifti"}
        files = [*scan.files, *(file for guide in scan.guides for file in guide.scan.files)]
        return {**self.made, "Settings": settings, "InputSHA256": sha256(files)}


def write(
    scan: Scan,
    stem: Path,
    volume: MetaTensor,
    header: Mapping,
    output: Output,
    made: Mapping,
    what: str = "",
    others: Sequence[Scan] = (),
    guide: Scan | None = None,
    warnings: Sequence[str] = (),
    test: str = "",
    sharp: bool = False,
) -> Path:
    """Writes the result, or another volume `what` of it; returns its path.

    It is made of the scan and further stacks, `others`, and guided by `guide`. A DICOM series has the `warnings`, too,
    and what a `test` on the scan's own slices found; it says whether detail is drawn, as in `sharp` results.
    """
    if not output.as_dicom(scan):
        path = file_of(stem, ".nii.gz")
        with whole_file(path) as partial:
            nib.save(nifti_image(volume, header, output.dtype), partial)
        return path
    array, affine = volume.as_tensor().numpy(), np.asarray(volume.affine)
    named = {name: value for name, value in made.items() if name != "InputSHA256"}  # files differ by how they were sent
    source, *further = (one.source for one in (scan, *others) if not isinstance(one.source, Path))
    key, guided_by = json.dumps(named, sort_keys=True), None if guide is None else guide.source
    by = output.origin.said(output.version)
    write_series(stem, array, affine, source, output.version, key, what, further, guided_by, by, warnings, test, sharp)
    return stem


def nifti_image(result: MetaTensor, header: Mapping[str, Any], dtype: str = "float32") -> nib.Nifti1Image:
    """A rebuilt volume `(X, Y, Z)` with its affine, as nibabel holds it.

    Args:
        header: fields of the scan's own header that hold for the result as well; empty if it has none. A header that
            says of no side whose it is gets none by its result.
        dtype: of the voxels, one of `DTYPES`; integers are scaled, and right to half a step.
    """
    image = nib.Nifti1Image(np.asarray(result.as_tensor(), dtype=np.float32), np.asarray(result.affine))
    image.set_data_dtype(dtype)
    sform, qform = (int(header.get(name, 0)) for name in ("sform_code", "qform_code"))
    sform = sform or qform or (0 if "sform_code" in header else int(image.header["sform_code"]))
    image.set_sform(image.affine, sform)
    image.set_qform(image.affine, qform or sform)
    for name in ("dim_info", "xyzt_units"):
        image.header[name] = header.get(name, 0)
    length, duration = image.header.get_xyzt_units()
    image.header.set_xyzt_units("mm", duration if length == "mm" else "sec")
    return image


def read(path: Path) -> MetaTensor:
    """The `(X, Y, Z)` volume of a result: a NIfTI file, or a folder with a DICOM series."""
    reader = PydicomReader() if path.is_dir() else NibabelReader()
    array, meta = reader.get_data(reader.read(path))
    return MetaTensor(torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)), affine=meta["affine"])
