"""Second runs: what is complete is left alone, what is changed, missing or harmed is done again, and nothing else."""

import os
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

from scripts.inputs.transforms import SettleAcquisitiond
from scripts.method.weights import write_card
from tests.cohort_files import AXIAL, nan_scan, outcomes, record, summary, texture
from tests.fixtures import CARD
from tests.pages.test_page import pictures


def test_a_second_run_does_only_what_is_new_and_what_failed(folder, bundle, write_nifti):
    write_nifti(nan_scan(), AXIAL, "scans/b.nii.gz")
    seen = []
    for outcome in ("rebuilt", "complete already"):
        with pytest.raises(SystemExit, match="1 of 3"):
            bundle(folder)
        assert outcomes(bundle.out) == [outcome, "failed", outcome]
        rows = [{**row, "outcome": ""} for row in summary(bundle.out)]
        seen.append((rows, {path: path.stat().st_mtime_ns for path in bundle.out.rglob("*_sr.*")}))
    assert seen[0] == seen[1]
    write_nifti(texture(), AXIAL, "scans/b.nii.gz")
    write_nifti(texture(), AXIAL, "scans/d.nii.gz")
    bundle(folder)
    assert outcomes(bundle.out) == ["complete already", "rebuilt", "complete already", "rebuilt"]


def test_what_a_killed_run_had_begun_to_write_is_removed(folder, bundle):
    bundle.out.mkdir()
    kept = [bundle.out / name for name in (".123-ab_sr.nii.gz", ".123-a_sr.nii.gz.txt", "123-a_sr.nii.gz")]
    begun = [bundle.out / name for name in (".123-a_sr.nii.gz", ".45-a_sr.json", ".6-b_sr.html")]
    for path in (*kept, *begun):
        path.write_text("half")
    bundle(folder)
    assert all(path.exists() for path in kept)
    assert not any(path.exists() for path in begun)


class Settled(SettleAcquisitiond):
    """A transform of one's own."""


def test_what_changes_a_result_redoes_it_and_nothing_else_does(scan, bundle):
    """A machine that chooses another precision changes none, and the third number of a version promises the same."""
    given = {"bfloat16": None}
    for change, outcome in (
        ({"inferer::bfloat16": False}, "rebuilt"),
        ({"inferer::bfloat16": True}, "complete already"),
        ({"inferer::progress": True, "inferer::sw_batch_size": 2}, "complete already"),
        ({"slice_thickness": 3, "inferer::overlap": 0.5}, "rebuilt"),
        ({"preprocessing::transforms::1::_target_": "tests.outputs.test_second_runs.Settled"}, "rebuilt"),
        ({"_meta_::version": "0.5.0"}, "rebuilt"),
        ({"_meta_::version": "0.5.9"}, "complete already"),
        ({"bfloat16": "true"}, "rebuilt"),
    ):
        given |= change
        bundle(scan, **given)
        assert outcomes(bundle.out) == [outcome], change
    assert record(bundle.out)["Bfloat16"] is True


def test_changed_weights_or_a_changed_card_redo_and_the_same_elsewhere_do_not(scan, bundle):
    weights = torch.load(bundle.weights, weights_only=True)
    for bias, changed in ((0.0, {}), (0.5, {}), (0.0, {"n_max": 1})):
        weights["apn.unet.conv_out.bias"] += bias
        torch.save(weights, bundle.weights)
        write_card(bundle.weights, replace(CARD, **changed))
        bundle(scan)
        assert outcomes(bundle.out) == ["rebuilt"], (bias, changed)
    for ending in (".pt", ".json"):
        bundle.weights.with_suffix(ending).rename(bundle.weights.with_name("moved" + ending))
    bundle(scan, ckpt_path=str(bundle.weights.with_name("moved.pt")))
    assert outcomes(bundle.out) == ["complete already"]


def test_a_changed_input_or_sidecar_redoes_whatever_its_time_says(scan, bundle, write_nifti):
    bundle(scan)
    times, sidecar = scan.stat(), scan.with_name("scan.json")
    write_nifti(texture(seed=1), AXIAL)
    os.utime(scan, ns=(times.st_atime_ns, times.st_mtime_ns))
    for change in (lambda: None, lambda: sidecar.write_text('{"SliceThickness": 3}'), sidecar.unlink):
        change()
        bundle(scan)
        assert outcomes(bundle.out) == ["rebuilt"]
    scan.touch()
    bundle(scan)
    assert outcomes(bundle.out) == ["complete already"], "a new time alone is no change"


