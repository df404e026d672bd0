"""Inputs as users give them: the makers that the kinds of the corpus share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import nibabel as nib
import numpy as np
from scipy.spatial.transform import Rotation

from tests.cohort_files import AXIAL, texture

SCAN = texture()


@dataclass
class Given:
    """An input as a user gives it.

    Attributes:
        source: of the option `input`.
        scans: voxels and affine of the scans that must come out, in the order of the results' names.
        options: others.
        before: what happens in the process before it runs.
        output: folder of the results, within the case's own folder.
    """

    source: Path | str | list
    scans: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    options: dict = field(default_factory=dict)
    before: Callable[[], None] = lambda: None
    output: str = "out"


Maker = Callable[[Path], Given]  # fills a folder


def nifti(array=SCAN, affine=AXIAL, name="scan.nii.gz", kind=nib.Nifti1Image, truth=None, **options) -> Maker:
    """A NIfTI file; `truth` where its voxels or affine are not those given."""

    def make(folder: Path) -> Given:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nib.save(kind(array, affine), path)
        true_array, true_affine = truth or (array, affine)
        return Given(path, [(true_array.reshape(true_array.shape[:3]), true_affine)], options)

    return make


def content(data: bytes, name="scan.nii.gz") -> Maker:
    """A file of any bytes."""

    def make(folder: Path) -> Given:
        (folder / name).write_bytes(data)
        return Given(folder / name)

    return make


PLAIN = nifti()
NONE_FOUND = "no thick-slice scan was found"


def rewritten(change: Callable[[bytes], bytes], maker: Maker = PLAIN, name=None, keep=False) -> Maker:
    """Another maker's file with its bytes changed."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        data = change(given.source.read_bytes())
        given.source.unlink()
        path = folder / (name or given.source.name)
        path.write_bytes(data)
        return Given(path, given.scans if keep else [], given.options)

    return make


def beside(maker: Maker, **files: str | bytes) -> Maker:
    """With other files next to it; their names with `__` for the dot."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        for name, text in files.items():
            data = text.encode() if isinstance(text, str) else text
            (folder / name.replace("__", ".")).write_bytes(data)
        return given

    return make


def folder_of(*makers: Maker, source=".") -> Maker:
    """The folder that the makers filled; each makes its scan in it."""

    def make(folder: Path) -> Given:
        given = [maker(folder) for maker in makers]
        scans = [scan for one in given for scan in one.scans]
        return Given(folder / source, scans, before=lambda: [one.before() for one in given])

    return make


def before(what: Callable[[], None], maker: Maker = PLAIN) -> Maker:
    def make(folder: Path) -> Given:
        given = maker(folder)
        given.before = what
        return given

    return make


def turned(degrees=(25, -40, 70), spacing=(-1.0, 1.0, 4.0), origin=(-91.3, 120.7, 33.1)) -> np.ndarray:
    affine = np.eye(4)
    affine[:3, :3] = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix() @ np.diag(spacing)
    affine[:3, 3] = origin
    return affine
