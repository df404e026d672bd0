"""Several stacks of one head from files to one result: what is written, what is said, and what is refused."""

import json
import re
from dataclasses import replace

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor

from scripts.inputs import dicom
from scripts.inputs.scans import scans
from scripts.inputs.selection import Selection
from scripts.method.weights import write_card
from scripts.outputs.stack_facts import check_fits, make_together
from scripts.rebuild.consistency import reconcile
from scripts.rebuild.motion import Motion
from scripts.rebuild.rebuilt import Rebuilt
from scripts.stack.grid import respaced_affine
from tests.bids_files import write
from tests.cohort_files import add, outcomes, record, results, summary
from tests.dicom_files import ORIENTATIONS, VOXELS, images_of, mr_slice, mr_slices, save, world
from tests.fixtures import CARD
from tests.rebuild.test_together import LESION, with_lesion
from tests.stacks import EDGE, motion, moved, person, restless, stack_of

MOVE = motion((2, -2, 3), (1, -2, 1.5))


@pytest.fixture
def bundle(bundle, identity):
    """`bundle` with networks that change nothing, so that a head stays the head, and as little work as they can do."""
    torch.save(identity.state_dict(), bundle.weights)
    write_card(bundle.weights, CARD)

    def run(source, **given):
        few = {"inferer::steps": 0, "inferer::roi_size": 64, "inferer::deblocked": False, "both_planes": False}
        bundle(source, **few, **given)

    run.out, run.weights = bundle.out, bundle.weights
    return run


@pytest.fixture
def head(write_nifti):
    """Files of an axial and a sagittal stack."""

    def write(name, stack):
        return write_nifti(stack.measured.array.numpy(), np.asarray(stack.measured.affine), f"scans/{name}.nii.gz")

    files = [write("t2_axial", stack_of(person(), 2)), write("t2_sagittal", stack_of(moved(person(), MOVE), 0))]
    return files, write


def test_two_stacks_have_one_result_that_lies_as_the_first_alone_would(head, bundle, capsys):
    files, _ = head
    bundle(files, together=True, report=True)
    assert results(bundle.out) == ["t2_axial_together_sr.nii.gz"] and outcomes(bundle.out) == ["rebuilt"]
    said = record(bundle.out, "t2_axial_together")
    assert said["Sources"] == ["../scans/t2_axial.nii.gz", "../scans/t2_sagittal.nii.gz"]
    first, second = said["Stacks"]
    assert first["Motion"] == np.eye(4).tolist() and first["Gain"] == [1, 1]
    assert np.allclose(second["Motion"], MOVE, atol=0.5) and second["Degrees"] == pytest.approx(17**0.5, abs=0.5)
    assert first["Share"] + second["Share"] == pytest.approx(1, abs=2e-3)
    assert max(first["Agreement"], second["Agreement"]) < 0.2 and said["Agreement"] == first["Agreement"]
    assert said["Description"].startswith("Made of 2 stacks.")
    assert [row["warnings"] for row in summary(bundle.out)] == [" | ".join(said["Warnings"])]
    page = (bundle.out / "t2_axial_together_sr.html").read_text()
    assert "axial, stack 2" in page and "t2_sagittal.nii.gz" in page
    bundle(files, together=True)
    assert outcomes(bundle.out) == ["complete already"]
    bundle(files[0])
    alone, both = (nib.load(bundle.out / name) for name in results(bundle.out)[::-1])
    assert alone.shape == both.shape and np.array_equal(alone.affine, both.affine)


@pytest.mark.slow
def test_a_stack_that_does_not_fit_is_left_out_with_a_line_and_rebuilt_alone(head, bundle, log):
    """It may be of another head. Where none fits the first, each has a result of its own; a second run finds all."""
    files, write = head
    other = write("t2_coronal", stack_of(person(1), 1))
    for given, made, shares in (
        ([files[0], other], ["t2_axial", "t2_coronal"], [True, False]),
        ([*files, other], ["t2_axial_together", "t2_coronal"], [True, True, False]),
    ):
        for outcome in ("rebuilt", "complete already"):
            log.clear()
            bundle(given, together=True)
            rows = [row for row in summary(bundle.out) if row["outcome"] in ("rebuilt", "complete already")]
            kept = [row["outcome"] for row in rows if row["result"].removesuffix("_sr.nii.gz") in made]
            assert len(kept) == 2 and (outcome == "rebuilt" or kept == [outcome] * 2)
        said = record(bundle.out, made[0])
        assert [stack["Share"] > 0 for stack in said["Stacks"]] == shares
        (warning,) = said["Stacks"][-1]["Warnings"]
        assert warning.startswith("../scans/t2_coronal.nii.gz is left out and rebuilt alone: it shows another head")
        assert warning in said["Warnings"] and not record(bundle.out, made[1]).get("Stacks")
    assert record(bundle.out, "t2_axial")["Sources"] == ["../scans/t2_axial.nii.gz"]


