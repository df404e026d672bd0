"""What each scan of an examination is: one table of situations, and the role of every file in each."""

import re
from pathlib import Path

import numpy as np
import pytest

from scripts.errors import InputError
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
        said[short(scan.name, root)] = f"thick {scan.identity.contrast}{guide}: {facts}"
    return said


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_each_scan_of_an_examination_is_what_it_shows(name, tmp_path):
    expected = situations.make(name, tmp_path)
    found = roles(tmp_path)
    key = {one: one.split("/")[-1] if tmp_path.joinpath("sub-1").exists() else one for one in found}
    found = {key[one]: role for one, role in found.items()}
    assert found.keys() == expected.keys()
    for one, role in expected.items():
        assert re.match(role, found[one]), (one, found[one])
        assert " by " not in found[one].partition(":")[0] or " by " in role


def test_real_world_slopes_are_used(tmp_path):
    situations.make("a slope for each slice", tmp_path)
    (scan,) = scans(tmp_path, tmp_path / "out", Selection(THIN))
    np.testing.assert_allclose(LoadScand("image")({"image": scan.source})["image"][0], situations.head(), atol=1.6)
