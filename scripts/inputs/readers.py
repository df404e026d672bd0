"""Reading a scan, as a reader of MONAI: NIfTI, MGZ, NRRD, MetaImage, DICOM series."""

import gzip
import io
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.data import ImageReader, ITKReader
from monai.utils import ensure_tuple, optional_import
from nibabel.spatialimages import HeaderDataError, SpatialImage

from ..errors import InputError
from ..files import ANALYZE, ITK, VOLUMES, ends_as, unfetched
from ..stack import intensity
from ..stack.grid import MAX_SHEAR, is_flat, shear_angle, voxel_spacing
from . import dicom

itk, has_itk = optional_import("itk")

MOST_VOXELS = 2**30  # of a volume; a header of more is broken, or would fill the memory
EXTENSIONS = 2**24  # bytes of a packed NIfTI header, at most; converters keep DICOM headers there
FOOTER = 2**20  # bytes behind the voxels, such as the tags of MGZ
NO_SPACE = (
    "the NRRD header has no space: it is taken that its axes run to the patient's left, back and head. Check it, and "
    "convert the scan to NIfTI."
)
NO_FORM = (
    "the NIfTI header has neither an sform nor a qform: which side is the patient's left is not known. Check it; the "
    "result says as little."
)
WRAPPED = (
    "bright tissue is negative beside the brightest: values above 32767 were stored as signed numbers of 16 bits. "
    "65536 is added to them."
)
NO_SFORM = "the sform of the header is no grid: the qform is used."
TWO_GRIDS = "the header denies itself: its voxels are {} mm by the sform, which is used, and {} mm by the qform."
OTHER_SPACE = "the sform of the header shears or scales the head, as into a standard space: the qform is used."
SCANNER, STANDARD = (1, 2), 3  # codes of a qform of the scanner or of an aligned scan; least code of a standard space


class ScanReader(ImageReader):
    """Reads one complete 3-D volume of real numbers, and the facts of its file."""

    def verify_suffix(self, filename: Sequence[str | os.PathLike] | str | os.PathLike) -> bool:
        """Whether all names have the ending of a volume. A `dicom.Series` needs none."""
        return all(isinstance(one, dicom.Series) or ends_as(str(one), VOLUMES) for one in ensure_tuple(filename))

    def read(self, data: Any, **kwargs: Any) -> tuple[str, Any]:
        """Name and image, of nibabel, of a path, a `dicom.Series` or an image in memory."""
        (source,) = ensure_tuple(data)
        if isinstance(source, SpatialImage):
            return source.get_filename() or "the scan", _on_a_grid(source)
        if isinstance(source, dicom.Series):
            return source.name, dicom.read_series(source)
        path = Path(source)
        return str(path), _by_itk(path) if ends_as(path, ITK) else _by_nibabel(path)

    def get_data(self, img: tuple[str, Any]) -> tuple[np.ndarray, dict]:
        """Voxels `(X, Y, Z)`, float32, of an image that `read` opened, and meta data.

        - `affine`: voxel -> mm, RAS;
        - `filename_or_obj`: the scan's name;
        - `stated`: facts of the acquisition in the file, each with its source: `slice_axis`, of the array,
          `slice_thickness`, in mm, and `packages`, of `packages.by_times`, where they are known;
        - `header`, of NIfTI: fields that hold for a result as well;
        - `warning`: for people, on the way in which the file was read;
        - `series`, of DICOM: its description and date.
        """
        name, image = img
        meta = {"filename_or_obj": name, "affine": image.affine, "original_channel_dim": "no_channel", "stated": {}}
        if isinstance(image, nib.Nifti1Pair):
            meta["header"] = _header(image)
            if (axis := image.header.get_dim_info()[2]) is not None:
                meta["stated"] = {"slice_axis": [axis, "the NIfTI header (dim_info)"]}
        stored, extra = _voxels(name, image), dict(image.extra)
        if (array := unwrapped(stored, image)) is not stored:
            extra["warning"] = " ".join(one for one in (extra.get("warning"), WRAPPED) if one)
        return array, {**meta, **extra}


def pair(path: Path) -> list[Path]:
    """Header and voxels of a NIfTI pair, by the path of either, as far as they are there; else the path alone."""
    ways = [(ending, ending.upper()) for ending in ANALYZE] if ends_as(path, ANALYZE) else []
    found = [next(filter(Path.is_file, map(path.with_suffix, endings)), None) for endings in ways]
    return [one for one in found if one] or [path]