@pytest.mark.slow
def test_a_stack_outside_of_the_dataset_of_the_first_is_named_by_its_path(head, bundle, tmp_path):
    files, _ = head
    (write(tmp_path / "ds") / "sub-01" / "anat").mkdir(parents=True)
    files[0].rename(tmp_path / "ds" / "sub-01" / "anat" / "sub-01_acq-ax_T2w.nii.gz")
    bundle([tmp_path / "ds", files[1]], together=True)
    (made,) = (path for path in bundle.out.rglob("*.json") if "together" in path.name)
    sources = json.loads(made.read_text())["Sources"]
    assert sources[0] == "bids:raw:sub-01/anat/sub-01_acq-ax_T2w.nii.gz"
    assert (made.parent / sources[1]).resolve() == files[1].resolve()
    bundle([tmp_path / "ds", files[1]], together=True)
    assert outcomes(bundle.out) == ["complete already"]


def made(rebuilt):
    """The volume of two rebuilt stacks, and the facts on each."""
    measured = [one.slices for one in rebuilt]
    return make_together("ab", measured, check_fits("ab", measured), rebuilt)


def test_a_stack_that_does_not_fit_is_said_before_a_network_runs(head, bundle, log, identity):
    """These weights are broken, which is found where they run."""
    files, write = head
    torch.save({name: torch.full_like(one, torch.nan) for name, one in identity.state_dict().items()}, bundle.weights)
    write_card(bundle.weights, CARD)
    with pytest.raises((SystemExit, RuntimeError)):
        bundle([files[0], write("t2_coronal", stack_of(person(1), 1))], together=True)
    order = [
        one for text in log.messages for one in ("is left out and rebuilt alone", "weights give NaN") if one in text
    ]
    assert order[:2] == ["is left out and rebuilt alone", "weights give NaN"]


@pytest.mark.parametrize(("noise", "mm", "named"), [(0, 0, False), (50, 0, False), (0, 0.6, True)])
def test_stacks_of_a_still_head_tell_of_no_motion_and_those_of_a_restless_one_do(noise, mm, named):
    """Noise explains what it explains; resampling leaves a part of the signal in the stack that is not the first."""
    first, second = (stack_of(person(), axis, noise=noise) for axis in (2, 0))
    each = [replace(one, rebuilt=onto_its_slices(one)) for one in (first, restless(second, mm) if mm else second)]
    said = [fact["Warnings"] for fact in made([Rebuilt(one.measured, one.rebuilt) for one in each])[1]]
    assert any("may have moved within this stack" in " ".join(one) for one in said) == named


def onto_its_slices(stack):
    """The volume of a stack as results are: reconciled with its slices."""
    return MetaTensor(reconcile(stack.rebuilt.as_tensor(), stack.measured), affine=stack.rebuilt.affine)


def test_each_stack_whose_head_moved_between_its_packages_is_named():
    stacks, packages = (
        [stack_of(person(), axis) for axis in (2, 0)],
        np.stack([np.eye(4), motion((1, 0, 0), (0, 0, 1))]),
    )
    moved, still = (Motion("01" * 7, packages, 1.0, 1.0, mm, 0.1) for mm in (2.0, 0.2))

    def said(*motions):
        rebuilt = [Rebuilt(one.measured, one.rebuilt, motion=how) for one, how in zip(stacks, motions)]
        return [" ".join(fact["Warnings"]) for fact in made(rebuilt)[1]]

    words = (
        "b: the head moved by 1.0 mm and 1.0 degrees between even and odd slices; set --motion true to take them back"
    )
    assert words in said(still, moved)[1] and said(moved, still) == ["", ""]


