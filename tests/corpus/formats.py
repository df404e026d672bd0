"""MGZ, NRRD and MetaImage."""

from pathlib import Path

import nibabel as nib
import numpy as np
from monai.utils import optional_import

from scripts.inputs import readers
from tests.corpus.given import AXIAL, SCAN, Given, Maker, before, content, nifti, rewritten, turned

itk, HAS_ITK = optional_import("itk")


def without_itk() -> None:
    readers.has_itk = False


def itk_image(ending: str, array=SCAN, affine=AXIAL, compress=True, **options) -> Maker:
    """NRRD or MetaImage, as ITK writes it."""

    def make(folder: Path) -> Given:
        image = itk.image_from_array(np.ascontiguousarray(array.T))
        lps, edges = np.diag([-1, -1, 1, 1]) @ affine, np.linalg.norm(affine[:3, :3], axis=0)
        image.SetOrigin(lps[:3, 3].tolist())
        image.SetSpacing(edges.tolist())
        image.SetDirection(itk.matrix_from_array(lps[:3, :3] / edges))
        itk.imwrite(image, str(folder / f"scan.{ending}"), compression=compress)
        return Given(folder / f"scan.{ending}", [(array, affine)], options)

    return make


def nrrd(directions="(1,0,0) (0,1,0) (0,0,4)", sizes="6 7 5", kind="float", data=SCAN, more="", scans=()) -> Maker:
    """NRRD with a header of our own."""
    header = (
        f"NRRD0004\ntype: {kind}\ndimension: {len(sizes.split())}\nspace: right-anterior-superior\nsizes: {sizes}\n"
        f"space directions: {directions}\nendian: little\nencoding: raw\nspace origin: (0,0,0)\n{more}\n"
    )
    make_file = content(header.encode() + np.asarray(data).tobytes(order="F"), "scan.nrrd")
    return lambda folder: Given(make_file(folder).source, list(scans))


ELSEWHERE = b"NDims = 3\nDimSize = 2 2 3\nElementType = MET_UCHAR\nElementDataFile = /etc/hostname\n"

CORPUS: list[tuple[str, Maker, str]] = [
    # other formats
    ("MGZ", nifti(name="scan.mgz", kind=nib.MGHImage, affine=turned()), "correct"),
    (
        "MGZ of several volumes",
        nifti(np.stack([SCAN] * 2, -1), name="scan.mgz", kind=nib.MGHImage, truth=(SCAN, AXIAL)),
        r"\(6, 7, 5, 2\)",
    ),
    ("NRRD without ITK", before(without_itk, content(b"NRRD0004\n", "scan.nrrd")), "scan.nrrd needs ITK.*pip install"),
]
if HAS_ITK:
    CORPUS += [
        *[(f".{e}", itk_image(e, affine=turned()), "correct") for e in ("nrrd", "nhdr", "mha", "mhd")],
        (
            "NRRD of colours",
            nrrd(
                "none (1,0,0) (0,1,0) (0,0,4)",
                "3 6 7 5",
                data=np.stack([SCAN] * 3),
                more="kinds: RGB-color domain domain domain\n",
            ),
            r"scan\.nrrd has 3 values in each voxel",
        ),
        ("NRRD with sheared directions", nrrd("(1,0,0) (0,1,0) (0,1,4)"), "scan.nrrd.*(sheared|cannot be read)"),
        ("NRRD cut within its voxels", rewritten(lambda d: d[:-100], nrrd()), "scan.nrrd cannot be read"),
        ("MHD that names a file elsewhere", content(ELSEWHERE, "scan.mhd"), "takes its voxels from /etc/hostname"),
    ]
