"""What each scan of an examination is: one table of situations, and the role of every file in each."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from scripts.errors import InputError
from scripts.inputs.dicom import select
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.inputs.transforms import LoadScand, SettleAcquisitiond
from scripts.stack.acquisition import Acquisition
from tests.corpus import situations
from tests.dicom_files import THIN
from tests.fixtures import CARD


def short(name, root):
    """A file below the folder without its ending; a series without number and mark."""
    if name.startswith(str(root)):
        return Path(name).relative_to(root).as_posix().removesuffix(".nii.gz")
    return re.sub(r"^\d+-(.*)-\w{6}$", r"\1", name)


def roles(root):
    """File or series -> what the command takes it for."""
    selection = Selection(THIN)
    try:
        found = scans(root, root / "out", selection, guide="auto")
    except InputError as error:
        assert "no thick-slice scan" in str(error)
        found = []
    said = {short(name, root): f"no: {why}" for name, why in selection.skipped}
    for scan in found:
        try:
            read = LoadScand("image")({"image": scan.source})
            a = Acquisition.of(SettleAcquisitiond("image", CARD)(read)["image"])
        except InputError as error:
            said[short(scan.name, root)] = f"fails: {error}"
            continue
        guide = f" by {short(scan.guides[0].scan.name, root).split('/')[-1]}" if scan.guides else ""
        facts = f"{a.slice_count} slices, {a.slice_thickness:g} mm; {' '.join(a.warnings)}"
        kind = "doubtful" if scan.mark else "thick"
        said[short(scan.name, root)] = f"{kind} {scan.identity.contrast}{guide}: {facts}"
    return said


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_each_scan_of_an_examination_is_what_it_shows(name, tmp_path):
    expected = situations.make(name, tmp_path)
    found = roles(tmp_path)
    key = {one: one.split("/")[-1] if tmp_path.joinpath("sub-1").exists() else one for one in found}
    found = {key[one]: role for one, role in found.items()}
    expected = {next(iter(found)): expected} if isinstance(expected, str) else expected
    assert found.keys() == expected.keys()
    for one, role in expected.items():
        assert re.match(role, found[one]), (one, found[one])
        assert " by " not in found[one].partition(":")[0] or " by " in role


def test_real_world_slopes_are_used(tmp_path):
    situations.make("a slope for each slice", tmp_path)
    (scan,) = scans(tmp_path, tmp_path / "out", Selection(THIN))
    np.testing.assert_allclose(LoadScand("image")({"image": scan.source})["image"][0], situations.head(), atol=1.6)


def test_a_header_is_read_once_to_find_out_what_it_is(tmp_path, monkeypatch):
    """Then its pixels, of a thin series that may guide."""
    situations.make("DICOM: a sharp T1w guides", tmp_path)
    opened = Counter()
    read = select.read_dataset
    monkeypatch.setattr(select, "read_dataset", lambda path, **how: opened.update([path]) or read(path, **how))
    scans(tmp_path, tmp_path / "out", Selection(THIN), guide="auto")
    assert len(opened) == 44 and set(opened.values()) == {1}


def test_slices_that_were_interpolated_are_taken_back_to_their_spacing(tmp_path):
    path = situations.nifti(tmp_path, "T2", situations.CUBE, situations.interpolated())
    volume = LoadScand("image")({"image": path})
    found = SettleAcquisitiond("image", CARD, slice_spacing=5.0)(volume)["image"]
    a = Acquisition.of(found)
    assert (a.slice_axis, a.slice_spacing, a.slice_thickness, a.slice_count) == (2, 5.0, 5.0, 8)
    assert "the slices were interpolated: one is taken every 5 mm along axis 2" in a.warnings
    middle = [np.asarray(one.affine) @ [*(np.array(one.shape[1:]) - 1) / 2, 1] for one in (volume["image"], found)]
    np.testing.assert_allclose(*middle, atol=1e-6)
    with pytest.raises(InputError, match="expected the larger spacing that they were interpolated from"):
        SettleAcquisitiond("image", CARD, slice_spacing=1.0)(volume)
