"""The spool: whose images a series has, what is removed, and which folders are none."""

import os
import time

import pytest

from drift_mri.spool import Spool
from scripts.errors import InputError
from tests.node.peers import file_of, thick


@pytest.mark.parametrize("other", [{"PatientName": "Roe^Ann"}, {"PatientID": "18"}])
def test_images_of_another_name_or_another_number_are_of_two_patients(other, tmp_path):
    spool = Spool(tmp_path / "spool")
    images = [*thick()[:2], *thick(**other)[2:4]]
    for count, image in enumerate(images, start=1):
        spool.keep("1.2.3.1", image.SOPInstanceUID, file_of(image))
        assert spool.patients("received", "1.2.3.1") == 1 + (count > 2)


def test_what_was_sent_is_removed_after_its_days_and_nothing_else(tmp_path):
    spool = Spool(tmp_path / "spool")
    day = 86400
    for state, name, age in (("done", "1", 8), ("done", "2", 6), ("aside", "3", 99), ("sending", "4", 99)):
        for folder in (spool.path / state / name, spool.path / "results" / name):
            folder.mkdir()
            os.utime(folder, (time.time() - age * day,) * 2)
    spool.tidy(7)
    assert [spool.names(state) for state in ("done", "aside", "sending")] == [["2"], ["3"], ["4"]]
    assert sorted(spool.names("results")) == ["2", "3", "4"]


def test_a_folder_of_other_things_is_no_spool(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "of mine.txt").write_text("x")
    with pytest.raises(InputError, match="holds other things"):
        Spool(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_an_empty_folder_is_closed_to_others_and_a_spool_that_is_open_to_all_is_refused(tmp_path):
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(0o755)
    Spool(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o750)
    Spool(folder)
    assert folder.stat().st_mode & 0o777 == 0o750, "a group that somebody chose"
    folder.chmod(0o755)
    with pytest.raises(InputError, match="is open to everybody"):
        Spool(folder)