def test_stacks_within_which_the_head_moved_are_left_out_by_name():
    stacks = [restless(stack_of(person(), axis, 4.0, noise=20), 1.5, seed) for seed, axis in enumerate((2, 0))]
    given = [Rebuilt(one.measured, one.rebuilt) for one in stacks]
    alone, (first, second) = made(given)
    assert alone is given[0] and (first["Share"], second["Share"]) == (1, 0)
    assert "b is left out and rebuilt alone: it would take the result away from the slices" in second["Warnings"][0]


@pytest.mark.slow
def test_a_place_that_one_stack_shows_otherwise_is_in_record_and_warnings_and_marked_on_the_page(head, bundle):
    files, write = head
    files[1] = write("t2_sagittal", stack_of(with_lesion(person(), 0.6), 0))
    bundle(files, together=True, report=True)
    said = record(bundle.out, "t2_axial_together")
    (odd,) = said["Stacks"][1]["Disputes"]
    assert np.allclose(odd["Place"], LESION, atol=2 * EDGE) and said["Stacks"][0]["Disputes"] == []
    warning = said["Warnings"][-1]
    sides = ", ".join(f"{'LR PA IS'.split()[axis][mm >= 0]} {abs(mm):.1f}" for axis, mm in enumerate(odd["Place"]))
    assert f"t2_sagittal.nii.gz shows {odd['Volume']} mm^3 at {sides} mm up to" in warning and "brighter" in warning
    page = (bundle.out / "t2_axial_together_sr.html").read_text()
    facts = json.loads(re.search('id="facts">(.*?)</script>', page)[1])
    ((*mark,),) = facts["marks"]
    assert np.allclose(np.array(facts["affine"]) @ [*mark, 1], odd["Place"], atol=0.05)


def series_of(stack, number):
    """A stack as a DICOM series: its columns and rows lie along the array's axes after the slice axis."""
    axis = stack.measured.acquisition.slice_axis
    order = ((axis + 1) % 3, (axis + 2) % 3, axis)
    voxels = np.transpose(stack.measured.array.numpy(), order).clip(0).round().astype(np.uint16)
    lps = np.diag([-1, -1, 1, 1]) @ np.asarray(stack.measured.affine)
    across, down, step = (lps[:3, k] for k in order)
    orientation = [float(cosine) for edge in (across, down) for cosine in edge / np.linalg.norm(edge)]
    told = {"SeriesNumber": number, "SeriesInstanceUID": f"1.2.3.{number}", "PixelSpacing": [EDGE, EDGE]}
    return [
        mr_slice(voxels[:, :, k], lps[:3, 3] + k * step, orientation, InstanceNumber=k + 1, SliceThickness=6, **told)
        for k in range(voxels.shape[2])
    ]


@pytest.mark.slow
def test_series_of_one_study_become_one_whose_sources_are_those_that_took_part(head, bundle, tmp_path):
    stacks = stack_of(person(), 2), stack_of(moved(person(), MOVE), 0), stack_of(person(1), 1)
    images = [series_of(stack, number) for number, stack in enumerate(stacks, 5)]
    for number, series in enumerate(images):
        save(tmp_path / "study" / str(number), series)
    bundle(tmp_path / "study", together=True, output_format="dicom", report=True)
    folder, _ = sorted(
        (path for path in bundle.out.iterdir() if path.is_dir()), key=lambda path: "together" not in path.name
    )
    written = images_of(folder)
    sources = {item.ReferencedSOPInstanceUID for item in written[0].SourceImageSequence}
    assert sources == {image.SOPInstanceUID for series in images[:2] for image in series}
    assert written[0].SeriesDescription == "t2 tse 2 stacks DRIFT SR" and written[0].FrameOfReferenceUID == "1.2.3.5"
    first, thin = stacks[0].measured, float(written[0].SliceThickness)
    affine = respaced_affine(np.asarray(first.affine), 2, first.shape[2], len(written), thin)
    for k in (0, len(written) - 1):
        np.testing.assert_allclose(world(written[k], 3, 7), (affine @ [3, 7, k, 1])[:3], atol=1e-4)
    assert "axial, stack 2" in folder.with_suffix(".html").read_text()


