"""A dry run: it says of each scan what a run then does, and leaves no trace."""

import re

import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.errors import input_error
from scripts.outputs.plan import Stopwatch
from scripts.rebuild.inferer import DriftInferer
from scripts.stack.acquisition import Acquisition
from tests.cohort_files import AXIAL, nan_scan, outcomes, summary, texture

COLUMNS = ("what", "scan", "axis", "spacing", "thickness", "target", "steps", "time", "why")


def tree(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


@pytest.fixture
def dry_run(bundle, capsys, tmp_path):
    """Rows of the table, by column, and its last line; nothing may change."""

    def run(source, **given):
        before = tree(tmp_path)
        with pytest.raises(SystemExit) as stop:
            bundle(source, dry_run=given.pop("dry_run", True), **given)
        assert not stop.value.code and tree(tmp_path) == before
        head, *lines, last = capsys.readouterr().out.splitlines()
        starts = [re.search(rf"\b{name}\b", head).start() for name in COLUMNS]
        ends = [*starts[1:], None]
        rows = [{name: line[a:b].strip() for name, a, b in zip(COLUMNS, starts, ends)} for line in lines]
        return rows, last

    return run


@pytest.fixture
def mixed(write_nifti):
    """Slices of the last axis with a sidecar, of the first without, and a broken scan."""
    write_nifti(texture((24, 20, 6)), AXIAL, "scans/a.nii.gz").with_name("a.json").write_text('{"SliceThickness": 3}')
    write_nifti(texture((6, 20, 24)), np.diag([5.0, 1.0, 1.0, 1.0]), "scans/b.nii.gz")
    return write_nifti(nan_scan(), AXIAL, "scans/c.nii.gz").parent


def test_each_scan_has_its_facts_and_where_they_came_from(dry_run, mixed):
    (a, b, c), last = dry_run(mixed)
    assert (a["what"], a["axis"], a["spacing"], a["thickness"], a["target"], a["steps"]) == (
        *("rebuilt", "2", "4 mm", "3 mm", "1 mm", "1"),
    )
    assert a["scan"] == str(mixed / "a.nii.gz") and re.fullmatch(r"\d+ s", a["time"])
    assert "thickness: the sidecar a.json; target: the finer in-plane spacing" in a["why"]
    assert (b["axis"], b["spacing"], b["thickness"], b["steps"]) == ("0", "5 mm", "5 mm", "2")
    assert "axis: the largest spacing; thickness: the slice spacing, for want of better" in b["why"]
    assert c["what"] == "fails" and "has 1 NaN" in c["why"] and c["steps"] == c["time"] == ""
    assert last.startswith("3 scans, about ") and "estimates. Nothing was written." in last


def test_a_run_does_what_the_dry_run_says(dry_run, mixed, bundle):
    said, _ = dry_run(mixed)
    with pytest.raises(SystemExit):
        bundle(mixed)
    assert outcomes(bundle.out) == ["rebuilt", "rebuilt", "failed"]
    for row, done in zip(said[:2], summary(bundle.out)):
        assert (row["axis"], row["steps"]) == (done["slice_axis"], done["steps"])
        assert float(row["thickness"].split()[0]) == float(done["slice_thickness"])
    again, _ = dry_run(mixed)
    assert [row["what"] for row in again] == ["complete already", "complete already", "fails"]
    assert [row["what"] for row in dry_run(mixed, report=True)[0]] == ["page alone", "page alone", "fails"]
    assert [row["what"] for row in dry_run(mixed, target_thickness=0.9)[0]] == ["rebuilt", "rebuilt", "fails"]


@pytest.mark.parametrize("given", [False, "false"])
def test_without_it_a_run_is_a_run(given, bundle, mixed):
    bundle(mixed / "a.nii.gz", dry_run=given)
    assert outcomes(bundle.out) == ["rebuilt"]


def test_what_did_not_come_as_dicom_is_skipped_where_dicom_is_asked_for(dry_run, mixed, series):
    (nifti, dicom), _ = dry_run([mixed / "a.nii.gz", series], output_format="dicom", dry_run="true")
    assert (nifti["what"], nifti["why"], dicom["what"]) == ("skipped", "not DICOM", "rebuilt")


def test_thin_slices_are_copied(dry_run, write_nifti):
    (row,), last = dry_run(write_nifti(texture((12, 12, 12)), np.eye(4)))
    assert (row["what"], row["steps"], row["time"]) == ("copied", "0", "0 s") and "about 0 s in all" in last


def test_the_sample_is_not_written(bundle, tmp_path):
    before = tree(tmp_path)
    with pytest.raises(Exception) as caught:
        bundle(None, dry_run=True)
    assert "--dry_run lists the scans of --input, and there is none" in str(input_error(caught.value))
    assert tree(tmp_path) == before


def test_the_expected_time_grows_with_the_planes_and_is_measured_once_for_each_number_of_steps(drift):
    def stack(edge, thickness=4.0):
        volume = MetaTensor(torch.from_numpy(texture((edge, edge, 8)) + 500)[None], affine=torch.from_numpy(AXIAL))
        Acquisition.stack(2, 8, 4.0, thickness, 1.0).attach(volume)
        return volume

    watch = Stopwatch(drift, DriftInferer(n_max=2, both_planes=True), "cpu")
    small = watch.seconds(stack(32))
    assert small > 0 and watch.rates.keys() == {2}
    assert watch.seconds(stack(64)) == pytest.approx(4 * small)  # twice the planes, twice as long ones
    watch.parts[1].both_planes = False
    assert watch.seconds(stack(32)) == pytest.approx(small / 2)
    assert watch.seconds(stack(32, thickness=1.5)) > 0 and watch.rates.keys() == {1, 2}