def test_what_is_missing_or_harmed_is_done_again(scan, bundle):
    bundle(scan, report=True)
    for name, content, outcome in (
        ("scan_sr.json", None, "rebuilt"),
        ("scan_sr.json", b"[]", "rebuilt"),
        ("scan_sr.nii.gz", None, "rebuilt"),
        ("scan_sr.nii.gz", b"harmed", "rebuilt"),
        ("scan_sr.html", b"harmed", "page written"),
    ):
        path = bundle.out / name
        good = path.read_bytes()
        path.unlink() if content is None else path.write_bytes(content)
        bundle(scan, report=True)
        assert outcomes(bundle.out) == [outcome], (name, content)
        assert path.stat().st_size == pytest.approx(len(good), abs=20), "the record tells the time"
        assert list(record(bundle.out)["Results"]) == ["scan_sr.nii.gz", "scan_sr.html"]
    bundle(scan, report=True)
    assert outcomes(bundle.out) == ["complete already"]


@contextmanager
def no_network_runs():
    ran: list = []
    with register_module_forward_hook(lambda *call: ran.append(call)):
        yield
    assert not ran


@pytest.mark.parametrize("form", ["nifti", pytest.param("dicom", marks=pytest.mark.slow)])
def test_a_page_is_added_to_a_complete_result_without_the_networks(form, series, bundle):
    """Its result is left as it is, and the page is that of a run that wrote both."""
    bundle(series, output_format=form)
    before = {p: p.stat().st_mtime_ns for p in bundle.out.rglob("*sr*") if p.suffix != ".json"}
    first = summary(bundle.out)
    with no_network_runs():
        bundle(series, output_format=form, report=True)
    assert outcomes(bundle.out) == ["page written"]
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert [{**row, "outcome": "rebuilt"} for row in summary(bundle.out)] == first
    both = bundle.out.with_name("both")
    bundle(series, output_format=form, report=True, output_dir=str(both))
    pages = [next(folder.glob("*.html")).read_text(encoding="utf-8") for folder in (bundle.out, both)]
    for (_, found), (_, expected) in zip(*map(pictures, pages), strict=True):
        assert np.abs(found.astype(int) - expected).max() <= (0 if form == "nifti" else 3), "DICOM holds integers"


def test_a_result_outlives_a_scan_that_cannot_be_read_and_counts_again_with_its_own(scan, bundle, write_nifti):
    bundle(scan)
    own, (row,) = scan.read_bytes(), summary(bundle.out)
    write_nifti(nan_scan(), AXIAL)
    with pytest.raises(SystemExit):
        bundle(scan)
    (failed,) = summary(bundle.out)
    assert failed == {**row, "outcome": "failed", "warnings": failed["warnings"]} and "NaN" in failed["warnings"]
    scan.write_bytes(own)
    bundle(scan)
    assert outcomes(bundle.out) == ["complete already"]


def test_a_folder_that_has_moved_is_complete_where_it_is_now_and_an_old_page_does_not_outlive_its_result(scan, bundle):
    bundle(scan)
    moved = bundle.out.rename(bundle.out.with_name("moved"))
    for outcome in ("page written", "complete already"):
        bundle(scan, output_dir=str(moved), report=True)
        assert outcomes(moved) == [outcome] and summary(moved)[0]["result"] == "scan_sr.nii.gz"
    bundle(scan, output_dir=str(moved), slice_thickness=3)
    assert not (moved / "scan_sr.html").exists()


def test_a_guide_that_cannot_be_taken_loses_no_result(scan, bundle, write_nifti):
    """It is looked at before the old record is removed; these weights know no guides."""
    bundle(scan)
    before = (bundle.out / "scan_sr.json").read_bytes()
    guide = write_nifti(texture((12, 14, 20), seed=3), np.eye(4), "guides/sharp.nii.gz")
    with pytest.raises(SystemExit):
        bundle(scan, guide=str(guide))
    (row,) = summary(bundle.out)
    assert row["outcome"] == "failed" and "trained without guides" in row["warnings"] and row["result"]
    assert (bundle.out / "scan_sr.json").read_bytes() == before
    bundle(scan)
    assert outcomes(bundle.out) == ["complete already"]
