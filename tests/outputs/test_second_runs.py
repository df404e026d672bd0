"""Second runs: what is complete is left alone, what is changed, missing or harmed is done again, and nothing else."""

import os
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_forward_hook

from scripts.method.weights import write_card
from scripts.rebuild.preprocessing import SettleAcquisitiond
from tests.cohort_files import AXIAL, nan_scan, outcomes, record, summary, texture
from tests.fixtures import CARD
from tests.pages.test_page import pictures


def test_a_second_run_does_only_what_is_new_and_what_failed_and_removes_what_a_killed_one_had_begun(
    folder, bundle, write_nifti
):
    (folder / "c.nii.gz").unlink()
    write_nifti(nan_scan(), AXIAL, "scans/b.nii.gz")
    bundle.out.mkdir()
    kept = [bundle.out / name for name in (".123-ab_sr.nii.gz", ".123-a_sr.nii.gz.txt", "123-a_sr.nii.gz")]
    begun = [bundle.out / name for name in (".123-a_sr.nii.gz", ".45-a_sr.json", ".6-b_sr.html")]
    for path in (*kept, *begun):
        path.write_text("half")
    seen = []
    for outcome in ("rebuilt", "complete already"):
        with pytest.raises(SystemExit, match="1 of 2"):
            bundle(folder)
        assert outcomes(bundle.out) == [outcome, "failed"]
        rows = [{**row, "outcome": ""} for row in summary(bundle.out)]
        seen.append((rows, {path: path.stat().st_mtime_ns for path in bundle.out.rglob("*_sr.*")}))
    assert seen[0] == seen[1]
    assert all(path.exists() for path in kept) and not any(path.exists() for path in begun)
    for name in "bd":
        write_nifti(texture(), AXIAL, f"scans/{name}.nii.gz")
    bundle(folder)
    assert outcomes(bundle.out) == ["complete already", "rebuilt", "rebuilt"]


class Settled(SettleAcquisitiond):
    """A transform of one's own."""


def test_what_a_result_is_made_of_redoes_it_and_nothing_else_does(scan, bundle, write_nifti):
    """No result depends on a file's time or place, on a precision that a machine chooses, on a version's last number.

    Step by step, a change each; those that change no result come at once.
    """
    sidecar, moved = scan.with_name("scan.json"), bundle.weights.with_name("moved.pt")
    bundle(scan, **(given := {"_meta_::version": "0.5.0", "inferer::bfloat16": False, "bfloat16": None}))
    times, weights = scan.stat(), torch.load(bundle.weights, weights_only=True)

    def other_voxels():
        write_nifti(texture(seed=1), AXIAL)
        os.utime(scan, ns=(times.st_atime_ns, times.st_mtime_ns))

    def other_weights():
        weights["apn.unet.conv_out.bias"] += 0.5
        torch.save(weights, bundle.weights)
        write_card(bundle.weights, CARD)

    def nothing_that_counts():
        scan.touch()
        for ending in (".pt", ".json"):
            bundle.weights.with_suffix(ending).rename(moved.with_suffix(ending))

    for change, options in (
        (other_voxels, {}),
        (lambda: sidecar.write_text('{"SliceThickness": 3}'), {}),
        (sidecar.unlink, {}),
        (other_weights, {}),
        (lambda: write_card(bundle.weights, replace(CARD, n_max=1)), {}),
        (None, {"slice_thickness": 3, "inferer::overlap": 0.5}),
        (None, {"preprocessing::transforms::1::_target_": "tests.outputs.test_second_runs.Settled"}),
        (None, {"_meta_::version": "0.6.0"}),
        (nothing_that_counts, {"_meta_::version": "0.6.9", "ckpt_path": str(moved), "inferer::bfloat16": True}),
        (None, {"bfloat16": "true"}),
    ):
        if change:
            change()
        same = change is nothing_that_counts
        given |= {**options, **({"inferer::progress": True, "inferer::sw_batch_size": 2} if same else {})}
        bundle(scan, **given)
        assert outcomes(bundle.out) == ["complete already" if same else "rebuilt"], (change, options)
    assert record(bundle.out)["Bfloat16"] is True


def test_what_is_missing_or_harmed_is_done_again(scan, bundle):
    bundle(scan, report=True)
    for name, content, outcome in (
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


@contextmanager
def no_network_runs():
    ran: list = []
    with register_module_forward_hook(lambda *call: ran.append(call)):
        yield
    assert not ran


@pytest.mark.parametrize("form", ["nifti", pytest.param("dicom", marks=pytest.mark.slow)])
def test_a_page_is_added_to_a_complete_result_wherever_that_is_now_and_goes_with_it(form, series, bundle):
    """No network runs, the result is left as it is, and the page is that of a run that wrote both."""
    bundle(series, output_format=form)
    first, (moved, both) = summary(bundle.out), (bundle.out.with_name(name) for name in ("moved", "both"))
    bundle.out.rename(moved)
    before = {p: p.stat().st_mtime_ns for p in moved.rglob("*sr*") if p.suffix != ".json"}
    given = {"output_format": form, "report": True}
    with no_network_runs():
        bundle(series, output_dir=str(moved), **given)
    assert outcomes(moved) == ["page written"]
    assert {p: p.stat().st_mtime_ns for p in before} == before
    assert [{**row, "outcome": "rebuilt"} for row in summary(moved)] == first
    bundle(series, output_dir=str(both), **given)
    pages = [next(folder.glob("*.html")).read_text(encoding="utf-8") for folder in (moved, both)]
    for (_, found), (_, expected) in zip(*map(pictures, pages), strict=True):
        assert np.abs(found.astype(int) - expected).max() <= (0 if form == "nifti" else 3), "DICOM holds integers"
    bundle(series, output_dir=str(moved), output_format=form, slice_thickness=3)
    assert outcomes(moved) == ["rebuilt"] and [path.name for path in moved.glob("*.html")] == ["index.html"]


def test_a_result_outlives_a_guide_that_cannot_be_taken_and_a_scan_that_cannot_be_read(scan, bundle, write_nifti):
    """It counts again with its own scan. A guide is looked at before the old record is removed."""
    bundle(scan)
    own, before, (row,) = scan.read_bytes(), (bundle.out / "scan_sr.json").read_bytes(), summary(bundle.out)
    guide = write_nifti(texture((12, 14, 20), seed=3), np.eye(4), "guides/sharp.nii.gz")
    for options, why in (({"guide": str(guide)}, "trained without guides"), ({}, "NaN")):
        if not options:
            write_nifti(nan_scan(), AXIAL)
        with pytest.raises(SystemExit):
            bundle(scan, **options)
        (failed,) = summary(bundle.out)
        assert failed == {**row, "outcome": "failed", "warnings": failed["warnings"]} and why in failed["warnings"]
        assert (bundle.out / "scan_sr.json").read_bytes() == before
    scan.write_bytes(own)
    bundle(scan)
    assert outcomes(bundle.out) == ["complete already"]