def names(items):
    return [[one.name.rpartition("/")[2] for one in item.each] for item in items]


def test_the_reference_is_the_first_or_the_one_that_is_named(write_nifti, tmp_path, refusal):
    files = [
        write_nifti(stack_of(person(), axis).measured.array.numpy(), name=f"{name}.nii")
        for axis, name in ((2, "a"), (0, "b"))
    ]
    assert names(scans(files, tmp_path, Selection(1.3), together=True)) == [["a.nii", "b.nii"]]
    (item,) = scans(files, tmp_path, Selection(1.3), together=True, reference="b*")
    assert names([item]) == [["b.nii", "a.nii"]] and item.result == tmp_path / "b_together_sr"
    thick = Selection(1.3)
    assert "--reference c matches no scan" in refusal(scans, files, tmp_path, thick, together=True, reference="c")
    assert "Add --together" in refusal(scans, files, tmp_path, thick, reference="b")


def test_loose_files_of_a_folder_go_together_by_no_name(tmp_path):
    """Sidecars with patient, study and times may say it."""
    said = {"PatientID": "17", "StudyInstanceUID": "1.2", "EchoTime": 0.1, "RepetitionTime": 5.0}
    for name, fields in {"T2_ax": {}, "T2_sag": {}, "x": said, "y": said, "z": {**said, "EchoTime": 0.01}}.items():
        add(tmp_path / f"study/{name}.nii.gz").with_name(f"{name}.json").write_text(json.dumps(fields))
    items = scans(tmp_path / "study", tmp_path / "out", Selection(1.3), together=True)
    assert sorted(map(len, names(items))) == [1, 1, 1, 2] and ["x.nii.gz", "y.nii.gz"] in names(items)


def test_in_a_dataset_entities_tell_what_goes_together(tmp_path):
    root = write(tmp_path / "bids")
    for name in ("acq-ax_T2w", "acq-sag_run-2_T2w", "acq-ax_ce-gd_T1w", "acq-sag_T1w"):
        add(root / f"sub-01/anat/sub-01_{name}.nii.gz")
    items = scans(root, tmp_path / "out", Selection(1.3), together=True)
    (group,) = (item for item in items if item.stacks)
    assert names([group]) == [["sub-01_acq-ax_T2w.nii.gz", "sub-01_acq-sag_run-2_T2w.nii.gz"]]
    assert str(group.result).endswith("sub-01/anat/sub-01_desc-together_T2w") and len(items) == 3


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        ({"SeriesDescription": "t2 tse sag"}, True),
        ({"SeriesDescription": "t2 tse sag", "EchoTime": 120}, False),
        ({"SeriesDescription": "t2 tse sag", "FrameOfReferenceUID": "1.2.3.6"}, False),
        ({"SeriesDescription": "t2 tse sag", "StudyInstanceUID": "1.2.4"}, False),
        ({"SeriesDescription": "t2 tse sag", "ContrastBolusAgent": "Gd"}, False),
    ],
)
def test_in_a_study_headers_tell_what_goes_together(other, alike, tmp_path):
    save(tmp_path / "study" / "1", mr_slices(VOXELS, SeriesDescription="t2 tse tra"))
    further = {"SeriesInstanceUID": "1.2.3.9", "SeriesNumber": 8, **other}
    save(tmp_path / "study" / "2", mr_slices(VOXELS, ORIENTATIONS["sagittal"], **further))
    assert len(scans(tmp_path / "study", tmp_path / "out", Selection(1.3), together=True)) == (1 if alike else 2)


@pytest.mark.parametrize(("degrees", "alike"), [(20, False), (30, True)])
def test_series_of_one_direction_are_left_alone(degrees, alike, tmp_path):
    for number, angle in ((7, 0), (8, np.radians(degrees))):
        told = {"SeriesNumber": number, "SeriesInstanceUID": f"1.2.3.{number}"}
        images = mr_slices(VOXELS, [1, 0, 0, 0, np.cos(angle), np.sin(angle)], **told)
        save(tmp_path / "study" / str(number), images)
    items = scans(tmp_path / "study", tmp_path / "out", Selection(1.3), together=True)
    assert len(items) == (1 if alike else 2) and all(isinstance(item.source, dicom.Series) for item in items)