def no_volume(image: Any) -> str | None:
    """Why an image of `ScanReader.read` is no 3-D volume of real numbers, from its header alone; None if it is one."""
    dtype, shape = image.get_data_dtype(), tuple(int(n) for n in image.shape)
    if dtype.fields is not None or dtype.kind not in "iuf":
        return f"holds {dtype} voxels: expected one real number each. Save one channel of it"
    if len(shape) < 3 or 0 in shape or any(n != 1 for n in shape[3:]):
        return f"has shape {shape}: expected a 3-D volume. Save one volume of it"
    if math.prod(shape) > MOST_VOXELS:
        return f"has shape {shape}: expected at most {MOST_VOXELS} voxels. Save a part of it"
    return None


def data_file(path: Path) -> Path | None:
    """The file with the voxels of an NRRD or MetaImage header; None where they follow the header itself.

    A header may come from anybody. A name of another file of this machine would bring out its bytes as an image.
    """
    nrrd = ends_as(path, (".nrrd", ".nhdr"))
    field = rb"^[ \t]*data ?file[ \t]*:" if nrrd else rb"ElementDataFile\s*[=:]"
    header = path.read_bytes().replace(b"\r", b"\n")
    names = [os.fsdecode(name).strip() for name in re.findall(field + rb"([^\n]*)", header, re.I | re.M)]
    if not names or (not nrrd and set(names) <= {"LOCAL", "Local", "local"}):
        return None
    place = path.parent / names[0]
    one_name = len(names) == 1 and re.fullmatch(r"(\./)?(?!LIST)[^/\\%\0]+", names[0])  # neither a list nor a pattern
    if not one_name or os.path.dirname(os.path.realpath(place)) != os.path.realpath(path.parent):
        raise InputError(
            f"{path} takes its voxels from {', '.join(names)}: expected one file in its own folder. Save header and "
            "voxels in one file."
        )
    return place


def _by_itk(path: Path) -> SpatialImage:
    if not has_itk:
        raise InputError(f"{path} needs ITK: pip install itk-core itk-io itk-numerics, or convert the scan to NIfTI.")
    try:
        data_file(path)
        is_nrrd = ends_as(path, (".nrrd", ".nhdr"))
        kind = (itk.NrrdImageIO if is_nrrd else itk.MetaImageIO).New()  # whatever else the file may be
        kind.SetFileName(str(path))
        kind.ReadImageInformation()
        if (count := kind.GetNumberOfComponents()) > 1:
            raise InputError(f"{path} has {count} values in each voxel: expected one. Save one volume of it.")
        array, meta = (reader := ITKReader(imageio=kind)).get_data(reader.read(path))
        header = path.read_bytes()[: 1 << 16].replace(b"\r", b"").partition(b"\n\n")[0]
        unplaced = is_nrrd and not re.search(rb"^space *:", header, re.IGNORECASE | re.MULTILINE)
        return SpatialImage(array, meta["affine"], extra={"warning": NO_SPACE} if unplaced else {})
    except InputError:
        raise
    except Exception as error:  # ITK raises RuntimeError with a page of text
        raise InputError(f"{path} cannot be read by ITK. Convert or download it again.") from error


def _by_nibabel(path: Path) -> SpatialImage:
    try:
        if ends_as(path, (".nii.gz",)):
            _check_extensions(path)
        image = _on_a_grid(nib.load(path.absolute()))  # nibabel takes a leading ~ for a home
    except Exception as error:  # nibabel raises many types for a broken file
        raise _unreadable(path, error) from error
    if isinstance(image, nib.AnalyzeImage) and not isinstance(image, nib.Nifti1Pair):
        raise InputError(
            f"{path} is in the Analyze format, which does not say which side is the patient's left: expected NIfTI. "
            "Convert it where that is known."
        )
    return image  # type: ignore[return-value]


