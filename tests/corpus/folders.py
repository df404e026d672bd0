"""Names, folders, links, rights, full disks, sidecars and BIDS datasets."""

import ctypes
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from tests.corpus.given import AXIAL, NONE_FOUND, PLAIN, SCAN, Given, Maker, before, beside, folder_of, nifti


def link(name: str, target: str, scans=()) -> Maker:
    def make(folder: Path) -> Given:
        (folder / name).symlink_to(target)
        return Given(folder / name, list(scans))

    return make


def foreign(folder: Path) -> None:
    folder.mkdir()
    (folder / "dataset_description.json").write_text('{"Name": "mine", "BIDSVersion": "1.9.0"}')


def nothing(folder: Path) -> Given:
    return Given(folder)


def obey_rights() -> None:
    """Root reads and writes what no one may, unless it gives up the capabilities for it."""
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.capget(header, data)
    data[0] &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    if libc.capset(header, data):
        raise OSError(ctypes.get_errno(), "capset")


def without_rights(maker: Maker, name: str, mode: int) -> Maker:
    """A file or folder of the case that this user may not read or write."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        path = (folder / name).resolve()
        path.mkdir(exist_ok=True) if not path.exists() else None
        path.chmod(mode)
        given.before = obey_rights
        return given

    return make


def output(name: str, maker: Maker = PLAIN, prepare: Callable[[Path], object] = lambda path: None) -> Maker:
    """Results go to `name`, relative to the case's folder, after something was done to it."""

    def make(folder: Path) -> Given:
        given = maker(folder)
        given.output = name
        prepare(folder.parent / name)
        return given

    return make


def full_disk() -> None:
    """No file may grow beyond 200 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))


def in_its_folder(name: str) -> Maker:
    """A scan named without its folder, from within it."""

    def make(folder: Path) -> Given:
        given = nifti(name="scan.nii.gz")(folder)
        given.source.rename(folder / name)
        return Given(name, given.scans, before=lambda: os.chdir(folder))

    return make


def sidecar(text: str | bytes, keep=False, **options) -> Maker:
    """A scan with a sidecar of this text."""
    make_scan = beside(nifti(**options), scan__json=text)
    return lambda folder: Given(make_scan(folder).source, make_scan(folder).scans if keep else [], options)


def bids(name: str, maker: Maker, sidecars=(), scans=None) -> Maker:
    """A dataset of one scan."""

    def make(folder: Path) -> Given:
        (folder / "dataset_description.json").write_text('{"Name": "x", "BIDSVersion": "1.9.0"}')
        (folder / name).parent.mkdir(parents=True)
        given = maker((folder / name).parent)
        if not isinstance(given.source, Path) or given.source != folder / name:
            os.rename(given.source, folder / name)
        for place, text in sidecars:
            (folder / place).write_text(text)
        return Given(folder, given.scans if scans is None else scans)

    return make


CORPUS: list[tuple[str, Maker, str]] = [
    # names, folders, rights
    ("a name with spaces and accents", nifti(name="M\u00fcller \u00c4 \u5934 (1).nii.gz"), "correct"),
    ("a name with signs of the config language", nifti(name="a@b$c%d/@scan.nii.gz"), "correct"),
    ("a name with #, which MONAI rewrites", nifti(name="a#b.nii.gz"), "does not exist"),
    ("a name with a line break", nifti(name="a\nb.nii.gz"), "correct"),
    ("a name that begins with a tilde", in_its_folder("~scan.nii.gz"), "correct"),
    ("a name that begins with a hyphen", in_its_folder("-scan.nii.gz"), "correct"),
    ("a name that begins with $", in_its_folder("./$scan.nii.gz"), "correct"),
    ("a path of 1500 characters", nifti(name="/".join(["x" * 99] * 15) + "/scan.nii.gz"), "correct"),
    ("a name of 255 characters", nifti(name="x" * 248 + ".nii.gz"), "too long"),
    ("a name of 230 characters", nifti(name="x" * 223 + ".nii.gz"), "correct"),
    ("a link to a scan", folder_of(nifti(), link("a_link.nii.gz", "scan.nii.gz", [(SCAN, AXIAL)])), "correct"),
    ("a link to nothing", link("scan.nii.gz", "nowhere"), "scan.nii.gz does not exist"),
    ("a link to nothing in a folder", folder_of(nifti(), link("lost.nii.gz", "nowhere")), r"lost\.nii\.gz"),
    ("a folder that holds a link to itself", folder_of(nifti(), link("loop", ".")), "correct"),
    (
        "a folder given through a link",
        folder_of(nifti(name="deep/scan.nii.gz"), link("way", "deep"), source="way"),
        "correct",
    ),
    (
        "a file without the right to read it",
        without_rights(nifti(), "scan.nii.gz", 0),
        r"Permission denied: .*scan\.nii\.gz",
    ),
    ("a folder without the right to read it", without_rights(nothing, ".", 0), "cannot be read"),
    ("a folder within, without the right to read it", without_rights(folder_of(nifti()), "locked", 0), "correct"),
    ("an empty name", lambda folder: Given(""), "--input is empty"),
    ("an empty folder", nothing, NONE_FOUND),
    ("results into the folder of the scans", output("in", folder_of(nifti())), "correct"),
    ("a file where the output folder should be", output("out", prepare=Path.touch), "out"),
    (
        "an output folder without the right to write",
        output("out", without_rights(nifti(), "../out", 0o500)),
        "[Pp]ermission",
    ),
    (
        "a folder where the result should be",
        output("out", prepare=lambda p: (p / "scan_sr.nii.gz").mkdir(parents=True)),
        "scan_sr.nii.gz",
    ),
    (
        "a folder where the summary should be",
        output("out", prepare=lambda p: (p / "summary.csv").mkdir(parents=True)),
        "summary.csv",
    ),
    ("a full disk", before(full_disk), "scan.*([Ff]ile too large|No space)"),
    # sidecars
    ("a sidecar with null", sidecar('{"SliceThickness": null}', keep=True), "correct"),
    (
        "a thickness in the wrong unit",
        sidecar('{"SliceThickness": 0.004}'),
        "SliceThickness of the sidecar scan.json is 0.004: expected",
    ),
    ("a broken sidecar", sidecar('{"SliceThickness": '), r"scan\.json cannot be read.*remove it"),
    ("a sidecar nested without end", sidecar('{"x": ' + "[" * 200000), r"scan\.json cannot be read"),
    ("a BIDS scan", bids("sub-1/anat/sub-1_T2w.nii.gz", nifti(), [("T2w.json", '{"SliceThickness": 3}')]), "correct"),
    (
        "a dataset into the folder of another one",
        output("other", bids("sub-1/anat/sub-1_T2w.nii.gz", PLAIN), foreign),
        "other is a dataset that DRIFT did not write",
    ),
    (
        "a BIDS scan that was not fetched",
        bids("sub-1/anat/sub-1_T2w.nii.gz", link("x", "../.git/annex/x")),
        "sub-1_T2w.nii.gz",
    ),
    (
        "a folder named as a BIDS scan",
        bids("sub-1/anat/sub-1_T2w.nii.gz", lambda f: [(f / "x").mkdir(), Given(f / "x")][1]),
        "sub-1_T2w.nii.gz",
    ),
]