def _check_extensions(path: Path) -> None:
    """Refuses a packed NIfTI whose header would unpack to more than `EXTENSIONS`; nibabel reads it by its own sizes."""
    with gzip.open(path) as file:
        start = file.read(4)
        second = 540 in (int.from_bytes(start, order) for order in ("little", "big"))
        kind = nib.Nifti2Header if second else nib.Nifti1Header
        start += file.read(kind.sizeof_hdr)  # and the four bytes that say whether there are extensions
        if start[kind.sizeof_hdr :].strip(b"\0"):
            try:
                kind.from_fileobj(io.BytesIO(start + file.read(EXTENSIONS)))
            except HeaderDataError as error:
                raise ValueError(f"its header extensions go beyond {EXTENSIONS >> 20} MB or are broken") from error


def _on_a_grid(image: Any) -> Any:
    """A NIfTI image by its qform where its sform is none of the scanner's; any other image as it is.

    Some programs leave an sform that is no grid. Others put there a transform to a standard space, which shears and
    scales the head.
    """
    if not isinstance(image, nib.Nifti1Pair):
        return image
    (sform, code), qform = image.header.get_sform(coded=True), _qform(image)
    if sform is None and not image.header["qform_code"]:
        image.extra["warning"] = NO_FORM
    if sform is None or qform is None or is_flat(qform):
        return image
    warning, stated = "", int(image.header["qform_code"])
    if is_flat(sform):
        warning = NO_SFORM if stated or not sform[:3].any() else ""
    elif stated in SCANNER:
        edges = voxel_spacing(sform), voxel_spacing(qform)
        scaled = not np.allclose(*edges, rtol=0.01)
        if (scaled and code >= STANDARD) or shear_angle(sform) > MAX_SHEAR:
            warning = OTHER_SPACE
        elif scaled:
            image.extra["warning"] = TWO_GRIDS.format(*(" x ".join(f"{one:.3g}" for one in each) for each in edges))
    if not warning:
        return image
    header = image.header.copy()
    header.set_sform(None, code=0)
    header.set_qform(qform, code=stated or code)
    return type(image)(image.dataobj, qform, header, extra={"warning": warning}, file_map=image.file_map)


def _qform(image: nib.Nifti1Pair) -> np.ndarray | None:
    """The affine of a header's quaternion; None of one that is no rotation, as rounded ones may be."""
    try:
        return image.header.get_qform()
    except ValueError:
        return None


def unwrapped(stored: np.ndarray, image: Any) -> np.ndarray:
    """Voxels of an image by `intensity.unwrapped`, where they are signed numbers of 16 bits that nothing scales."""
    scaled = getattr(image.dataobj, "slope", 1) != 1 or getattr(image.dataobj, "inter", 0) != 0
    return stored if image.get_data_dtype() != np.int16 or scaled else intensity.unwrapped(stored)


def _unreadable(name: object, error: Exception) -> InputError:
    mend = unfetched(Path(str(name))) or "Convert or download it again."
    return InputError(f"{name} cannot be read ({' '.join(str(error).split())}). {mend}")


def _voxels(name: str, image: Any) -> np.ndarray:
    if why := no_volume(image):
        raise InputError(f"{name} {why}.")
    try:
        unit = image.header.get_xyzt_units()[0] if isinstance(image, nib.Nifti1Pair) else "mm"
        if ends_as(name, (".gz", ".mgz")) and not image.in_memory:
            most = image.dataobj.offset + math.prod(image.shape) * image.get_data_dtype().itemsize + FOOTER
            with gzip.open(name) as file:
                while part := file.read(1 << 20):  # to the end, where the checksum is
                    most -= len(part)
                    if most < 0:
                        raise ValueError("it unpacks to more than its header says")
        lost = image.in_memory and nib.is_proxy(image.dataobj)  # its file may be gone
        array = np.asanyarray(image.get_fdata() if lost else image.dataobj)
    except Exception as error:
        raise _unreadable(name, error) from error
    if unit not in ("mm", "unknown"):
        raise InputError(f"{name} states its lengths in {unit}s: expected mm. Scale its affine and save it in mm.")
    with np.errstate(over="ignore"):  # infinity is refused later
        return array.reshape(array.shape[:3]).astype(np.float32)


def _header(image: nib.Nifti1Pair) -> dict[str, int]:
    """Fields of a NIfTI header that hold for the rebuilt scan as they stand."""
    fields = {name: int(image.header[name]) for name in ("sform_code", "qform_code", "dim_info", "xyzt_units")}
    qform = _qform(image)
    if qform is None or not np.allclose(qform, image.affine, atol=1e-3):  # it says another place, and is not kept
        fields["qform_code"] = fields["sform_code"]
    return fields
